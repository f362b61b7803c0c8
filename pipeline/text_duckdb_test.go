package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// oddFiles are CSV files in which readers differ. other is what gstream does where DuckDB does something else: the
// names and types of the columns, or a part of an error.
var oddFiles = []struct{ name, text, other string }{
	{"a byte order mark", "\ufeffa,b\n1,2\n", ""},
	{"no line break at the end", "a,b\n1,2", ""},
	{"line breaks of Windows", "a,b\r\n1,2\r\n", ""},
	{"line breaks of old Macs", "a,b\r1,2\r", ""},
	{"both line breaks", "a,b\r\n1,2\n3,4\r\n", "a BIGINT, b BIGINT"}, // refused by DuckDB
	{"a line break in quotes", "a,b\n\"x\ny\",1\nz,2\n", ""},
	{"a quote in quotes", "a,b\n\"x\"\"y\",1\nz,2\n", ""},
	{"an escaped quote", "a,b\n\"x\\\"y\",1\nz,2\n", ""},
	{"single quotes", "a,b\n'x,y',1\n'z,w',2\n", ""},
	{"a quote within a text", "a,b\nx\"y,1\nz,2\n", ""},
	{"spaces around quotes", "a,b\n \"x\" ,1\nz,2\n", ""},
	{"quotes around numbers", "a,b\n\"1\",\"2\"\n\"3\",\"4\"\n", ""},
	{"an empty line", "a,b\n1,2\n\n3,4\n", ""},
	{"an empty line, one column", "a\n1\n\n3\n", ""},
	{"empty lines first", "\n\na,b\n1,2\n", ""},
	{"an empty file", "", ""},
	{"only a header", "a,b,c\n", ""},
	{"one number", "1\n", ""},
	{"one word", "x\n", ""},
	{"one row", "x,1\n", ""},
	{"no header", "1,x\n2,y\n", ""},
	{"only texts", "a,b\nx,y\n", ""},
	{"numbers as names", "1,2\nx,y\n", ""},
	{"a number among the names", "a,1\nx,2\ny,3\n", ""},
	{"empty names", "a,,c\n1,2,3\n", ""},
	{"equal names", "a,a,A\n1,2,3\n", ""},
	{"spaces around names", " a , b\n1,2\n", ""},
	{"many columns without names", "1,2,3,4,5,6,7,8,9,10,11\n", ""},
	{"semicolons", "a;b\n1;2\n", ""},
	{"tabs", "a\tb c\n1\t2 3\n", ""},
	{"bars and commas", "a|b\n1,5|2\n3,5|7\n", ""},
	{"a delimiter at the end", "1|x|\n2|y|\n", ""},
	{"empty is null", "a,b\n,1\n2,\n", ""},
	{"a column of nulls", "a,b\n1,\n2,\n", ""},
	{"an empty text in quotes", "a,b\n\"\",1\nx,2\n", ""},
	{"NULL and NA are texts", "a,b\nNULL,NA\n3,4\n", ""},
	{"true and false", "a,b\ntrue,F\nfalse,t\n", ""},
	{"yes and no", "a\nyes\nno\n", "a VARCHAR"},
	{"y and n", "a\ny\nn\n", ""},
	{"zero and one", "a\n0\n1\n", ""},
	{"true and one", "a\ntrue\n1\n", ""},
	{"spaces around integers", "a,b\n 1,2 \n3, 4\n", ""},
	{"spaces around fractions", "a,b\n 1.5,1\n2.5 ,2\n", ""},
	{"a plus sign", "a\n+1\n2\n", ""},
	{"leading zeros", "a\n007\n08\n", ""},
	{"leading zeros after a sign", "a\n-007\n1\n", "a VARCHAR"},
	{"underscores", "a\n1_000\n2\n", ""},
	{"hexadecimal", "a\n0x10\n", "a VARCHAR"},
	{"an exponent", "a\n1e3\n2\n", ""},
	{"bare points", "a\n1.\n.5\n", ""},
	{"not a number", "a\nnan\n1.5\n", ""},
	{"infinity among numbers", "a\ninf\n1.5\n", ""},
	{"a large integer", "a\n9223372036854775808\n1\n", "a DECIMAL(38,0)"},
	{"a very large integer", "a\n170141183460469231731687303715884105728\n1\n", "a DOUBLE"},
	{"a very large float", "a\n1e400\n1\n", ""},
	{"integers and fractions", "a\n1\n2.5\n", ""},
	{"dates", "a\n2020-01-02\n2020-12-31\n", ""},
	{"dates with slashes", "a\n2020/01/02\n", ""},
	{"short dates", "a\n2020-1-2\n", ""},
	{"dates with points", "a\n2020.01.02\n", ""},
	{"American dates", "a\n1/2/2020\n12/31/2020\n", ""},
	{"German dates", "a,b\n31.12.2020,1\n1.2.2020,2\n", ""},
	{"a first row of dates", "13/02/2020,1\n14/02/2020,2\n", ""},
	{"a first row of dates of two forms", "13/02/2020,1/30/2020\n14/02/2020,1/31/2020\n",
		"column0 DATE, column1 DATE"}, // the second is a VARCHAR for DuckDB
	{"dates of two forms", "a\n13/02/2020\n02/13/2020\n", "a VARCHAR"}, // an error of DuckDB
	{"a day or a month first", "a\n01/02/2020\n", "a VARCHAR"},         // for DuckDB it is a day
	{"years of two digits", "a\n20-01-02\n", "a VARCHAR"},              // for DuckDB it is the year
	{"American years of two digits", "a\n12/31/70\n", ""},
	{"timestamps of two digits", "a\n96-03-27 10:00:00\n", ""},
	{"American timestamps", "a\n12/31/2020 10:00:00 PM\n1/2/2020 1:02:03 am\n", ""},
	{"German timestamps", "a\n31.12.2020 10:00:00\n01.02.2020 23:59:59\n", ""},
	{"three numbers", "a\n1.2.3\n", ""},
	{"a day that is not", "a\n2020-02-30\n", ""},
	{"timestamps", "a,b\n2020-01-02 03:04:05,2020-01-02T03:04:05.123456\n", ""},
	{"timestamps without seconds", "a\n2020-01-02 03:04\n", ""},
	{"timestamps with a zone", "a,b\n2020-01-02 03:04:05+02,2020-01-02T03:04:05Z\n", ""},
	{"dates and timestamps", "a\n2020-01-02\n2020-01-02 03:04:05\n", ""},
	{"times", "a,b\n03:04:05,3:04\n", ""},
	{"times and numbers", "a\n03:04:05\n7\n", ""},
	{"a comment", "#hello\na,b\n1,2\n", "the row has 2 columns, and the file has 1"},
	{"a row that is too short", "a,b\n1,2\n3\n4,5\n", "the row has 1 column, and the file has 2"},
	{"a row that is too long", "a,b\n1,2\n3,4,5\n4,5\n", "the row has 3 columns, and the file has 2"},
	{"text after a quote", "a,b\n\"x\"y,1\nz,2\n", ""},
	{"a quote without end", "a,b\n\"x,1\nz,2\n", ""},
	{"not UTF-8", "a\n\xff\xfe\n", "the text is not UTF-8"}, // refused by DuckDB, too
}

