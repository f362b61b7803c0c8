package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/expr/exprtest"
)

const sqlData = "../examples/quickstart/data/"

// sqlRows runs an SQL text on the CPU and returns its rows as JSON.
func sqlRows(t *testing.T, text string, p Params) string {
	t.Helper()
	var c Collector
	_, err := SQL(text, p).WriteTo(&c).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err, text)
	out := ""
	for _, r := range c.Records() {
		json, err := r.MarshalJSON()
		require.NoError(t, err)
		out += string(json)
	}
	return out
}

func TestAnSQLTextHasDefinitionsSettingsAndAQuery(t *testing.T) {
	got := sqlRows(t, `
		SET threads = 1; SET memory_limit = '1GiB';
		CREATE VIEW n AS SELECT n_name AS name, n_regionkey AS r FROM '`+sqlData+`nation.parquet';
		CREATE TEMP TABLE few AS FROM n WHERE name < 'C' -- two of them
		; SELECT count(*) AS n, min(name) AS least FROM few`, nil)
	require.Equal(t, `[{"least":"ALGERIA","n":3}`+"\n]", got)
}

func TestParametersAreValues(t *testing.T) {
	day := time.Date(2026, 1, 31, 12, 0, 0, 0, time.FixedZone("", 3600))
	for text, c := range map[string]struct {
		p    Params
		want string
	}{
		"SELECT $1 AS a, ? AS b":                                   {},
		"SELECT ? AS a, ? AS b":                                    {Params{"1": 1, "2": "it's"}, `[{"a":1,"b":"it's"}` + "\n]"},
		"SELECT $2 AS a, $1 AS b":                                  {Params{"1": true, "$2": nil}, `[{"a":null,"b":true}` + "\n]"},
		"SELECT $Day::DATE AS d":                                   {Params{"day": "2026-01-31"}, `[{"d":"2026-01-31"}` + "\n]"},
		"SELECT $t AS d":                                           {Params{"t": day}, `[{"d":"2026-01-31 11:00:00Z"}` + "\n]"},
		"SELECT 5 - $1 AS d, $10 AS e":                             {Params{"1": -7, "10": uint8(3)}, `[{"d":12,"e":3}` + "\n]"},
		"SELECT typeof($1) AS d":                                   {Params{"1": 1.5}, `[{"d":"DOUBLE"}` + "\n]"},
		"SELECT typeof($1) AS d, $1 AS x":                          {Params{"1": float32(0.1)}, `[{"d":"FLOAT","x":0.1}` + "\n]"},
		"SELECT a FROM (VALUES (1), (2)) v(a) LIMIT ?":             {Params{"1": 1}, `[{"a":1}` + "\n]"},
		"SELECT a FROM (VALUES (1), (2)) v(a) ORDER BY $1, a desc": {Params{"1": 1}, `[{"a":2}` + "\n" + `,{"a":1}` + "\n]"},
		"SELECT count(*) AS n FROM read_parquet($f)":               {Params{"f": sqlData + "nation.parquet"}, `[{"n":25}` + "\n]"},
	} {
		if c.p == nil {
			_, err := SQL(text, Params{"1": 1, "2": 2}).Plan()
			require.Error(t, err, text)
			continue
		}
		require.Equal(t, c.want, sqlRows(t, text, c.p), text)
	}
}

