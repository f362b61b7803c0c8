package expr_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// randomJSON draws documents, paths and texts of nested values.
type randomJSON struct{ *rand.Rand }

func pick[T any](r randomJSON, of ...T) T { return of[r.IntN(len(of))] }

var jsonKeys = []string{`a`, `b`, `c d`, `é`, ``, `x.y`, `0`, `a\"b`, `\u0061`, `n\\m`, `A`}

func (r randomJSON) document(depth int) string {
	space := func() string { return pick(r, "", "", "", " ", "\n ") }
	if depth == 0 || r.IntN(3) == 0 {
		return pick(r, "null", "true", "false", "0", "-0", "-1", "12", "1.50", "-2.5", "1e3", "4.5", "0.1e-7",
			"1E400", "1e21",
			"123456789012345678901234567890", "18446744073709551615", "-9223372036854775808", "0.30000000000000004",
			"300", `""`, `"x"`, `"12"`, `"4.5"`, `"true"`, `"2020-01-02"`, `"a\n\u00e9\/\ud83d\ude00"`,
			`"\u0001\u001f\u007f"`,
			`"ä {\"q\": 'z'}"`, `"null"`, "nan", "-Infinity", `"1e2"`, `" 7"`, "1.0", "100.0", "12345678.125")
	}
	var parts []string
	object := r.IntN(2) == 0
	for range r.IntN(4) {
		v := space() + r.document(depth-1) + space()
		if object {
			v = space() + `"` + pick(r, jsonKeys...) + `"` + space() + ":" + v
		}
		parts = append(parts, v)
	}
	tail := pick(r, "", "", "", "", ",")
	if len(parts) == 0 {
		tail = space()
	}
	if object {
		return "{" + strings.Join(parts, ",") + tail + "}"
	}
	return "[" + strings.Join(parts, ",") + tail + "]"
}