// csvRows runs a query, and returns the columns and rows.
func csvRows(query string) (columns []string, rows [][]*string, err error) {
	var out collected
	p, err := SQL(query, Params{}).WriteTo(&out).Plan()
	if err != nil {
		return nil, nil, err
	}
	defer p.Close()
	for _, f := range p.Schema().Fields {
		columns = append(columns, f.Name+" "+f.Type.String())
	}
	_, err = p.Run(context.Background(), RunOptions{Use: Host})
	return columns, out.rows, err
}

// TestOddFilesOfCSVAreReadAsDuckDBReadsThem compares columns and rows with DuckDB, and has the list of the differences.
func TestOddFilesOfCSVAreReadAsDuckDBReadsThem(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	for _, c := range oddFiles {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.csv")
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o644))
			query := "FROM '" + path + "'"
			answers := duck.Ask(exprtest.Question{SQL: query},
				exprtest.Question{SQL: "SELECT column_name FROM (DESCRIBE " + query + ")"})
			var want []string
			for i, typ := range answers[0].Types {
				want = append(want, *answers[1].Rows[i][0]+" "+typ)
			}
			columns, rows, err := csvRows(query)
			if c.other != "" {
				if err != nil {
					require.ErrorContains(t, err, c.other)
				} else {
					require.Equal(t, c.other, strings.Join(columns, ", "))
					require.NotEqual(t, want, columns)
				}
				return
			}
			require.NoError(t, err)
			require.Empty(t, answers[0].Error)
			require.Equal(t, want, columns)
			require.Equal(t, len(answers[0].Rows), len(rows))
			for i, row := range answers[0].Rows {
				require.Equal(t, row, rows[i])
			}
		})
	}
}