func TestMistakesInSQLHaveTheirPlace(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT 1 AS a;\nSELECT 2": "line 2, column 1: there is a statement after the query",
		"SELECT $x": "line 1, column 8: the parameter $x has no value; give it one: Params: " +
			"x=VALUE\n    SELECT $x\n           ^",
		"CREATE VIEW a AS SELECT 1 AS x":                               "column 31: there is no query at the end",
		"CREATE VIEW a AS SELECT 1 AS x;\n FROM a\nWHERE y = 1":        "line 3, column 7: there is no column \"y\"",
		"CREATE VIEW a AS SELECT y;\n FROM a":                          "line 1, column 25: there is no column \"y\"",
		"CREATE VIEW a AS SELECT 1; CREATE VIEW A AS SELECT 1; FROM a": `line 1, column 28: there is a table "A" already`,
		"SET thread = 1; SELECT 1":                                     `column 1: SET thread: there is no such setting (did you mean "threads"?)`,
		"SET memory_limit = '80%'; SELECT 1":                           "SET memory_limit:",
		"SET threads = 0; SELECT 1":                                    "is no number of CPU cores",
		"EXPLAIN SELECT 1":                                             "EXPLAIN prints a plan",
		"SELEC 1": "line 1, column 1: found \"SELEC\", expected " +
			"a statement",
		"COPY (SELECT 1) TO 'x.orc'": "COPY writes Parquet, CSV, JSON lines and Arrow, and x.orc has the name " +
			"of another format",
		"COPY (SELECT 1) TO 'x' (FORMAT avro)":             "FORMAT must be parquet, csv, json or arrow",
		"COPY (SELECT 1) TO 'x.csv' (COMPRESSION zstd)":    "COPY of CSV has no option COMPRESSION; it has",
		"COPY (SELECT 1) TO 'x.csv' (HEADER maybe)":        "HEADER must be true or false",
		"COPY (SELECT 1) TO 'x.csv' (DELIM 'ab')":          "it must be one ASCII character",
		"COPY (SELECT 1) TO 'x.jsonl' (DELIMITER '|')":     "COPY of JSON lines has no option DELIMITER",
		"FROM read_csv('x.csv', store_rejects = true)":     "read_csv has no option store_rejects: REJECTS = 'FILE'",
		"FROM read_csv('x.csv', null_padding = 7)":         "null_padding must be true or false",
		"FROM read_csv('x.csv', format = 'array')":         "read_csv has no option format",
		"FROM read_json('x.json', null_padding = true)":    "read_json has no option null_padding",
		"COPY (SELECT 1) TO 'x/' (FORMAT csv)":             "an output of CSV is one file",
		"FROM read_csv('x.csv', delimeter = ';')":          `read_csv has no option delimeter (did you mean "delimiter"?)`,
		"FROM read_csv('x.csv', types = 'a')":              "types takes names and types, as in types = {'day'",
		"FROM read_csv('x.csv', header = 7)":               "header must be true or false",
		"FROM read_csv('x.csv', skip = 'a')":               "skip must be a whole number",
		"FROM read_csv('x.csv', dateformat = '%Q')":        "dateformat: there is no %Q",
		"FROM read_csv('x.csv', all_varchar = 7)":          "all_varchar must be true or false",
		"FROM read_csv('x.csv', nullstr = [1])":            "nullstr takes texts in quotes",
		"FROM read_csv('x.csv', delim = ';', sep = ',')":   "sep is given twice",
		"FROM read_csv('x.csv', delim = 7)":                "delim takes a text in quotes",
		"FROM read_csv('x.csv', columns = {'a': 'WRONG'})": `unknown type "WRONG"`,
		"COPY (SELECT 1) TO 'x' (FILES many)":              "FILES is many; it must be a whole number",
		"COPY (SELECT 1) TO 'x' (COMPRESSION zst)": "must be one of snappy, zstd, gzip, brotli, " +
			"lz4_raw, lz4, none (did you mean \"zstd\"?)",
		"COPY (SELECT 1) TO 'x/' (APPEND, OVERWRITE)": "append and overwrite exclude each other",
		"COPY (SELECT 1) TO 'x' (PARTITION_BI a)":     `COPY has no option PARTITION_BI (did you mean "partition_by"?)`,
		"FROM 'nowhere.parquet'": "line 1, column 6: nowhere.parquet: stat nowhere.parquet: no such " +
			"file",
	} {
		_, err := SQL(text, nil).Plan()
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "sql 1", text)
		class := ErrJob
		if text == "FROM 'nowhere.parquet'" {
			class = ErrFile
		}
		require.ErrorIs(t, err, class, text)
	}
	_, err := SQL("SELECT 1", Params{"day": 1}).Plan()
	require.ErrorContains(t, err, "the text has no parameter $day")
	_, err = SQL("SELECT $day", Params{"day": struct{}{}}).Plan()
	require.ErrorContains(t, err, "the parameter $day is a struct {}; it can be nil, a bool")
}

