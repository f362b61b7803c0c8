package pipeline

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/operators/expr/exprtest"
)

// sqlLogic runs sqllogictests: DuckDB executes their statements, and answers their queries, which gstream runs over the
// same tables as Parquet files.
type sqlLogic struct {
	t    *testing.T
	duck *exprtest.DuckDB
	dir  string

	file     string
	collates bool              // a table of the file has a collation, which files do not keep
	tables   map[string]string // Parquet files by the names of tables; "" is one that could not be exported
	views    []sqlLogicView
	macros   []string
	exports  int
	dirty    bool // the tables may have changed
	deadline time.Time

	folder  *sqlLogicCounts
	folders map[string]*sqlLogicCounts
	reasons map[string]map[string]int // by outcome
	first   map[string]string         // example of a reason
}

type sqlLogicView struct{ name, sql string }

// sqlLogicCounts are the outcomes of the queries of a folder.
type sqlLogicCounts struct {
	files, queries int
	of             map[string]int
}

// outcomes of a query.
const (
	logicEqual   = "equal"
	logicDiffers = "differs"
	logicType    = "type differs"
	logicRefused = "refused"
	logicError   = "error"
	logicSkipped = "skipped"
)

// TestSQLLogic runs the sqllogictests below the folder that GSTREAM_SQLLOGIC names, such as test/sql of DuckDB's
// repository, and prints how many queries have DuckDB's rows, differ, fail, or are refused, by reason.
//
//	GSTREAM_PYTHON=… GSTREAM_SQLLOGIC=duckdb/test/sql/subquery go test ./pipeline -run SQLLogic -v
func TestSQLLogic(t *testing.T) {
	root := os.Getenv("GSTREAM_SQLLOGIC")
	if root == "" {
		t.Skip("GSTREAM_SQLLOGIC does not name a folder of sqllogictests")
	}
	l := &sqlLogic{t: t, duck: exprtest.StartDuckDB(t), dir: t.TempDir(), folders: map[string]*sqlLogicCounts{},
		reasons: map[string]map[string]int{}, first: map[string]string{}}
	require.NoError(t, filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".test" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		folder, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		if l.folder = l.folders[folder]; l.folder == nil {
			l.folder = &sqlLogicCounts{of: map[string]int{}}
			l.folders[folder] = l.folder
		}
		l.runFile(name, string(text))
		return nil
	}))
	l.print()
}

// runFile runs a test.
func (l *sqlLogic) runFile(name, text string) {
	l.file, l.folder.files, l.collates = name, l.folder.files+1, false
	l.tables, l.views, l.macros, l.dirty = map[string]string{}, nil, nil, true
	l.deadline = time.Now().Add(time.Minute)
	l.duck.Reset()
	text = strings.NewReplacer("\r\n", "\n", "__TEST_DIR__", l.dir, "{TEST_DIR}", l.dir, "{TEMP_DIR}",
		l.dir).Replace(text)
	l.block(strings.Split(text, "\n"))
	for _, path := range l.tables {
		if path != "" {
			require.NoError(l.t, os.Remove(path))
		}
	}
}

// supported are conditions of tests that hold; all others skip the rest of the file.
var supported = []string{"parquet", "json", "icu", "vector_size", "64bit", "skip_reload", "strinline", "noforcestorage",
	"no_force_storage", "no_alternative_verify", "notwindows", "notmingw", "longdouble", "noalternativeverify",
	"core_functions"}

// sets are the lists of types that loops name.
var sets = map[string]string{"<signed>": "tinyint smallint integer bigint hugeint",
	"<unsigned>": "utinyint usmallint uinteger ubigint uhugeint",
	"<integral>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint",
	"<numeric>":  "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint float double",
}

