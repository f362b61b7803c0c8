package text

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
)

func TestLinesOfJSONAreSampledAndRead(t *testing.T) {
	for name, c := range map[string]struct{ text, types, rows string }{
		"kinds": {`{"i":1,"f":1.5,"b":true,"s":"x","d":"2020-01-02","t":"2020-01-02 03:04:05","n":null}` + "\n" +
			`{"i":-2,"f":3,"b":false,"s":"","d":null}` + "\n",
			"i BIGINT, f DOUBLE, b BOOLEAN, s VARCHAR, d DATE, t TIMESTAMP, n VARCHAR",
			"1|1.5|true|x|2020-01-02|2020-01-02 03:04:05|NULL -2|3.0|false||NULL|NULL|NULL"},
		"order": {"{\"a\":1,\"b\":2}\r\n\n { \"b\" : 3 , \"a\" : 4 } \n{}\n", "a BIGINT, b BIGINT",
			"1|2 4|3 NULL|NULL"},
		"escapes": {`{"a\u0062":"\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00\ud83d"}`, "ab VARCHAR", "\"\\/\b\f\n\r\tä😀\ufffd"},
		"mixed": {`{"a":[1,{"b":"]"},[],null],"c":{}}`, "a VARCHAR[], c MAP(VARCHAR, VARCHAR)",
			`[1, '{"b":"]"}', '[]', NULL]|{}`},
		"nested": {`{"s":{"a":1,"l":[1,2.5],"d":"2020-01-02"},"l":[{"x":"é"},null,{"x":null,"y":true}]}` + "\n" +
			`{"l":[],"s":null}` + "\n" + `{"s":{"d":null,"a":-7}}` + "\n",
			"s STRUCT(a BIGINT, l DOUBLE[], d DATE), l STRUCT(x VARCHAR, y BOOLEAN)[]",
			"{'a': 1, 'l': [1.0, 2.5], 'd': 2020-01-02}|[{'x': é, 'y': NULL}, NULL, {'x': NULL, 'y': true}] " +
				"NULL|[] {'a': -7, 'l': NULL, 'd': NULL}|NULL"},
		"a list and a text": {`{"a":[1]}` + "\n" + `{"a":"[1]"}` + "\n", "a VARCHAR", "[1] [1]"},
		"rare keys": {func() (text string) {
			for i := range 20 {
				text += fmt.Sprintf(`{"m":{"k%d":%d}}`, i, i) + "\n"
			}
			return text
		}(), "m MAP(VARCHAR, BIGINT)", func() (rows string) {
			for i := range 20 {
				rows += fmt.Sprintf(" {k%d=%[1]d}", i)
			}
			return rows[1:]
		}()},
		"several": {`{"a":1}` + "\n" + `{"a":"x"}` + "\n" + `{"a":true}`, "a VARCHAR", "1 x true"},
		"large":   {`{"a":9223372036854775808}` + "\n" + `{"a":1e400}`, "a DOUBLE", "9.223372036854776e+18 inf"},
		"texts":   {`{"a":"1","b":"true"}`, "a VARCHAR, b VARCHAR", "1|true"},
		"nulls":   {`{"a":"null"}` + "\n" + `{"a":null}`, "a VARCHAR", "null NULL"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := Open([]string{write(t, "x.jsonl", c.text)}, Options{JSON: true})
			require.NoError(t, err)
			require.Equal(t, c.types, types(table))
			rows, err := rowsOf(t, table, 0)
			require.NoError(t, err)
			require.Equal(t, c.rows, strings.Join(rows, " "))
		})
	}
}