func TestCopyWritesWithItsOptions(t *testing.T) {
	dir := t.TempDir()
	one, many := filepath.Join(dir, "one.parquet"), filepath.Join(dir, "many")
	copies := `COPY (SELECT n_name, n_regionkey FROM '` + sqlData + `nation.parquet') TO `
	report, err := SQL(copies+"'"+one+"' (FORMAT parquet, COMPRESSION 'zstd', COMPRESSION_LEVEL 3, ROW_GROUP_SIZE 10)",
		nil).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.EqualValues(t, 25, report.Output.Rows)
	_, err = SQL(copies+"'"+one+"'", nil).Run(t.Context(), RunOptions{Use: Host})
	require.ErrorIs(t, err, ErrOutput)
	_, err = SQL(copies+"'"+one+"' (OVERWRITE)", nil).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	_, err = SQL(copies+"'"+many+"/' (PARTITION_BY (n_regionkey), OVERWRITE true)", nil).Run(t.Context(),
		RunOptions{Use: Host})
	require.NoError(t, err)
	_, err = os.Stat(filepath.Join(many, "n_regionkey=3", "part-00000.parquet"))
	require.NoError(t, err)
	require.Equal(t, `[{"n":5}`+"\n]", sqlRows(t, "SELECT count(*) AS n FROM '"+many+"/*/*.parquet' WHERE n_regionkey = 3",
		nil))
}

// TestGlobListsFiles in the order of their names. A pattern without files has no rows.
func TestGlobListsFiles(t *testing.T) {
	require.Equal(t, `[{"file":"`+sqlData+`nation.parquet"}`+"\n"+`,{"file":"`+sqlData+`region.parquet"}`+"\n]",
		sqlRows(t, "FROM glob(['"+sqlData+"*ation.parquet', '"+sqlData+"region.parquet'])", nil))
	require.Equal(t, `[{"n":0}`+"\n]", sqlRows(t, "SELECT count(*) AS n FROM glob('"+sqlData+"none/*.parquet')", nil))
	for _, query := range []string{"FROM glob(1)", "FROM glob()", "FROM glob('[')"} {
		_, err := SQL(query, nil).Plan()
		require.ErrorIs(t, err, ErrJob, query)
	}
}

func TestFilesInAListAreOneTable(t *testing.T) {
	require.Equal(t, `[{"n":50}`+"\n]", sqlRows(t, "SELECT count(*) AS n FROM read_parquet(['"+sqlData+
		"nation.parquet', '"+sqlData+"nation.parquet'])", nil))
	require.Equal(t, `[{"n":50}`+"\n]", sqlRows(t, "SELECT count(*) AS n FROM read_parquet('"+sqlData+"nation.parquet', '"+
		sqlData+"nation.parquet')", nil))
	_, err := SQL("FROM read_parquet([1])", nil).Plan()
	require.ErrorContains(t, err, "read_parquet takes paths in quotes")
}

func TestDescribeAndSummarizeAreQueries(t *testing.T) {
	require.Equal(t, `[{"column_name":"a","column_type":"INTEGER","null":"NO"}`+"\n"+
		`,{"column_name":"b","column_type":"VARCHAR","null":"NO"}`+"\n]", sqlRows(t, "DESCRIBE SELECT 1 AS a, 'x' AS b", nil))
	row := func(name, typ, least, most, average, deviation, low, high, missing string) string {
		return fmt.Sprintf(`{"approx_unique":%s,"avg":%s,"column_name":"%s","column_type":"%s","count":2,"max":"%s",`+
			`"min":"%s","null_percentage":"%s","q25":%s,"q50":%s,"q75":%s,"std":%s}`+"\n", map[bool]string{true: "2",
			false: "1"}[missing == "0"], average, name, typ, most, least, missing, low, low, high, deviation)
	}
	require.Equal(t, "["+row("a", "INTEGER", "1", "3", `"2.0"`, `"1.4142135623730951"`, `"1"`, `"3"`, "0")+
		","+row("b", "VARCHAR", "x", "x", "null", "null", "null", "null", "50")+
		","+row("c", "DATE", "2026-01-31", "2026-02-01", "null", "null", `"2026-01-31"`, `"2026-02-01"`, "0")+
		","+row("d", "DECIMAL(2,1)", "1.5", "2.5", `"2.0"`, `"0.7071067811865476"`, `"1.5"`, `"2.5"`, "0")+"]",
		sqlRows(t, "SUMMARIZE SELECT * FROM (VALUES (1, 'x', DATE '2026-01-31', 1.5), "+
			"(3, NULL, DATE '2026-02-01', 2.5)) v(a, b, c, d)", nil))
}

