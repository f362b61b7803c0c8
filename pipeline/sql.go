package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/job"
)

// Params are the values of the parameters of an SQL text, by name: that of $day has the name day, that of $1 and of the
// first ? of a statement the name 1. A value is nil, a bool, a number, a json.Number, a string, a []byte (BLOB) or a
// time.Time (TIMESTAMP, in UTC). A string has the type that its place in the query asks for, as a string in quotes has.
type Params map[string]any

// SQL starts a job of an SQL text: definitions such as CREATE VIEW, settings such as SET threads = 4, and at the end
// one query, or COPY, which also is the output of the job. The tables of the text are files by their paths in quotes,
// and sources that the caller adds by Read and ReadTable. Further steps may follow, and read the rows of the query.
func SQL(text string, p Params) *Builder {
	s := &Session{}
	b, err := s.builder(text, p)
	if err != nil {
		b = New("sql")
		b.errs = append(b.errs, err)
	}
	return b
}

func (s *Session) builder(text string, p Params) (*Builder, error) {
	list, err := s.Parse("", text, p)
	if err != nil {
		return nil, err
	}
	for i, st := range list {
		switch {
		case st.Kind == DefineStatement || st.Kind == SetStatement:
			if err := st.apply(); err != nil {
				return nil, err
			}
		case st.Kind == ExplainStatement:
			return nil, st.mistake("EXPLAIN prints a plan; in a program it is Plan().Explain(device)")
		case i < len(list)-1:
			return nil, list[i+1].mistake("there is a statement after the query, which is the last one of a job; a " +
				"Session runs several")
		default:
			j, err := st.Job()
			if err != nil {
				return nil, err
			}
			b := FromJob(j)
			b.given, b.set = nil, s.set
			return b, nil
		}
	}
	return nil, (&sqlText{text: text}).located(syntax.NewError(text, len(text),
		"there is no query at the end of the text"))
}

// MaxSQL is the number of bytes of the longest SQL text.
const MaxSQL = syntax.MaxText

// Parameters returns the names of the parameters of an SQL text, in the order of their first appearance: 1 for $1 and
// for the first ? of a statement, and day for $day.
func Parameters(text string) ([]string, error) { return syntax.Parameters(text) }

// IsComplete reports whether an SQL text can be run: it ends with a semicolon, or has a mistake that more text does not
// mend.
func IsComplete(text string) bool { return syntax.IsComplete(text) }

// Session runs SQL texts one after the other. Definitions (CREATE VIEW, TEMP TABLE, MACRO and TYPE) and settings
// (SET) last for the statements after them. A temporary table is computed by each query that reads it. The zero Session
// is ready to use. It is not safe for concurrent use.
type Session struct {
	// Dir is the folder to which paths in statements are relative; "" means the working directory.
	Dir string

	definitions []definition
	types       []*syntax.CreateType
	set         settings
}

// definition is a statement that later statements need.
type definition struct {
	name string
	sql  string // in one line
	text *sqlText
	what string
}

// sqlText is a text of several statements.
type sqlText struct {
	file, text string
	values     syntax.Values
	list       []syntax.Statement
	unused     []bool // statements that others do not need
}

// StatementKind says what to do with a statement.
type StatementKind uint8

// The kinds of statements.
const (
	QueryStatement   StatementKind = iota // has rows: a query, DESCRIBE or SUMMARIZE
	CopyStatement                         // writes the rows of a query to files
	ExplainStatement                      // shows the plan of a statement of these kinds, or runs it (Analyze)
	DefineStatement                       // CREATE VIEW, TEMP TABLE, MACRO and TYPE
	SetStatement                          // SET
)

// Statement is a statement of an SQL text, in its session.
type Statement struct {
	Kind    StatementKind
	Analyze bool // of EXPLAIN ANALYZE
	// Name is that of what DefineStatement defines, or of the setting of SetStatement.
	Name string

	session *Session
	text    *sqlText
	at      int // of the statement in the text
}