// damaged returns a text with a byte more, less or another one.
func (r randomJSON) damaged(s string) string {
	if len(s) == 0 {
		return s
	}
	i := r.IntN(len(s))
	for s[i]&0xC0 == 0x80 || s[i] >= 0xC0 { // inside of a character
		if i++; i == len(s) {
			return s + "}"
		}
	}
	other := pick(r, `{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `0`, `.`, `-`, `e`, `n`, ` `, "\t", "\x01", "é",
		"'", "=", "(", ")")
	switch r.IntN(3) {
	case 0:
		return s[:i] + other + s[i:]
	case 1:
		return s[:i] + other + s[i+1:]
	}
	return s[:i] + s[i+1:]
}

func (r randomJSON) path() string {
	if r.IntN(4) == 0 {
		return syntax.Quote(pick(r, "a", "b", "/a", "/a/0", "/b/a", "/", "a.b", "", "0", "/0", "/1/a", "c d",
			"x.y", "a\"b", "n\\m"))
	}
	if r.IntN(5) == 0 {
		return fmt.Sprint(r.IntN(5) - 2)
	}
	p := "$"
	for range 1 + r.IntN(3) {
		p += pick(r, ".a", ".b", `."c d"`, ".é", `."x.y"`, "[0]", "[1]", "[-1]", "[#-2]", "[#]", ".0",
			`."a\"b"`, "..a", ".*", "[*]",
			"..*", "..[0]", ".c d", ".A")
	}
	if r.IntN(15) == 0 {
		p = r.damaged(p)
	}
	return syntax.Quote(p)
}

func (r randomJSON) leaf() string {
	return pick(r, "INTEGER", "VARCHAR", "DOUBLE", "BOOLEAN", "DECIMAL(9,2)", "DATE", "TINYINT", "HUGEINT",
		"UBIGINT", "BIGINT")
}

func (r randomJSON) nested(depth int) string {
	if depth == 0 {
		return r.leaf()
	}
	switch r.IntN(5) {
	case 0, 1:
		return r.nested(depth-1) + "[]"
	case 2:
		return "MAP(" + pick(r, "VARCHAR", "VARCHAR", "INTEGER") + ", " + r.nested(depth-1) + ")"
	}
	return "STRUCT(a " + r.nested(depth-1) + ", b " + r.nested(r.IntN(depth)) + ")"
}

// text draws a text of a value of a type, mostly.
func (r randomJSON) text(t gpu.Type) string {
	space := func() string { return pick(r, "", "", "", " ", "  ") }
	quote := func(s string) string {
		switch r.IntN(4) {
		case 0:
			return `"` + s + `"`
		case 1:
			return `'` + s + `'`
		}
		return s
	}
	var parts []string
	c := t.Children()
	switch t.Kind {
	case gpu.List:
		for range r.IntN(4) {
			parts = append(parts, space()+r.text(c[0].Type)+space())
		}
		return "[" + strings.Join(parts, ",") + "]"
	case gpu.Struct:
		if r.IntN(4) == 0 {
			for _, f := range c[:r.IntN(len(c)+1)] {
				parts = append(parts, space()+r.text(f.Type))
			}
			return "(" + strings.Join(parts, ",") + ")"
		}
		for _, f := range c {
			if r.IntN(6) > 0 {
				name := quote(pick(r, f.Name, f.Name, f.Name, f.Name, "c"))
				parts = append(parts, space()+name+space()+":"+space()+r.text(f.Type)+space())
			}
		}
		return "{" + strings.Join(parts, ",") + "}"
	case gpu.Map:
		for range r.IntN(3) {
			parts = append(parts, space()+r.text(c[0].Type)+space()+"="+space()+r.text(c[1].Type)+space())
		}
		return "{" + strings.Join(parts, ",") + "}"
	case gpu.String:
		return pick(r, "x", `"a, b"`, `'c]'`, "NULL", "null", `"NULL"`, "", "a b", `'it\'s'`, `"q\"z"`, `a\b`,
			`"\\n"`, "[x]", "{y}", "(z)",
			`é`, `'`, `x'y'z`, `a"b"`, `"a"b`, `NULL x`, `[a "b"]`, `1=2`, "a:b", `\"`, `[1, "a]"]`,
			"{'a': 1}", `x[y]z`, `x"[" y`)
	}
	return pick(r, "NULL", "1", "0", "-1", "2", "12", "1.5", "true", `"3"`, `'4'`, "x", "2020-01-02", "",
		"'2020-03-04'", "300")
}

// question returns an expression over the VARCHAR d, and d.
func (r randomJSON) question() (sql, doc string) {
	if r.IntN(3) == 0 {
		name := r.nested(1 + r.IntN(3))
		t, err := syntax.ParseType(name)
		if err != nil {
			panic(err)
		}
		if doc = r.text(t); r.IntN(4) == 0 {
			doc = r.damaged(doc)
		}
		return pick(r, "", "TRY_") + "CAST(d AS " + name + ")", doc
	}
	if doc = r.document(1 + r.IntN(4)); r.IntN(6) == 0 {
		doc = r.damaged(doc)
	}
	path := r.path()
	part := syntax.Quote(r.document(r.IntN(3)))
	names := []string{"json_value", "json_exists", "json_type", "json_array_length", "json_keys", "json_extract_string"}
	switch r.IntN(16) {
	case 0, 1:
		return "d -> " + path, doc
	case 2, 3:
		return "d ->> " + path, doc
	case 4, 5:
		return pick(r, names...) + "(d, " + path + ")", doc
	case 6:
		return pick(r, "json_valid(d)", "json(d)", "json_type(d)", "json_structure(d)", "json_pretty(d)",
			"json_keys(d)"), doc
	case 7:
		return "json_contains(d, " + part + ")", doc
	case 8:
		return "json_merge_patch(d, " + part + ")", doc
	case 9:
		return pick(r, names...) + "(d, [" + path + ", 'a'])", doc
	case 10:
		return "TRY_CAST(CAST(d AS JSON) AS " + r.nested(r.IntN(3)) + ")", doc
	case 11:
		return "(d -> " + path + ")::" + r.nested(r.IntN(2)), doc
	case 12:
		return "CAST(TRY_CAST(d AS JSON) AS " + r.leaf() + ")", doc
	case 13:
		return "(d -> 'a' ->> 'b') || (d ->> '$[0]')", doc
	}
	return pick(r, "json_transform", "json_transform_strict") + "(d, " + pick(r, `'{"a": "INTEGER", "b": "VARCHAR"}'`,
		`'["DOUBLE"]'`, `'"MAP(VARCHAR, INTEGER)"'`, `'{"a": ["BOOLEAN"]}'`, `'[{"a": "DECIMAL(9,2)"}]'`) + ")", doc
}