// csvValues makes values of a type, as texts.
var csvValues = map[string]func(r *rand.Rand) string{
	"BIGINT": func(r *rand.Rand) string { return fmt.Sprint(r.Int64N(1<<r.IntN(62)) - int64(r.IntN(100))) },
	"DOUBLE": func(r *rand.Rand) string {
		return fmt.Sprint(r.NormFloat64() * []float64{1, 1e3, 1e-5, 1e20}[r.IntN(4)])
	},
	"BOOLEAN": func(r *rand.Rand) string { return []string{"true", "false"}[r.IntN(2)] },
	"DATE": func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02d", 1+r.IntN(9999), 1+r.IntN(12), 1+r.IntN(28))
	},
	"TIMESTAMP": func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02d %02d:%02d:%02d%s", 1900+r.IntN(200), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24),
			r.IntN(60), r.IntN(60), []string{"", ".5", ".123456"}[r.IntN(3)])
	},
	"TIME": func(r *rand.Rand) string { return fmt.Sprintf("%02d:%02d:%02d", r.IntN(24), r.IntN(60), r.IntN(60)) },
	"DECIMAL(9,2)": func(r *rand.Rand) string {
		return fmt.Sprintf("%d.%02d", r.IntN(1e6)-5e5, r.IntN(100))
	},
	"VARCHAR": func(r *rand.Rand) string {
		var b strings.Builder
		for range 1 + r.IntN(6) {
			b.WriteString([]string{"x", "word ", "ü", ",", "\n", "\"", "|", "'", "\r\n", "7"}[r.IntN(10)])
		}
		return "t" + b.String()
	},
}

// TestRandomFilesOfCSVGiveDuckDBsRows writes random values as CSV in several ways, and compares the types and rows with
// DuckDB's.
func TestRandomFilesOfCSVGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	first, cases := gputest.Seed(t), gputest.Cases(t, 40)
	kinds := []string{"BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "TIME", "DECIMAL(9,2)", "VARCHAR"}
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		delimiter, newline := []string{",", "|", ";", "\t"}[r.IntN(4)], []string{"\n", "\r\n"}[r.IntN(2)]
		dates := []string{"", "", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y%m%d"}[r.IntN(6)]
		var text strings.Builder
		var types []string
		given := ""
		for c := range 2 + r.IntN(6) {
			kind := kinds[r.IntN(len(kinds))]
			types = append(types, kind)
			if strings.HasPrefix(kind, "DECIMAL") {
				given += fmt.Sprintf(", 'c%d': '%s'", c, kind)
			}
			if c > 0 {
				text.WriteString(delimiter)
			}
			fmt.Fprintf(&text, "c%d", c)
		}
		text.WriteString(newline)
		if dates == "%Y%m%d" && slices.Contains(types, "BIGINT") {
			dates = "" // integers whose first one is such a date are VARCHAR for DuckDB
		}
		for range 30 + r.IntN(300) {
			for c, kind := range types {
				if c > 0 {
					text.WriteString(delimiter)
				}
				if r.IntN(8) == 0 {
					continue
				}
				v := csvValues[kind](r)
				if kind == "DATE" && dates != "" {
					v = strings.NewReplacer("%Y", v[:4], "%m", v[5:7], "%d", v[8:]).Replace(dates)
				}
				if strings.ContainsAny(v, "\"\r\n"+delimiter) || r.IntN(5) == 0 {
					v = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
				}
				text.WriteString(v)
			}
			text.WriteString(newline)
		}
		data, name := []byte(text.String()), "x.csv"
		if r.IntN(4) == 0 {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			_, err := w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			data, name = z.Bytes(), "x.csv.gz"
		}
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		options := fmt.Sprintf(", delim = '%s', quote = '\"', escape = '\"'", delimiter)
		if dates != "" {
			options += ", dateformat = '" + dates + "'"
		}
		if given != "" {
			options += ", types = {" + given[2:] + "}"
		}
		query := "FROM read_csv('" + path + "'" + options + ")"
		about := fmt.Sprintf("GSTREAM_SEED=%d\n%s\n%s", seed, query, text.String())
		answer := duck.Ask(exprtest.Question{SQL: query})[0]
		require.Empty(t, answer.Error, about)
		columns, rows, err := csvRows(query)
		require.NoError(t, err, about)
		for i, c := range columns {
			_, typ, _ := strings.Cut(c, " ")
			require.Equal(t, answer.Types[i], typ, about)
		}
		require.Equal(t, len(answer.Rows), len(rows), about)
		for i, row := range answer.Rows {
			require.Equal(t, row, rows[i], about)
		}
	}
}