// TestASummaryHasDuckDBsValues compares what is not an estimate in either.
func TestASummaryHasDuckDBsValues(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	duck := exprtest.StartDuckDB(t)
	for _, path := range sqlTables(duck, t.TempDir()) {
		columns := []string{"column_name", "column_type", "min", "max", "count", "null_percentage"}
		summary := "SUMMARIZE '" + path + "'"
		answer := duck.Ask(exprtest.Question{SQL: "SELECT " + strings.Join(columns, ", ") + " FROM (" + summary +
			")"})[0]
		require.Empty(t, answer.Error)
		require.NotEmpty(t, answer.Rows)
		var out collected
		_, err := SQL(summary, nil).Select(columns...).WriteTo(&out).Run(t.Context(), RunOptions{Use: Host})
		require.NoError(t, err)
		sameRows(t, summary, answer.Rows, &out)
	}
}

func TestStepsFollowSQL(t *testing.T) {
	var c Collector
	_, err := SQL("SELECT n_regionkey AS r, count(*) AS n FROM nation GROUP BY ALL", nil).
		Read("nation", sqlData+"nation.parquet").Filter("r > 2").Sort("r desc").WriteTo(&c).
		Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	json, err := c.Records()[0].MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, `[{"n":5,"r":4}`+"\n"+`,{"n":5,"r":3}`+"\n]", string(json))
}

func TestAJobCanBeAQuery(t *testing.T) {
	dir := t.TempDir()
	data, err := filepath.Abs(sqlData)
	require.NoError(t, err)
	run := func(vars, rest, query string, set map[string]string) (string, error) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "q.sql"), []byte(query), 0o644))
		file := filepath.Join(dir, "job.yaml")
		require.NoError(t, os.WriteFile(file, []byte("vars: {"+vars+"}\nsources: {nation: "+data+"/nation.parquet}\n"+
			"query: q.sql\noutput: {parquet: out.parquet}\n"+rest), 0o644))
		j, err := Load(file, LoadOptions{Set: set, LookupEnv: func(string) (string, bool) { return "secret", true }})
		if err == nil {
			err = Lint(j, LintOptions{})
		}
		if err != nil {
			return "", err
		}
		var c Collector
		if _, err := FromJob(j).WriteTo(&c).Run(t.Context(), RunOptions{Use: Host}); err != nil {
			return "", err
		}
		json, err := c.Records()[0].MarshalJSON()
		return string(json), err
	}
	got, err := run("Least: 2, name: x", "", "CREATE VIEW v AS SELECT n_regionkey AS r FROM nation;\n"+
		"SELECT r, count(*) AS n, $name AS name FROM v WHERE r >= $least GROUP BY r ORDER BY r LIMIT 1",
		map[string]string{"name": "it's"})
	require.NoError(t, err)
	require.Equal(t, `[{"n":5,"name":"it's","r":2}`+"\n]", got)
	for _, c := range []struct{ vars, rest, query, want string }{
		{"", "", "SELECT n_nam\nFROM nation", "q.sql:1:8: there is no column \"n_nam\"; did you mean \"n_name\"?\n   " +
			" SELECT n_nam\n           ^"},
		{"", "", "SELECT 1 +", "q.sql:1:11: "},
		{"", "", "SELECT 1\nFROM 'ftp://x/y.parquet'", "q.sql:2:6: ftp://x/y.parquet: addresses that begin with"},
		{"dya: 1", "", "SELECT $day", `q.sql has the parameter $day, and the job has no variable of ` +
			`this name (did you mean "dya"?)`},
		{"day: {default: 1, type: sql}", "", "SELECT $day", "is of type sql, and a parameter is a value"},
		{"day: {default: x, type: number}", "", "SELECT $day", `day is "x", which is no number`},
		{"token: '${env:TOKEN}'", "", "SELECT $token::INTEGER", `***`},
		{"", "steps: [{limit: 1}]", "SELECT 1", "job.yaml:3:8: the job has steps and a query"},
		{"", "", " \n", "q.sql is empty"},
		{"", "", "COPY (SELECT 1) TO 'x'", "COPY is not possible in a job, whose rows go to its output"},
		{"", "", "SET threads = 1; SELECT 1", "not possible"},
	} {
		_, err := run(c.vars, c.rest, c.query, nil)
		require.ErrorContains(t, err, c.want, c.query)
		require.ErrorIs(t, err, ErrJob, c.query)
		require.NotContains(t, err.Error(), "secret")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "q.d"), 0o755))
	_, err = Parse(filepath.Join(dir, "job.yaml"), []byte("query: q.d\noutput: {parquet: x}\n"), LoadOptions{})
	require.ErrorContains(t, err, "is not a file with a text")
	_, err = Parse(filepath.Join(dir, "job.yaml"), []byte("query: nowhere.sql\noutput: {parquet: x}\n"), LoadOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzSQLTexts makes jobs of the statements of any text. The text of a job, with blanks for other statements, parses
// again.
func FuzzSQLTexts(f *testing.F) {
	for _, text := range []string{"SELECT $a;COPY(FROM t)TO'x'(PARTITION_BY(a),FILES 2)",
		"CREATE VIEW é AS FROM t;\nEXPLAIN FROM é",
		"SET threads=1;SUMMARIZE t;DESCRIBE t", "create macro m(x) as x+?;select m(1)",
		"EXPLAIN ANALYZE COPY t TO 'x/'", "-- é\n;;SELECT 1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := &Session{Dir: "d"}
		list, err := s.Parse("", text, nil)
		if err != nil {
			return
		}
		for _, st := range list {
			j, err := st.Job()
			if err == nil && j != nil {
				_, err = j.Values().ParseStatements(j.Steps[0].SQL)
				require.NoError(t, err, "%q", j.Steps[0].SQL)
			}
			_ = st.apply()
		}
	})
}