// block runs the records of a test. It is false at the end of the test.
func (l *sqlLogic) block(lines []string) bool {
	skipping, skipNext := false, false
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "mode":
			skipping = words[1] == "skip" || skipping && words[1] != "unskip"
		case "halt":
			return false
		case "require":
			if !slices.Contains(supported, words[1]) {
				return false
			}
		case "require-env", "load", "restart", "include":
			return false
		case "skipif":
			skipNext = words[1] == "duckdb"
			continue
		case "onlyif":
			skipNext = words[1] != "duckdb"
			continue
		case "loop", "foreach", "concurrentloop", "concurrentforeach":
			body, end := loopBody(lines[i+1:])
			for _, v := range loopValues(words) {
				var replaced []string
				for _, line := range body {
					for k, name := range strings.Split(words[1], ",") {
						if parts := strings.Split(v, ","); k < len(parts) {
							line = strings.ReplaceAll(strings.ReplaceAll(line, "${"+name+"}", parts[k]), "{"+name+"}",
								parts[k])
						}
					}
					replaced = append(replaced, line)
				}
				if !skipping && !l.block(replaced) {
					return false
				}
			}
			i += end + 1
		case "statement", "query":
			sql, end := recordSQL(lines[i+1:])
			i += end
			if !skipping && !skipNext {
				l.record(words, sql)
			}
			skipNext = false
		}
		if time.Now().After(l.deadline) {
			return false
		}
	}
	return true
}

// loopBody returns the lines up to the end of a loop.
func loopBody(lines []string) (body []string, end int) {
	depth := 0
	for i, line := range lines {
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case words[0] == "endloop" && depth == 0:
			return lines[:i], i
		case words[0] == "endloop":
			depth--
		case slices.Contains([]string{"loop", "foreach", "concurrentloop", "concurrentforeach"}, words[0]):
			depth++
		}
	}
	return lines, len(lines)
}

// loopValues returns the values of the variable of a loop.
func loopValues(words []string) (values []string) {
	if strings.HasSuffix(words[0], "loop") {
		var from, to int
		_, _ = fmt.Sscan(words[2], &from)
		_, _ = fmt.Sscan(words[3], &to)
		for ; from < to && len(values) < 100; from++ {
			values = append(values, fmt.Sprint(from))
		}
		return values
	}
	for _, w := range words[2:] {
		switch list, ok := sets[w]; {
		case ok:
			values = append(values, strings.Fields(list)...)
		case strings.HasPrefix(w, "!"):
			values = slices.DeleteFunc(values, func(v string) bool { return v == w[1:] })
		default:
			values = append(values, w)
		}
	}
	return values
}

// recordSQL returns the SQL of a record, and the number of its lines with the result.
func recordSQL(lines []string) (sql string, end int) {
	var text []string
	result := false
	for end < len(lines) && strings.TrimSpace(lines[end]) != "" {
		if result = result || lines[end] == "----"; !result {
			text = append(text, lines[end])
		}
		end++
	}
	return strings.TrimRight(strings.TrimSpace(strings.Join(text, "\n")), "; \n"), end
}

var (
	queryStart  = regexp.MustCompile(`(?i)^(\(*\s*select|with|from|values|\(*values|table|pivot|unpivot)\b`)
	settingText = regexp.MustCompile(`(?i)^(set|pragma|reset)\b`)
	changes     = regexp.MustCompile(`(?i)\b(insert|update|delete|merge)\s+`)
	collation   = regexp.MustCompile(`(?i)\bcollate\b`)
	macroText   = regexp.MustCompile(`(?i)^create\s+(or\s+replace\s+)?(temp(orary)?\s+)?(macro|function)\b`)
	wordText    = regexp.MustCompile(`[\w.]+|"[^"]*"`)
	volatile    = regexp.MustCompile(`(?i)\b(random|uuid|gen_random_uuid|now|current_timestamp|nextval|setseed|` +
		`using\s+sample|tablesample|rowid|duckdb_\w+|pragma_\w+|information_schema|pg_\w+|sqlite_master|current_\w+|` +
		`get_current_time\w*|today|txid_current|stats|version|read_csv\w*|read_text|read_blob|glob|test_all_types|` +
		`repeat_row|approx_\w+|checkpoint|force_checkpoint|seq_scan|summary|unbin|parse_\w+|getenv|getvariable|sniff_csv)\b`)
)

