package jsontext

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorsSayWhereAndWhy(t *testing.T) {
	for doc, want := range map[string]string{
		``:                 "at byte 0: the text is empty",
		` `:                "at byte 0: the text is empty",
		"\ufeff1":          "at byte 0: a byte order mark is not allowed",
		`{"a": 1`:          "at byte 7: unexpected end of data",
		`[1, 2}`:           "at byte 5: unexpected character",
		`[1,, 2]`:          "at byte 3: unexpected character",
		`{"a": 1} x`:       "at byte 9: unexpected content after the document",
		`01`:               "at byte 0: a number begins with a superfluous 0",
		`[1.]`:             "at byte 3: a digit is missing in a number",
		`[tru]`:            "at byte 1: invalid literal",
		`"\x"`:             "at byte 1: invalid escape sequence in a string",
		`"\ud800"`:         "at byte 1: a high surrogate has no low one after it",
		`"\udc00"`:         "at byte 1: a low surrogate has no high one before it",
		"\"a\tb\"":         "at byte 2: a control character in a string is not escaped",
		"\"\xff\"":         "at byte 1: invalid UTF-8 in a string",
		`{"a": {"b": nul}`: "at byte 12: invalid literal",
	} {
		var f Finder
		for _, path := range []string{"$", "$.a", "$.a.b", "$[0]", "$[-1]"} {
			p, err := ParsePath(path)
			require.NoError(t, err)
			_, _, err = f.Find(doc, p)
			assert.EqualError(t, err, "malformed JSON "+want, doc)
		}
	}
}

func TestPathsThatAreWrong(t *testing.T) {
	for path, at := range map[string]string{"$x": "x", "$.": ".", "$.a.": ".", "$[a]": "[a]", "$[": "[", "$..": "..",
		`$."a`: `."a`, `$.""`: `.""`, `$."a"b`: "b", "$[#1]": "[#1]", "$[-]": "[-]", "$.*a": "a", "$[1 ]": "[1 ]"} {
		_, err := ParsePath(path)
		assert.EqualError(t, err, "the JSON path '"+path+"' is wrong at '"+at+"'")
	}
}

func TestDeepDocuments(t *testing.T) {
	const depth = 200_000
	doc := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	var f Finder
	require.NoError(t, f.Check(doc))
	value, ok, err := f.Find(doc, &Path{steps: []step{{kind: byIndex}, {kind: byIndex, index: -1}}})
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, AppendJSON(nil, value), 2*depth-4)
	_, err = f.Contains(doc, "1")
	require.ErrorContains(t, err, "more than 1000 levels")
	_, err = f.Merge(nil, "{}", doc)
	require.ErrorContains(t, err, "more than 1000 levels")
	_, err = f.AppendStructure(nil, doc)
	require.ErrorContains(t, err, "more than 1000 levels")
	p, err := ParsePath("$..*")
	require.NoError(t, err)
	_, err = f.All(doc, p)
	require.ErrorContains(t, err, "more than 1000 levels")
}

// FuzzDocument compares what is accepted with the standard library, and reads what is accepted in all ways.
func FuzzDocument(f *testing.F) {
	for _, doc := range []string{`{"a": [1, -2.5e3, "x\u00e9\ud83d\ude00"], "b": {"c": null}}`, `[true, false,]`,
		`[nan, -Infinity]`, `{"a": {"a": [[], {}]}}`, `"\`, `{"a`, `1e400`, `-0`, `[[[`, `{"a":1,"a":2,}`} {
		f.Add(doc, "$.a[0]", `{"a": null, "c": [1]}`)
		f.Add(doc, "/a/0", doc)
		f.Add(doc, "$..*.a[-1]", "{}")
	}
	f.Fuzz(func(t *testing.T, doc, path, other string) {
		var finder Finder
		err := finder.Check(doc)
		if json.Valid([]byte(doc)) && !strings.Contains(doc, `\u`) && strings.ToValidUTF8(doc, "") == doc {
			require.NoError(t, err)
		}
		p, wrong := ParsePath(path)
		if wrong != nil {
			p = &Path{}
		}
		value, ok, found := finder.Find(doc, p)
		require.Equal(t, err != nil, found != nil, "whether a text is JSON does not depend on the path")
		_, _ = finder.Contains(doc, other)
		if merged, err := finder.Merge(nil, doc, other); err == nil {
			require.NoError(t, finder.Check(string(merged)))
		}
		if err != nil {
			return
		}
		_, _ = finder.All(doc, p)
		if ok && !p.Many() {
			compact := string(AppendJSON(nil, value))
			require.NoError(t, finder.Check(compact))
			require.Equal(t, compact, string(AppendJSON(nil, compact)), "the compact form of the compact form")
			require.NoError(t, finder.Check(string(AppendPretty(nil, value))))
		}
		if s, err := finder.AppendStructure(nil, doc); err == nil {
			require.NoError(t, finder.Check(string(s)))
		}
	})
}

func BenchmarkFind(b *testing.B) {
	const doc = `{"id": 17, "name": "user17", "tags": ["a", "b3"], "score": 1.7, "nested": {"x": 2, "y": null}}`
	for _, path := range []string{"$.name", "$.nested.x", "$.tags[-1]"} {
		p, err := ParsePath(path)
		require.NoError(b, err)
		b.Run(path, func(b *testing.B) {
			var f Finder
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, ok, err := f.Find(doc, p); !ok || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
