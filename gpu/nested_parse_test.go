package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsOfTextsOfNestedValues(t *testing.T) {
	long := Of(Int64)
	for text, c := range map[string]struct {
		t    Type
		want string
	}{
		"[1, 2":    {ListOf(long), `cannot read "[1, 2" as BIGINT[], which is written [1, 2]`},
		"[[1], 2]": {ListOf(ListOf(long)), `cannot read "2" as BIGINT[], which is written [1, 2]`},
		"{a: 1, c: 2}": {StructOf(Field{Name: "a", Type: long}), `cannot read "{a: 1, c: 2}" as STRUCT(a BIGINT), ` +
			`which is written {name: value} or (value, …)`},
		"{a=1, a=2}": {MapOf(Of(String), long), "a key of the map occurs twice"},
		"{a: 1}":     {MapOf(Of(String), long), `cannot read "{a: 1}" as MAP(VARCHAR, BIGINT), which is written {key=value}`},
	} {
		_, err := AppendParsed(nil, text, c.t, false)
		assert.EqualError(t, err, c.want, text)
		tried, err := AppendParsed(nil, text, c.t, true)
		require.NoError(t, err)
		assert.Contains(t, string(tried), string(AppendNull(nil)), text)
	}
}

// FuzzTextsOfNestedValues reads texts as nested values. What is read is an encoding, whose text is read again.
func FuzzTextsOfNestedValues(f *testing.F) {
	text := Of(String)
	types := []Type{ListOf(text), StructOf(Field{Name: "a", Type: text}, Field{Name: "b", Type: ListOf(text)}),
		MapOf(text, text), ListOf(ListOf(text)), MapOf(ListOf(text), StructOf(Field{Name: "a", Type: text}))}
	for i, s := range []string{`[a, "b\"c", NULL, [x]]`, `{a: 'x', b: [1, 2]}`, `{k=1, "l m"=NULL}`, `[[1], [], NULL]`,
		`{[a]={a: b}}`, `(x, [y])`, `[\`, `['`, `{a: [`} {
		f.Add(uint8(i), s)
	}
	f.Fuzz(func(t *testing.T, k uint8, s string) {
		typ := types[int(k)%len(types)]
		got, err := AppendParsed(nil, s, typ, false)
		tried, other := AppendParsed(nil, s, typ, true)
		require.NoError(t, other)
		if err != nil {
			return
		}
		require.Equal(t, got, tried)
		require.Equal(t, len(got), SkipNested(got))
		again, err := AppendParsed(nil, Scalar{Type: typ, Valid: true, Str: string(got)}.String(), typ, false)
		require.NoError(t, err)
		require.Equal(t, got, again, "the value is not that of its text")
	})
}