// Parse parses the statements of a text. file names the text in errors; it may be empty. The error is Diagnostics.
// Nothing happens to the session: call Apply for the statements that define and set something, in order.
func (s *Session) Parse(file, text string, p Params) ([]*Statement, error) {
	t := &sqlText{file: file, text: text, values: syntax.Values{}}
	used, err := syntax.Parameters(text)
	if err != nil {
		return nil, t.located(err)
	}
	for name, v := range p {
		key := syntax.ParameterKey(strings.TrimPrefix(name, "$"))
		if !slices.Contains(used, key[1:]) {
			return nil, Diagnostics{{File: file, Msg: fmt.Sprintf("the text has no parameter $%s%s", key[1:],
				job.DidYouMean(key[1:], used))}}
		}
		sql, err := literal(v)
		if err != nil {
			return nil, Diagnostics{{File: file, Msg: fmt.Sprintf("the parameter $%s %v", key[1:], err)}}
		}
		t.values[key] = syntax.Value{SQL: sql, Text: sql}
	}
	if t.list, err = t.values.ParseStatements(text, s.types...); err != nil {
		return nil, t.located(err)
	}
	t.unused = make([]bool, len(t.list))
	var out []*Statement
	for i, n := range t.list {
		st := &Statement{session: s, text: t, at: i}
		switch n := n.(type) {
		case *syntax.Copy:
			st.Kind = CopyStatement
		case *syntax.Explain:
			st.Kind, st.Analyze = ExplainStatement, n.Analyze
			switch n.Statement.(type) {
			case *syntax.Query, *syntax.Copy, *syntax.Describe:
			default:
				return nil, t.located(syntax.NewError(text, n.Statement.Pos(),
					"EXPLAIN is possible before a query and "+
						"before COPY"))
			}
		case *syntax.CreateView:
			st.Kind, st.Name = DefineStatement, n.Name
		case *syntax.CreateMacro:
			st.Kind, st.Name = DefineStatement, n.Name
		case *syntax.CreateType:
			st.Kind, st.Name = DefineStatement, n.Name
		case *syntax.Set:
			st.Kind, st.Name = SetStatement, n.Name
		}
		out = append(out, st)
	}
	return out, nil
}

// located returns an error with its location in the text.
func (t *sqlText) located(err error) error {
	var mistake *syntax.Error
	if !errors.As(err, &mistake) {
		return err
	}
	_, picture, _ := strings.Cut(mistake.Error(), "\n")
	return Diagnostics{{File: t.file, Location: Location{Line: mistake.Line, Column: mistake.Col},
		Msg: mistake.Msg + "\n" + picture}}
}

// mistake is a mistake at the start of a statement.
func (st *Statement) mistake(format string, args ...any) error {
	return st.text.located(syntax.NewError(st.text.text, st.node().Pos(), format, args...))
}

// Writes reports whether the statement is COPY, or EXPLAIN of COPY.
func (st *Statement) Writes() bool { return copyOf(st.node()) != nil }

// copyOf returns the COPY of a statement, or nil.
func copyOf(n syntax.Statement) *syntax.Copy {
	if e, ok := n.(*syntax.Explain); ok {
		n = e.Statement
	}
	c, _ := n.(*syntax.Copy)
	return c
}

func (st *Statement) node() syntax.Statement { return st.text.list[st.at] }