// record executes a statement in DuckDB, or compares a query.
func (l *sqlLogic) record(words []string, sql string) {
	switch {
	case settingText.MatchString(sql): // both sides have their defaults
	case words[0] == "query" && queryStart.MatchString(sql) && !changes.MatchString(sql):
		l.query(sql)
	case words[0] == "statement" && len(words) > 1 && words[1] == "error":
	default:
		l.collates = l.collates || collation.MatchString(sql)
		if l.duck.Execute(sql)[0].Error == "" && macroText.MatchString(sql) {
			l.macros = append(l.macros, sql)
		}
		l.dirty = true
	}
}

// count counts an outcome, and prints what differs.
func (l *sqlLogic) count(outcome, reason, sql string) {
	l.folder.queries++
	l.folder.of[outcome]++
	if outcome == logicEqual {
		return
	}
	if l.reasons[outcome] == nil {
		l.reasons[outcome] = map[string]int{}
	}
	l.reasons[outcome][reason]++
	example := fmt.Sprintf("%s: %s", l.file, strings.Join(strings.Fields(sql), " "))
	if _, ok := l.first[outcome+reason]; !ok {
		l.first[outcome+reason] = example[:min(len(example), 300)]
	}
	if outcome == logicDiffers {
		l.t.Logf("%s:\n%s\n%s", l.file, sql, reason)
	}
}

// reasonText shortens an error to what it is about.
func reasonText(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.TrimPrefix(refusedTexts.ReplaceAllString(text, "…"), "sql …: …")
	return text[:min(len(text), 110)]
}

// query compares a query.
func (l *sqlLogic) query(sql string) {
	if volatile.MatchString(sql) {
		l.count(logicSkipped, "not repeatable, or of DuckDB's catalog and files", sql)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			l.count(logicError, fmt.Sprint("panic: ", v), sql)
		}
	}()
	l.export()
	answer := l.duck.Ask(exprtest.Question{SQL: sql, Optimize: true})[0]
	if answer.Error != "" {
		l.count(logicSkipped, "DuckDB fails here: "+answer.Class, sql)
		return
	}
	paths := map[string]string{}
	text := l.definitions(sql, paths) + sql
	var out collected
	b := SQL(text, nil)
	for name, path := range paths {
		if path == "" || l.collates {
			l.count(logicRefused, "a table that Parquet files do not have", sql)
			return
		}
		b.Read(name, path)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	p, err := b.WriteTo(&out).Plan()
	if err != nil {
		l.count(logicRefused, reasonText(err), sql)
		return
	}
	_, err = p.Run(ctx, RunOptions{Use: Host, Threads: 1, SpillDir: l.dir, HostMemory: 1 << 30})
	require.NoError(l.t, p.Close())
	if err != nil {
		l.count(logicError, reasonText(err), sql)
		return
	}
	switch kind, difference := answersDiffer(answer, &out, nil, false, nil); {
	case kind == "type":
		_, difference, _ = strings.Cut(difference, ": ")
		if !sameAnswers(answer, exprtest.Answer{Types: answer.Types, Rows: out.rows}) {
			difference += ", and other text of the rows"
		}
		l.count(logicType, difference, sql)
	case kind != "":
		l.count(logicDiffers, difference, sql)
	default:
		l.count(logicEqual, "", sql)
	}
}

// export writes the tables of DuckDB to files, after statements that may have changed them.
func (l *sqlLogic) export() {
	if !l.dirty {
		return
	}
	l.dirty = false
	ask := func(sql string) [][]*string { return l.duck.Ask(exprtest.Question{SQL: sql, Optimize: true})[0].Rows }
	for _, path := range l.tables {
		if path != "" {
			require.NoError(l.t, os.Remove(path))
		}
	}
	l.tables, l.views = map[string]string{}, nil
	for _, row := range ask("SELECT table_name, estimated_size FROM duckdb_tables() WHERE schema_name = 'main'") {
		name := *row[0]
		l.exports++
		path := filepath.Join(l.dir, fmt.Sprintf("%d.parquet", l.exports))
		l.tables[name] = ""
		if len(*row[1]) > 6 { // a million rows
			continue
		}
		// A type that Parquet has no equal of would come back as another one.
		types := ask(fmt.Sprintf("SELECT data_type FROM duckdb_columns() WHERE table_name = '%s'",
			strings.ReplaceAll(name, "'", "''")))
		if slices.ContainsFunc(types, func(t []*string) bool { return !hasParquetType(*t[0]) }) {
			continue
		}
		copied := fmt.Sprintf("COPY \"%s\" TO '%s' (FORMAT parquet)", strings.ReplaceAll(name, `"`, `""`), path)
		if l.duck.Execute(copied)[0].Error == "" {
			l.tables[name] = path
		} else {
			_ = os.Remove(path)
		}
	}
	for _, row := range ask("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY view_oid") {
		l.views = append(l.views, sqlLogicView{*row[0], *row[1]})
	}
}