func TestErrorsOfJSONNameTheLine(t *testing.T) {
	long := strings.Repeat("{\"a\":1}\n", sampleRows)
	for text, want := range map[string]string{
		"[1]\n":                  "object 1: it is no object {…} of JSON",
		"1\n":                    "line 1: it is no object",
		"{\"a\":1}\n{\"a\":}\n":  "line 2: it is no JSON",
		"{\"a\":01}\n":           "line 1: it is no JSON",
		"{\"a\":\"\x01\"}\n":     "line 1: it is no JSON",
		"{\"a\":1}x\n":           "line 1: it is no JSON",
		"{\"a\":\"\\x\"}\n":      "line 1: it is no JSON",
		"{}\n":                   "the file has no objects with keys",
		"{\"a\":1,\"a\":2}\n":    "x.jsonl, line 1: bad data: the object has a key twice",
		long + "{\"b\":1}\n":     "line 20481: bad data: the object has a key that the sample of the file has not",
		long + "{\"a\":\"x\"}\n": "line 20481, column 1 (\"a\"): bad data: \"x\" is no BIGINT",
		long + "{\"a\":1\n":      "line 20481: bad data: it is no JSON",
		long + "{\"a\":1.5}\n":   "\"1.5\" is no BIGINT",
		"{\"a\":" + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "}\n": "it is no JSON",
	} {
		table, err := Open([]string{write(t, "x.jsonl", text)}, Options{JSON: true})
		if err == nil {
			_, err = rowsOf(t, table, 0)
		}
		require.ErrorContains(t, err, want)
	}
	for _, c := range []struct{ first, last, want string }{
		{`{"a":[1]}`, `{"a":"[1]"}`, `"[1]" is no BIGINT[]`},
		{`{"a":{"b":[1]}}`, `{"a":{"b":["x"]}}`, `line 20482, column 1 ("a"): bad data: "x" is no BIGINT;`},
		{`{"a":{"b":1}}`, `{"a":{"c":1}}`, `the key "c" is in no such object of the sample`},
		{`{"a":{"b":1}}`, `{"a":{"b":1,"b":2}}`, `the object has the key "b" twice`},
		{`{"a":{"b":1}}`, `{"a":[]}`, `"[]" is no STRUCT(b BIGINT)`},
	} {
		text := c.first + "\n" + strings.Repeat("{\"a\":null}\n", sampleRows) + c.last + "\n"
		table, err := Open([]string{write(t, "x.jsonl", text)}, Options{JSON: true})
		require.NoError(t, err)
		_, err = rowsOf(t, table, 0)
		require.ErrorContains(t, err, c.want)
	}
	path := write(t, "x.jsonl", "{\"a\":1,\"c\":2}\nx\n{\"a\":\"y\"}\n{\"a\":3}\n")
	opt := Options{JSON: true, Rejects: filepath.Join(t.TempDir(), "r.csv"),
		Schema: gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int8)})}
	for _, block := range []int{0, 1, 10} {
		table, err := Open([]string{path}, opt)
		require.NoError(t, err)
		rows, err := rowsOf(t, table, block)
		require.NoError(t, err)
		require.Equal(t, []string{"1", "3"}, rows)
		got, err := os.ReadFile(opt.Rejects)
		require.NoError(t, err)
		require.Equal(t, rejectHeader+"\n"+path+",2,,\"\",\"it is no object {…} of JSON\",x\n"+path+
			",3,1,a,\"\"\"y\"\" is no TINYINT\",\"{\"\"a\"\":\"\"y\"\"}\"\n", string(got))
	}
}

func TestStandardInputIsReadOnce(t *testing.T) {
	for _, rows := range []int{3, 600_000} { // in the sample, and more
		r, w, err := os.Pipe()
		require.NoError(t, err)
		stdin := os.Stdin
		os.Stdin = r
		defer func() { os.Stdin = stdin }()
		go func() {
			defer w.Close()
			_, _ = w.WriteString("a,b\n" + strings.Repeat("1,some text\n", rows))
		}()
		table, err := Open([]string{Standard}, Options{})
		require.NoError(t, err)
		require.Equal(t, rows == 3, table.RowsExact())
		got, err := rowsOf(t, table, 0)
		require.NoError(t, err)
		require.Len(t, got, rows)
		_, err = rowsOf(t, table, 0)
		require.ErrorContains(t, err, "standard input can be read once")
	}
}

// FuzzJSON compares what is a line of JSON, and its strings, with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":"\u00e4\ud83d\ude00"}`, `{"a":[1,{"b":null}]}`, `{"a":-0.5e+3}`, `{`,
		`{"a":{"b":[{"c":1,"d":"x"},{"d":"\u00e4","c":2}],"m":{}},"l":[[],[null,true]]}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\n\x00") || !strings.HasPrefix(text, "{") || strings.Count(text, "[") > 900 ||
			strings.Count(text, "{") > 900 {
			return
		}
		s := jsonScanner{text: []byte(text)}
		var values []string
		got := s.members(func(_, value field, kind jsonKind) bool {
			if kind == jsonString {
				values = append(values, string(unescapeJSON(nil, []byte(text[value.from:value.to]))))
			}
			return true
		})
		require.Equal(t, json.Valid([]byte(text)), got == sound, "%q", text)
		var object map[string]any
		if got != sound || json.Unmarshal([]byte(text), &object) != nil || !strings.ContainsRune(text, '"') {
			return
		}
		for _, v := range object {
			if v, ok := v.(string); ok {
				found := false
				for _, w := range values {
					found = found || strings.ToValidUTF8(w, "\ufffd") == strings.ToValidUTF8(v, "\ufffd")
				}
				require.True(t, found || strings.Contains(v, "\ufffd"), "%q", text)
			}
		}
		table, err := Open([]string{write(t, "x.jsonl", text+"\n")}, Options{JSON: true})
		if err == nil {
			_, _ = rowsOf(t, table, 1)
		}
	})
}

// TestJSONIsReadInEachForm writes objects as lines, as a list and one behind the other, and reads them in small blocks.
func TestJSONIsReadInEachForm(t *testing.T) {
	var objects, want []string
	for i := range 500 {
		s := strings.Repeat(`}],[{\"\\`, i%7) + strings.Repeat("é", i%300)
		objects = append(objects, fmt.Sprintf(`{"n":%d,"s":"%s","l":[{"x":%d}]}`, i, s, i))
		want = append(want, fmt.Sprint(i))
	}
	list := "[" + strings.Join(objects, "\n,\n ") + "]\n"
	for name, c := range map[string]struct{ text, format string }{
		"lines":             {strings.Join(objects, "\n"), ""},
		"a list":            {list, ""},
		"a list on lines":   {"\n [\n" + strings.ReplaceAll(list[1:], `"l":`, "\n\r\n\"l\" :\n"), ""},
		"one behind others": {strings.ReplaceAll(strings.Join(objects, ""), `"l":`, "\n\"l\":"), ""},
		"on a line":         {strings.Join(objects, " "), JSONUnstructured},
	} {
		table, err := Open([]string{write(t, "x.json", c.text)}, Options{JSON: true, Format: c.format})
		require.NoError(t, err, name)
		require.Equal(t, "n BIGINT, s VARCHAR, l STRUCT(x BIGINT)[]", types(table), name)
		require.EqualValues(t, 500, table.Rows())
		for _, block := range []int{0, 1, 1000} {
			rows, err := rowsOf(t, table, block)
			require.NoError(t, err, name)
			require.Len(t, rows, 500)
			for i, row := range rows {
				require.True(t, strings.HasPrefix(row, want[i]+"|"), row)
			}
		}
	}
}