// TestDuckDBReadsWhatIsWrittenAsText writes random values as CSV and as JSON lines, and compares what DuckDB reads with
// the values in Parquet.
func TestDuckDBReadsWhatIsWrittenAsText(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	dir := t.TempDir()
	from := filepath.Join(dir, "x.parquet")
	columns := "i BIGINT, u UTINYINT, d DECIMAL(12,3), w DECIMAL(30,2), f DOUBLE, r FLOAT, b BOOLEAN, day DATE, " +
		"at TIMESTAMP, clock TIME, s VARCHAR"
	duck.Run("COPY (SELECT CASE WHEN i % 7 <> 0 THEN (i - 500) * 1234567891234 END AS i, (i % 256)::UTINYINT AS u, " +
		"((i - 300) / 7)::DECIMAL(12,3) AS d, (i * 1e20)::DECIMAL(30,2) AS w, (i - 100) / 3e5 AS f, " +
		"(i / 7)::FLOAT AS r, i % 3 = 0 AS b, DATE '1969-01-01' + i::INTEGER * 3 AS day, " +
		"TIMESTAMP '1999-12-31 23:59:58.5' + to_milliseconds(i * 1001) AS at, " +
		"TIME '01:02:03' + to_seconds(i) AS clock, " +
		"CASE WHEN i % 5 <> 0 THEN " +
		"'a' || repeat(chr(32 + (i % 90)::INTEGER), (i % 4)::INTEGER) || chr(10) || 'ü\"' || i " +
		"END " +
		"AS s FROM range(3000) t(i)) TO '" + from + "' (FORMAT parquet)")
	var typed []string
	for _, c := range strings.Split(columns, ", ") {
		name, typ, _ := strings.Cut(c, " ")
		typed = append(typed, fmt.Sprintf("'%s': '%s'", name, typ))
	}
	want := duck.Ask(exprtest.Question{SQL: "FROM '" + from + "'"})[0]
	require.Len(t, want.Rows, 3000)
	for _, name := range []string{"x.csv", "y.csv.gz", "x.tsv", "x.jsonl", "x.jsonl.zst"} {
		path := filepath.Join(dir, name)
		b := SQL("COPY (FROM '"+from+"') TO '"+path+"'", Params{})
		_, err := b.Run(context.Background(), RunOptions{Use: Host})
		require.NoError(t, err)
		read := "read_csv"
		if strings.Contains(name, "json") {
			read = "read_json"
		}
		answer := duck.Ask(exprtest.Question{SQL: "FROM " + read + "('" + path + "', columns = {" +
			strings.Join(typed, ", ") + "})"})[0]
		require.Empty(t, answer.Error)
		require.Equal(t, want.Rows, answer.Rows, name)
		if read == "read_csv" {
			_, rows, err := csvRows("FROM read_csv('" + path + "', columns = {" + strings.Join(typed, ", ") + "})")
			require.NoError(t, err)
			require.Equal(t, want.Rows, rows)
		}
	}
}