var parquetType = regexp.MustCompile(`^(BOOLEAN|U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|` +
	`VARCHAR|BLOB|DATE|TIME|TIMESTAMP|INTERVAL|TIMESTAMP WITH TIME ZONE|ENUM\(.*\))$`)

// otherType finds, inside of a nested type, a type that Parquet has no equal of.
var otherType = regexp.MustCompile(`\b(UNION|UUID|BIT|U?HUGEINT|TIMESTAMP_(S|MS|NS)|BIGNUM|VARIANT|GEOMETRY|JSON)\b` +
	`|TIME WITH TIME ZONE|"NULL"|\[\d+\]`)

// hasParquetType reports whether values of a type come back from Parquet as values of this type.
func hasParquetType(typ string) bool {
	nested := strings.HasSuffix(typ, "[]") || strings.HasPrefix(typ, "STRUCT(") || strings.HasPrefix(typ, "MAP(")
	return parquetType.MatchString(typ) || nested && !otherType.MatchString(typ)
}

// definitions returns the views and macros that a query may name, and adds the tables to paths.
func (l *sqlLogic) definitions(sql string, paths map[string]string) (text string) {
	named := map[string]bool{}
	mention := func(sql string) {
		for _, w := range wordText.FindAllString(sql, -1) {
			for _, part := range append(strings.Split(w, "."), strings.Trim(w, `"`)) {
				named[strings.ToLower(part)] = true
			}
		}
	}
	mention(sql)
	for _, m := range l.macros {
		mention(m)
		text += m + "; "
	}
	views := ""
	for _, v := range slices.Backward(l.views) {
		if named[strings.ToLower(v.name)] {
			mention(v.sql)
			views = strings.TrimRight(v.sql, "; \n") + "; " + views
		}
	}
	for name, path := range l.tables {
		if named[strings.ToLower(name)] {
			paths[name] = path
		}
	}
	return text + views
}

// print prints the counts as tables.
func (l *sqlLogic) print() {
	var b strings.Builder
	outcomes := []string{logicEqual, logicType, logicDiffers, logicError, logicRefused, logicSkipped}
	fmt.Fprintf(&b, "| folder | files | queries | %s |\n|%s\n", strings.Join(outcomes, " | "),
		strings.Repeat(" --- |", 3+len(outcomes)))
	all := &sqlLogicCounts{of: map[string]int{}}
	line := func(name string, c *sqlLogicCounts) {
		fmt.Fprintf(&b, "| %s | %d | %d |", name, c.files, c.queries)
		for _, o := range outcomes {
			fmt.Fprintf(&b, " %d |", c.of[o])
		}
		b.WriteString("\n")
	}
	for _, name := range slices.Sorted(maps.Keys(l.folders)) {
		c := l.folders[name]
		line(name, c)
		all.files, all.queries = all.files+c.files, all.queries+c.queries
		for o, n := range c.of {
			all.of[o] += n
		}
	}
	line("all", all)
	for _, o := range outcomes[1:] {
		if o == logicDiffers {
			continue
		}
		reasons := l.reasons[o]
		fmt.Fprintf(&b, "\n%s:\n\n", o)
		keys := slices.Collect(maps.Keys(reasons))
		slices.SortFunc(keys, func(x, y string) int {
			if reasons[x] != reasons[y] {
				return reasons[y] - reasons[x]
			}
			return strings.Compare(x, y)
		})
		for _, r := range keys {
			fmt.Fprintf(&b, "- %d: %s\n    %s\n", reasons[r], r, l.first[o+r])
		}
	}
	l.t.Log("\n" + b.String())
}