// Apply adds what the statement defines or sets to the session. A view or a table is planned, so that a mistake in it
// is an error now, not when it is used. Statements of other kinds do not change a session.
func (st *Statement) Apply(ctx context.Context) error {
	j, err := st.Job()
	if err != nil {
		return err
	}
	if j != nil && st.Kind == DefineStatement {
		p, err := NewPlanWith(ctx, j, PlanOptions{Target: &Collector{}})
		if err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return st.apply()
}

func (st *Statement) apply() error {
	s := st.session
	var old, fresh bool
	d := definition{name: strings.ToLower(st.Name), sql: "", text: st.text}
	switch n := st.node().(type) {
	case *syntax.CreateView:
		d.what, old, fresh, d.sql = "table", n.IfNotExists, !n.Replace, n.String()
	case *syntax.CreateMacro:
		d.what, old, fresh, d.sql = "macro", n.IfNotExists, !n.Replace, n.String()
	case *syntax.CreateType: // the parser has refused one that is there
		again := *n
		again.Replace, again.IfNotExists = true, false
		d.what, d.sql = "type", again.String()
		s.types, s.definitions = append(s.types, n), append(s.definitions, d)
		return nil
	case *syntax.Set:
		if err := s.set.assign(n); err != nil {
			return st.text.located(err)
		}
		return nil
	default:
		return nil
	}
	exists := slices.ContainsFunc(s.definitions, func(o definition) bool {
		return o.name == d.name &&
			o.what == d.what
	})
	switch {
	case exists && old:
		st.text.unused[st.at] = true
		return nil
	case exists && fresh:
		return st.mistake("there is a %s %q already; CREATE OR REPLACE replaces it", d.what, st.Name)
	}
	s.definitions = append(s.definitions, d)
	return nil
}

// Job returns the job of a statement: its query, and its output if it is COPY. For a definition it is a query for all
// rows of the table, for a macro nil.
func (st *Statement) Job() (*Job, error) {
	n := st.node()
	in := job.SQL{File: st.text.file, Values: st.text.values, Dir: st.session.Dir}
	for _, d := range st.session.definitions {
		if d.text != st.text {
			in.Before += d.sql + "; "
		}
	}
	if in.Before != "" {
		in.Before += "\n"
	}
	list, text := st.text.list, st.text.text
	end := func(i int) int { // of a statement
		if i+1 < len(list) {
			return list[i+1].Pos()
		}
		return len(text)
	}
	at := 0
	for i := range st.at {
		if !defines(list[i]) || st.text.unused[i] {
			in.Text += text[at:list[i].Pos()] + blank(text[list[i].Pos():end(i)])
			at = end(i)
		}
	}
	switch x := n.(type) {
	case *syntax.Explain:
		in.Text += text[at:n.Pos()] + blank(text[n.Pos():x.Statement.Pos()])
		at = x.Statement.Pos()
	case *syntax.CreateMacro, *syntax.CreateType, *syntax.Set:
		return nil, nil
	}
	in.Text += text[at:end(st.at)]
	in.Copy = copyOf(n)
	if x, ok := n.(*syntax.CreateView); ok {
		in.Text += "\n; FROM " + syntax.QuoteName(x.Name)
	}
	j, err := job.FromSQL(in)
	if err != nil {
		return nil, st.text.located(err)
	}
	return j, nil
}

// defines reports whether other statements may need a statement.
func defines(n syntax.Statement) bool {
	switch n.(type) {
	case *syntax.CreateView, *syntax.CreateMacro, *syntax.CreateType:
		return true
	}
	return false
}

// blank replaces a text by spaces, so that what follows keeps its line and column.
func blank(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return ' '
	}, text)
}

// Options returns the options of a run with the settings of the session, which replace those of opt.
func (s *Session) Options(opt RunOptions) RunOptions { return s.set.over(opt) }

var numberText = regexp.MustCompile(`^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)

// Set sets a setting, as SET name = value does.
func (s *Session) Set(name, value string) error { return s.set.set(name, value) }

// Tables returns the names of the views and temporary tables, in order.
func (s *Session) Tables() (names []string) {
	for _, d := range s.definitions {
		if d.what == "table" {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Columns returns the columns of a table: of a view by its name, or of files by their path in quotes.
func (s *Session) Columns(ctx context.Context, table string) ([]gpu.Field, error) {
	list, err := s.Parse("", "FROM "+table, nil)
	if err != nil {
		return nil, err
	}
	j, err := list[0].Job()
	if err != nil {
		return nil, err
	}
	p, err := NewPlanWith(ctx, j, PlanOptions{Target: &Collector{}})
	if err != nil {
		return nil, err
	}
	return p.Schema().Fields, p.Close()
}

// literal returns a value as SQL.
func literal(v any) (string, error) {
	signed := func(text string) string {
		if strings.HasPrefix(text, "-") {
			return "(" + text + ")"
		}
		return text
	}
	switch v := v.(type) {
	case nil:
		return "NULL", nil
	case bool:
		return strings.ToUpper(strconv.FormatBool(v)), nil
	case json.Number:
		if !numberText.MatchString(string(v)) {
			return "", fmt.Errorf("is %q, which is no number", v)
		}
		return signed(string(v)), nil
	case int:
		return signed(strconv.Itoa(v)), nil
	case int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return signed(fmt.Sprint(v)), nil
	case float32:
		return "CAST(" + float(float64(v), 32) + " AS FLOAT)", nil
	case float64:
		return float(v, 64), nil
	case string:
		return syntax.Quote(v), nil
	case []byte:
		return syntax.QuoteBlob(string(v)), nil
	case time.Time:
		return "TIMESTAMP " + syntax.Quote(v.UTC().Format("2006-01-02 15:04:05.999999")), nil
	}
	return "", fmt.Errorf("is a %T; it can be nil, a bool, a number, a string, a []byte or a time.Time", v)
}

// float returns a floating-point number as SQL, of type DOUBLE.
func float(v float64, bits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "CAST(" + syntax.Quote(strconv.FormatFloat(v, 'g', -1, 64)) + " AS DOUBLE)"
	}
	text := strconv.FormatFloat(v, 'e', -1, bits)
	if v < 0 || math.Signbit(v) {
		return "(" + text + ")"
	}
	return text
}