// TestConditionsOfLateralJoinsHaveSubqueries compares them with conditions inside the lateral query. DuckDB has none.
func TestConditionsOfLateralJoinsHaveSubqueries(t *testing.T) {
	const of = "FROM range(40) t(a) "
	for _, c := range [][2]string{
		{"y > t.a % 7", "y = (SELECT max(k) FROM range(9) r(k) WHERE k < a %% 5 + 3 AND k <> %s)"},
		{"y <> t.a % 3", "y IN (SELECT k FROM range(9) r(k) WHERE k %% 4 = a %% 4 OR k = %s)"},
	} {
		inner := "(SELECT y FROM range(5) u(y) WHERE " + c[0] + ")"
		for _, outer := range []string{"2", "v"} {
			on := fmt.Sprintf(c[1], outer)
			same := func(inside, above string) {
				if outer == "v" { // a subquery of the rows v
					inside = "SELECT v, (" + inside + ") AS n FROM range(6) w(v) ORDER BY v"
					above = "SELECT v, (" + above + ") AS n FROM range(6) w(v) ORDER BY v"
				}
				require.Equal(t, sqlRows(t, inside, nil), sqlRows(t, above, nil), above)
			}
			sum := "SELECT sum(a * 10 + coalesce(y, 7)) AS n " + of
			same(sum+"JOIN LATERAL (FROM "+inner+" WHERE "+on+") ON true", sum+"JOIN LATERAL "+inner+" ON "+on)
			same(sum+"LEFT JOIN LATERAL (FROM "+inner+" WHERE "+on+") ON true",
				sum+"LEFT JOIN LATERAL "+inner+" ON "+on)
			sum = "SELECT sum(a) AS n " + of
			same(sum+"WHERE EXISTS (FROM "+inner+" WHERE "+on+")", sum+"SEMI JOIN LATERAL "+inner+" ON "+on)
			same(sum+"WHERE NOT EXISTS (FROM "+inner+" WHERE "+on+")", sum+"ANTI JOIN LATERAL "+inner+" ON "+on)
		}
	}
}