// knownJSON are the differences that docs/semantics.md lists.
func knownJSON(sql, doc string) bool {
	return strings.Contains(sql, ")::") && (strings.Contains(sql, "*") || strings.Contains(sql, "..")) ||
		strings.HasPrefix(sql, "json_pretty") && largeNumber.MatchString(doc) ||
		strings.Contains(sql, "CAST(d AS ") && strayBackslash.MatchString(doc)
}

var (
	largeNumber    = regexp.MustCompile(`(?i)nan|inf|[0-9]{19}|e400`)
	strayBackslash = regexp.MustCompile(`\\\s*[^"'\\\sa-z]`)
)

// TestRandomJSONIsDuckDBs compares functions of JSON, and casts of texts to nested types.
//
//	GSTREAM_PYTHON=… GSTREAM_CASES=20000 go test ./operators/expr -run RandomJSON
func TestRandomJSONIsDuckDBs(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	first, n := gputest.SeedOr(t, 1), gputest.Cases(t, 150)
	type one struct{ sql, doc string }
	var all []one
	var questions []exprtest.Question
	for seed := first; seed < first+uint64(n); seed++ {
		r := randomJSON{rand.New(rand.NewPCG(seed, 41))}
		sql, doc := r.question()
		all = append(all, one{sql, doc})
		from := " FROM (SELECT " + syntax.Quote(doc) + "::VARCHAR AS d)"
		questions = append(questions, exprtest.Question{Optimize: true,
			SQL: "SELECT if(typeof(" + sql + ") = 'JSON[]', (" + sql + ")::VARCHAR[]::VARCHAR, (" + sql +
				")::VARCHAR), " +
				"replace(typeof(" + sql + "), 'JSON', 'VARCHAR')" + from})
	}
	schema := gpu.NewSchema(gpu.Field{Name: "d", Type: gpu.Of(gpu.String), Nullable: true})
	values, errs := 0, 0
	for k, a := range duck.Ask(questions...) {
		x := all[k]
		cols := []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), []gpu.Scalar{gpu.StringScalar(x.doc)})}
		e, err := bind(x.sql, &expr.Scope{Schema: schema})
		var got [][]gpu.Scalar
		if err == nil {
			var text *expr.Expr
			text, err = expr.Cast(e, gpu.Of(gpu.String), host.Fold)
			require.NoError(t, err, x.sql)
			got, err = evaluate(t, schema, cols, 1, text)
		}
		seed := first + uint64(k)
		if knownJSON(x.sql, x.doc) {
			continue
		}
		if (err != nil) != (a.Error != "") {
			t.Errorf("GSTREAM_SEED=%d: %s\n    of %s\n    DuckDB: %.300s %v\n    gstream: %v",
				seed, x.sql, x.doc, a.Error, texts(a), err)
			continue
		}
		if err != nil {
			errs++
			continue
		}
		want, have := "NULL", got[0][0].String()
		if v := a.Rows[0][0]; v != nil {
			want = *v
		}
		if want != have || e.Type().String() != *a.Rows[0][1] {
			t.Errorf("GSTREAM_SEED=%d: %s\n    of %s\n    DuckDB: %s %s\n    gstream: %s %v", seed, x.sql, x.doc, want,
				*a.Rows[0][1], have, e.Type())
		}
		values++
	}
	t.Logf("%d values, %d errors", values, errs)
	require.Greater(t, values, n/2, "too few expressions have values")
}

func texts(a exprtest.Answer) (out []string) {
	for _, row := range a.Rows {
		for _, v := range row {
			if v != nil {
				out = append(out, *v)
			}
		}
	}
	return out
}