// drawJSON draws a value of a kind: a type, a list of a kind, or a map of names to kinds. Keys of objects may be
// missing.
func drawJSON(t *testing.T, r *rand.Rand, kind any, complete bool) string {
	var parts []string
	switch kind := kind.(type) {
	case []any:
		for range r.IntN(4) {
			parts = append(parts, drawJSON(t, r, kind[0], complete))
		}
		if complete {
			parts = append(parts, drawJSON(t, r, kind[0], true))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(kind)) {
			if complete || r.IntN(8) > 0 {
				parts = append(parts, fmt.Sprintf("%q : %s", name, drawJSON(t, r, kind[name], complete)))
			}
		}
		if !complete {
			r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	v := csvValues[kind.(string)](r)
	switch {
	case !complete && r.IntN(8) == 0:
		return "null"
	case kind == "DOUBLE" && !strings.ContainsAny(v, ".e"):
		v += ".5"
	case kind == "TIMESTAMP": // with a fraction in some, DuckDB takes them for texts
		v, _, _ = strings.Cut(v, ".")
		return `"` + v + `"`
	case kind == "DATE" || kind == "VARCHAR":
		quoted, err := json.Marshal(v)
		require.NoError(t, err)
		return string(quoted)
	}
	return v
}

// TestRandomLinesOfJSONGiveDuckDBsRows writes random objects, some of whose keys are missing or null, with objects and
// lists in them.
func TestRandomLinesOfJSONGiveDuckDBsRows(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	first, cases := gputest.Seed(t), gputest.Cases(t, 20)
	kinds := []string{"BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR"}
	for seed := first; seed < first+uint64(cases); seed++ {
		r := rand.New(rand.NewPCG(seed, 8))
		var text strings.Builder
		var kind func(depth int) any
		kind = func(depth int) any {
			switch r.IntN(4 + 4*depth) {
			case 0:
				return []any{kind(depth + 1)}
			case 1:
				object := map[string]any{}
				for i := range 1 + r.IntN(4) {
					object[fmt.Sprint("k", i)] = kind(depth + 1)
				}
				return object
			}
			return kinds[r.IntN(len(kinds))]
		}
		top := map[string]any{}
		for c := range 1 + r.IntN(6) {
			top[fmt.Sprint("c", c)] = kind(0)
		}
		list := r.IntN(3) == 0
		for line := range 30 + r.IntN(300) {
			object := drawJSON(t, r, top, line == 0)
			switch {
			case list && line == 0:
				text.WriteString("[")
			case list:
				text.WriteString(" ,\n")
			}
			text.WriteString(object)
			if !list {
				text.WriteString("\n")
			}
		}
		if list {
			text.WriteString("\n]\n")
		}
		path := filepath.Join(t.TempDir(), "x.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		query := "FROM '" + path + "'"
		about := fmt.Sprintf("GSTREAM_SEED=%d\n%s", seed, text.String())
		answer := duck.Ask(exprtest.Question{SQL: query})[0]
		require.Empty(t, answer.Error, about)
		columns, _, err := csvRows(query)
		require.NoError(t, err, about)
		for i, c := range columns {
			// BIGINT has the values of the others, too.
			want := strings.NewReplacer("HUGEINT", "BIGINT", "UBIGINT", "BIGINT").Replace(answer.Types[i])
			require.Equal(t, fmt.Sprintf("c%d %s", i, want), c, about)
		}
		out := filepath.Join(t.TempDir(), "x.parquet")
		_, err = SQL(query, nil).Write(out, sinkparquet.Options{}).Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err, about)
		requireRowsOf(t, duck, query, out, about)
	}
}

// severalFiles are questions about files whose folders, columns and formats differ.
var severalFiles = []struct {
	name  string
	files map[string]string
	query string // in the folder of the files
}{
	{"folders", map[string]string{"y=1/m=a/x.csv": "a,b\n1,x\n", "y=2/m=b/x.csv": "a,b\n2,y\n"},
		"SELECT a, b, y, m FROM '*/*/x.csv' ORDER BY a"},
	{"folders of dates and nulls", map[string]string{"d=2020-01-02/x.csv": "a\n1\n",
		"d=__HIVE_DEFAULT_PARTITION__/x.csv": "a\n2\n"}, "FROM '*/x.csv' ORDER BY a"},
	{"folders that are none", map[string]string{"y=1/x.csv": "a\n1\n"},
		"FROM read_csv('*/x.csv', hive_partitioning = false)"},
	{"a folder in place of a column", map[string]string{"b=7/x.csv": "a,b,c\n1,2,3\n", "b=8/x.csv": "a,b,c\n4,5,6\n"},
		"FROM '*/x.csv' ORDER BY a"},
	{"one file in a folder", map[string]string{"k=v%20w/x.csv": "a\n1\n"}, "SELECT a, k FROM 'k=v%20w/x.csv'"},
	{"only the folder is read", map[string]string{"k=3/x.csv": "a\n1\n2\n", "k=4/x.csv": "a\n1\n"},
		"SELECT k, count(*) FROM '*/x.csv' GROUP BY k ORDER BY k"},
	{"folders of JSON", map[string]string{"y=1/x.json": "{\"a\":1}\n", "y=2/x.json": "{\"a\":2}\n"},
		"FROM '*/x.json' ORDER BY a"},
	{"other columns", map[string]string{"1.csv": "a,b\n1,x\n", "2.csv": "c,a\n2020-01-01,7\n", "3.csv": "b\ny\n"},
		"FROM read_csv('*.csv', union_by_name = true) ORDER BY a, b"},
	{"other types", map[string]string{"1.csv": "a,b,c,d\n1,1,2020-01-01,true\n",
		"2.csv": "a,b,c,d\n2.5,x,2020-01-01 10:00:00,false\n"},
		"FROM read_csv('*.csv', union_by_name = true) ORDER BY a"},
	{"other delimiters", map[string]string{"1.csv": "a,b\n1,x\n", "2.csv": "b;a\ny;7\n"},
		"FROM read_csv('*.csv', union_by_name = true) ORDER BY a"},
	{"other cases", map[string]string{"1.csv": "a,b\n1,2\n", "2.csv": "B,A\n3,4\n"},
		"FROM read_csv('*.csv', union_by_name = true) ORDER BY 1"},
	{"other columns and folders", map[string]string{"y=1/x.csv": "a\n1\n", "y=2/x.csv": "b\n5\n"},
		"FROM read_csv('*/x.csv', union_by_name = true) ORDER BY y"},
	{"given types", map[string]string{"1.csv": "a\n1\n", "2.csv": "b\n5\n"},
		"FROM read_csv('*.csv', union_by_name = true, types = {'b': 'VARCHAR'}) ORDER BY a"},
	{"other keys", map[string]string{"1.json": "{\"a\":1}\n", "2.json": "[{\"b\":{\"c\":2}},{\"a\":2.5}]"},
		"FROM read_json('*.json', union_by_name = true) ORDER BY a, b"},
	{"short rows", map[string]string{"x.csv": "a,b,c\n1\n2,3\n4,5,6\n"}, "FROM read_csv('x.csv', null_padding = true)"},
	{"short rows without a header", map[string]string{"x.csv": "1\n2,3\n4,5,6\n"},
		"FROM read_csv('x.csv', null_padding = true, delim = ',', header = false)"},
	{"short rows of texts", map[string]string{"x.csv": "a,b\n\"x,y\"\nz,\nw,v\n"},
		"FROM read_csv('x.csv', null_padding = true, nullstr = 'z')"},
	{"short rows and an empty line", map[string]string{"x.csv": "a,b\n1,2\n\n3\n"},
		"FROM read_csv('x.csv', null_padding = true)"},
	{"a list of objects", map[string]string{"x.json": "[{\"a\":1,\n\"b\":\"]\\\"\"},\n\n{\"a\":2}]"}, "FROM 'x.json'"},
	{"an object over lines", map[string]string{"x.json": "{\n\"a\":\n1\n}\n{\"a\":2}{\n\"a\":3}"}, "FROM 'x.json'"},
	{"a list over lines", map[string]string{"x.json": "[\n  {\n    \"a\": [1,\n2]\n  }\n]\n"},
		"FROM read_json('x.json', format = 'array')"},
	{"unstructured on lines", map[string]string{"x.json": "{\"a\":1} {\"a\":2}\n{\"a\":3}\n"},
		"FROM read_json('x.json', format = 'unstructured')"},
}

func TestSeveralFilesAreReadAsDuckDBReadsThem(t *testing.T) {
	duck := exprtest.StartDuckDB(t)
	for _, c := range severalFiles {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(dir, filepath.FromSlash(name))
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
			}
			query := regexp.MustCompile(`'([^']*\.(csv|json))'`).ReplaceAllString(c.query, "'"+dir+"/$1'")
			answers := duck.Ask(exprtest.Question{SQL: query},
				exprtest.Question{SQL: "SELECT column_name FROM (DESCRIBE " + query + ")"})
			require.Empty(t, answers[0].Error)
			var want []string
			for i, typ := range answers[0].Types {
				want = append(want, *answers[1].Rows[i][0]+" "+typ)
			}
			columns, rows, err := csvRows(query)
			require.NoError(t, err)
			require.Equal(t, want, columns)
			require.Equal(t, answers[0].Rows, rows)
		})
	}
}