func TestWrongFormsOfJSONAreErrors(t *testing.T) {
	long := strings.Repeat(`{"a":1},`, sampleBytes/8+10)
	for text, want := range map[string]string{
		`[{"a":1}`:                      "the list of JSON has no end; the file is cut off behind object 0",
		`[{"a":1},`:                     "has no end; the file is cut off behind object 1",
		`[{"a":1},]`:                    "object 2 of the list of JSON is missing",
		`[{"a":1},,{"a":2}]`:            "object 2 of the list of JSON is missing",
		`[,{"a":2}]`:                    "object 1 of the list of JSON is missing",
		`[{"a":1}] x`:                   "there is text behind the list",
		`[{"a":1} {"a":2}]`:             "object 1: it is no JSON",
		`[{"a":1}, {"a":[1}]}]`:         "object 2: it is no JSON",
		`[{"a":1}, 5]`:                  "object 2: it is no object",
		"[{\"a\":\"x\ny\"}]":            "object 1: it is no JSON",
		"[{\"a\n\":1}]":                 "object 1: it is no JSON",
		"{\"a\":\n1}\n{\"a\":\n}\n":     "object 2: it is no JSON",
		"{\"a\":\n1}\n5\n{\"a\":1}":     "object 2: it is no object",
		"{\"a\":\n1}\n{\"a\":\n":        "object 2: it is no JSON",
		"[" + long:                      "the file is cut off behind object 524298",
		"[" + long + `{"b":1}]`:         "object 524299: bad data: the object has a key that the sample",
		"[" + long + `{"a":"x"}]`:       "object 524299, column 1 (\"a\"): bad data: \"x\" is no BIGINT",
		"{\"a\":\n1}" + `{"a":"` + long: "object 2",
	} {
		name := text[:min(len(text), 30)]
		table, err := Open([]string{write(t, "x.json", text)}, Options{JSON: true})
		if err == nil {
			_, err = rowsOf(t, table, 0)
		}
		require.ErrorIs(t, err, source.ErrData, name)
		require.ErrorContains(t, err, want, name)
	}
	_, err := Open([]string{write(t, "x.json", `{"a":1}`)}, Options{JSON: true, Format: JSONArray})
	require.ErrorContains(t, err, "does not begin with a list")
	_, err = Open([]string{write(t, "x.json", `[{"a":1}]`)}, Options{JSON: true, Format: JSONLines})
	require.ErrorContains(t, err, "the file is a list, which the format array reads")
	_, err = Open([]string{write(t, "x.json", `{}`)}, Options{JSON: true, Format: "list"})
	require.ErrorContains(t, err, "it must be auto, newline_delimited, array or unstructured")
	// Rows that are none go to the rejects by their number.
	rejected := filepath.Join(t.TempDir(), "rejects.csv")
	table, err := Open([]string{write(t, "x.json", "[{\"a\":1},\n7,\n{\"a\":\n2}]")},
		Options{JSON: true, Rejects: rejected})
	require.NoError(t, err)
	rows, err := rowsOf(t, table, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, rows)
	got, err := os.ReadFile(rejected)
	require.NoError(t, err)
	require.Contains(t, string(got), ",2,,\"\",\"it is no object {…} of JSON\",7\n")
}
