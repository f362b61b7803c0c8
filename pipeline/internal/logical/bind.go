package logical

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
	"github.com/gstream/gstream/source"
)

// binder makes the relational tree of a query, as it is written. It continues after a mistake, and
// skips whatever depends on a faulty step without another message.
type binder struct {
	query     Query
	md        *rel.Metadata
	estimator *Estimator
	faults    job.Diagnostics
	// named has the relations so far; nil for a relation with a fault.
	named map[string]*Relation
	// tables has the names of all tables so far, folded.
	tables map[string]bool
	now    time.Time // of the planning, in all expressions
}

// scope is scopeOf for expressions of the job.
func (b *binder) scope(r *Relation) *expr.Scope {
	s := scopeOf(b.estimator, r)
	s.Now = b.now
	return s
}

// scopeAt is scope for the expression at sub of the step.
func (s *stepBinder) scopeAt(r *Relation, sub string) *expr.Scope {
	scope := s.scope(r)
	scope.Origin = s.origin(sub)
	return scope
}

func (s *stepBinder) origin(sub string) *expr.Origin {
	return &expr.Origin{Step: s.name, Path: s.at + sub}
}

// here is the origin of the step's nodes.
func (s *stepBinder) here() expr.Origin { return expr.Origin{Step: s.name, Path: s.at} }

// Bind returns the relation of the last step over the tables of the sources, and the
// mistakes in the query. The caller has reported the sources without a table; Bind skips
// whatever depends on them.
func Bind(e *Estimator, q Query, tables map[string]source.Table) (*Relation, job.Diagnostics) {
	last, _, faults := BindAll(e, q, tables)
	return last, faults
}

// BindAll is Bind. It returns the relations of all sources and steps, too, by their names; nil for one with a mistake.
func BindAll(e *Estimator, q Query, tables map[string]source.Table) (*Relation, map[string]*Relation,
	job.Diagnostics) {
	b := &binder{query: q, md: &rel.Metadata{}, estimator: e, named: map[string]*Relation{}, tables: map[string]bool{},
		now: time.Now().UTC().Truncate(time.Microsecond)}
	for _, name := range q.Sources {
		b.named[name] = nil
		b.table(name)
		if t, ok := tables[name]; ok {
			b.named[name] = b.source(name, t)
		}
	}
	readers, copies := q.readers(), map[rel.Node]int{}
	for _, name := range q.Sources {
		reads := readers[name]
		if len(q.Sources) == 1 {
			reads += readers[""] // of the first step
		}
		if s, ok := tables[name].(source.Stream); ok && s.IsStream() && reads > 1 {
			r := b.named[name]
			b.named[name] = r.over(rel.NewMaterialized(r.node, &rel.Share{Step: name}))
		}
	}
	var last *Relation
	if len(q.Sources) == 1 {
		last = b.named[q.Sources[0]]
	}
	for i := range q.Steps {
		s := stepBinder{binder: b, at: fmt.Sprintf("steps[%d]", i), name: job.StepName(q.Steps, i), step: &q.Steps[i]}
		if last = s.bind(last, i == 0); last != nil && s.step.Name != "" {
			last = b.as(last, s.step.Name)
		}
		if last != nil && readers[s.name] > 1 && (worthHolding(last.node) || nodes(last.node, copies) > maxCopied) {
			last = last.over(rel.NewMaterialized(last.node, &rel.Share{Step: s.name}))
		}
		b.named[s.name] = last
	}
	if len(q.Steps) == 0 && len(q.Sources) > 1 {
		if slices.Contains(q.Written, "") || q.Written == nil {
			b.fault("steps", "", "the job has several sources but no steps; say what to do with them")
		}
		return nil, b.named, b.faults
	}
	return last, b.named, b.faults
}

// source returns the relation of a table.
func (b *binder) source(name string, t source.Table) *Relation {
	scan := rel.NewScan(b.md, expr.Origin{Step: name, Path: "sources." + name}, t)
	r, tables := &Relation{node: scan}, expr.TablesOf(name)
	for _, c := range scan.Columns[:t.Schema().Len()] {
		r.columns = append(r.columns, column{c, tables})
	}
	for _, u := range t.Unreadable() {
		r.unreadable = append(r.unreadable, unreadable{u, name, tables})
	}
	return r
}

// readers returns how often later steps read each step.
func (q Query) readers() map[string]int {
	n, before := map[string]int{}, ""
	steps := q.Steps
	for i := range steps {
		s := &steps[i]
		if s.SQL == "" {
			n[cmp.Or(s.From, before)]++
		} else if statements, err := q.Values.ParseStatements(s.SQL); err == nil {
			for _, st := range statements {
				syntax.EachTable(st, func(t syntax.TableRef) {
					if t, ok := t.(*syntax.TableName); ok {
						n[strings.Join(t.Parts, ".")]++
					}
				})
			}
		}
		if s.Join != nil {
			n[s.Join.With]++
		}
		for _, u := range s.Union {
			n[u]++
		}
		before = job.StepName(steps, i)
	}
	for _, name := range q.Written {
		n[cmp.Or(name, before)]++
	}
	return n
}

// maxCopied is the number of nodes up to which a cheap step is computed again for each of its
// readers. A larger step is computed once and its rows are held, so that the number of stages stays
// proportional to the number of steps.
const maxCopied = 64

// nodes returns the number of nodes that are computed for one reader of a node.
func nodes(n rel.Node, known map[rel.Node]int) int {
	if sum, ok := known[n]; ok {
		return sum
	}
	sum := 1
	if _, held := n.(*rel.Materialized); !held {
		for _, in := range rel.Inputs(n) {
			sum = min(sum+nodes(in, known), maxCopied+1)
		}
	}
	known[n] = sum
	return sum
}

func (b *binder) fault(path, step, format string, args ...any) {
	b.faults = append(b.faults, &job.Diagnostic{File: b.query.Text.File(), Location: b.query.Text.Location(path),
		Step: step, Msg: fmt.Sprintf(format, args...)})
}

// stepBinder binds one step.
type stepBinder struct {
	*binder
	at, name string
	step     *job.Step
}

func (s *stepBinder) bind(prev *Relation, first bool) *Relation {
	if s.step.SQL != "" {
		return s.sql()
	}
	in, ok := prev, true
	switch {
	case s.step.From != "":
		in, ok = s.lookup(s.step.From, ".from")
	case first && len(s.query.Sources) > 1:
		s.faultf("", "the job has several sources, so its first step must say from which one it reads (from: %s)",
			strings.Join(s.query.Sources, " or "))
		ok = false
	}
	if !ok || in == nil {
		s.lookUpOthers()
		return nil
	}
	switch {
	case s.step.Filter != "":
		return s.filter(in)
	case s.step.Select != nil:
		return s.selection(in, s.step.Select, ".select")
	case s.step.Distinct != nil:
		return s.unique(in)
	case s.step.Qualify != "":
		return s.qualified(in)
	case s.step.Join != nil:
		return s.join(in)
	case s.step.Group != nil:
		return s.group(in)
	case s.step.Sort != nil:
		return s.sort(in)
	case s.step.Limit != nil:
		return in.over(rel.NewLimit(s.here(), in.node, s.step.Limit.Offset, s.step.Limit.Count))
	}
	if u := s.step.Unnest; u != nil {
		return s.unnest(in, u)
	}
	return s.union(in)
}

// lookUpOthers reports unknown names in a step whose input has a fault.
func (s *stepBinder) lookUpOthers() {
	if s.step.Join != nil {
		s.lookup(s.step.Join.With, ".join.with")
	}
	for i, name := range s.step.Union {
		s.lookup(name, fmt.Sprintf(".union[%d]", i))
	}
}

// faultf reports a fault of the step. sub is the path of the value in the step.
func (s *stepBinder) faultf(sub, format string, args ...any) {
	s.fault(s.at+sub, s.name, format, args...)
}

// lookup finds a source or an earlier step. It reports an unknown name and returns false.
// It returns nil and true for a relation that has a fault already.
func (s *stepBinder) lookup(name, sub string) (*Relation, bool) {
	n, ok := s.named[name]
	if !ok {
		s.faultf(sub, "there is no source or earlier step named %q%s", name,
			job.DidYouMean(name, slices.Collect(maps.Keys(s.named))))
	}
	return n, ok
}

// expr parses and binds one expression. It returns nil after a fault.
func (s *stepBinder) expr(text string, in *Relation, sub string) *expr.Expr {
	n, err := s.query.Values.Parse(text)
	if err == nil {
		var e *expr.Expr
		if e, err = expr.Bind(n, s.scopeAt(in, sub)); err == nil {
			return e
		}
	}
	s.exprDiagnostic(in, sub, text, err, "")
	return nil
}

// exprDiagnostic reports an error of an expression over the columns of a relation. text is the
// value at sub, or a part of it. The report has the location in the text if it is known, and the
// hint after the message.
func (s *stepBinder) exprDiagnostic(in *Relation, sub, text string, err error, hint string) {
	path := s.at + sub
	var mistake *syntax.Error
	if !errors.As(err, &mistake) {
		s.faultf(sub, "%v%s", err, hint)
		return
	}
	if in != nil {
		if u, ok := in.unreadableFor(mistake.Missing); ok {
			unreadable := *mistake
			mistake, hint = &unreadable, ""
			mistake.Msg = u.String()
		}
	}
	f := &job.Diagnostic{File: s.query.Text.FileOf(path), Location: s.query.Text.Location(path), Step: s.name}
	message, picture, _ := strings.Cut(mistake.Error(), "\n")
	if p, ok := s.query.Text.LocationIn(path, text, mistake.Pos); ok {
		f.Location, message = p, mistake.Msg
	}
	f.Msg = message + hint + "\n" + picture
	s.faults = append(s.faults, f)
}

var position = regexp.MustCompile(`^-?[0-9]+$`)

// key is expr for a key of a sort or a group-by. A number is the position of a column of the input
// of the step. A key that has the same value in every row is refused: most likely it is a position
// or a name in another notation.
func (s *stepBinder) key(in *Relation, text, sub, kind string) *expr.Expr {
	if position.MatchString(text) {
		if u := in.unreadable; len(u) > 0 {
			s.faultf(sub, "the %s key %s is the position of a column, but %s; write the name", kind, text,
				describeUnreadable(u))
			return nil
		}
		columns := len(in.columns)
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > columns {
			s.faultf(sub,
				"the %s key %s is out of range: a number is the position of a column of the step's input, 1 to %d",
				kind, text, columns)
			return nil
		}
		return expr.Column(s.scope(in), n-1)
	}
	e := s.expr(text, in, sub)
	if e == nil {
		return nil
	}
	// Folding may have removed the columns of e, so bind the key again without columns.
	if n, err := s.query.Values.Parse(text); err == nil {
		if _, err := expr.Bind(n, &expr.Scope{Schema: &gpu.Schema{}, Fold: host.Fold, Now: s.now}); err == nil {
			s.faultf(sub, "the %s key %s uses no column, so it is the same in every row; write the name of a column, "+
				"or its position as a number", kind, text)
			return nil
		}
	}
	return e
}

// condition is expr for a BOOLEAN.
func (s *stepBinder) condition(text string, in *Relation, sub string) *expr.Expr {
	e := s.expr(text, in, sub)
	if e != nil && e.Type().Kind != gpu.Bool {
		s.faultf(sub, "the condition %q is a value of type %v; a condition must be BOOLEAN, as in %q", text, e.Type(),
			text+" = …")
		return nil
	}
	return e
}

func (s *stepBinder) filter(in *Relation) *Relation {
	e := s.condition(s.step.Filter, in, ".filter")
	if e == nil {
		return nil
	}
	return in.over(rel.NewFilter(s.here(), in.node, expr.Conjuncts(e)))
}

// selection computes the columns of a select list, the value at path, from the rows that meet the
// condition of qualify.
func (s *stepBinder) selection(in *Relation, list job.Columns, path string) *Relation {
	scope := s.scope(in)
	var items []item
	ok := true
	w := &windows{stepBinder: s, in: in}
	parsed := make([]syntax.Node, len(list))
	texts, names := make([]string, len(list)), make([]string, len(list)) // expressions and their aliases
	stars := make([]*syntax.Star, len(list))
	replacements := make([][]syntax.Node, len(list)) // of the columns of stars
	for i, c := range list {
		sub := fmt.Sprintf("%s[%d]", path, i)
		var err error
		if c.Name == "" {
			stars[i], err = s.query.Values.ParseStar(c.Expr)
		}
		switch star := stars[i]; {
		case err != nil:
			s.exprDiagnostic(in, sub, c.Expr, err, "")
			ok = false
		case star != nil:
			for _, x := range star.Replace {
				n := w.parse(x.Text, sub)
				replacements[i] = append(replacements[i], n)
				ok = ok && n != nil
			}
		default:
			texts[i], names[i] = splitAlias(s.query.Values, c)
			parsed[i] = w.parse(texts[i], sub)
			ok = ok && parsed[i] != nil
		}
	}
	var condition syntax.Node
	if s.step.Qualify != "" {
		condition = w.parse(s.step.Qualify, ".qualify")
		ok = ok && condition != nil
	}
	below := w.node()
	for i, c := range list {
		sub := fmt.Sprintf("%s[%d]", path, i)
		if star := stars[i]; star != nil {
			qualifier := star.Table
			found := scope.Table(qualifier)
			if qualifier == "" {
				found = scope.All()
			}
			columns, fine := s.starColumns(star, scope, in, found, sub)
			for k, e := range replacements[i] {
				if j, there := columns.replaced[k]; there && e != nil {
					if columns.exprs[j] = below.bind(e, star.Replace[k].Text, sub); columns.exprs[j] == nil {
						fine = false
					}
				}
			}
			ok = ok && fine
			for _, j := range found {
				if e, there := columns.exprs[j]; !there {
					items = append(items, item{expr.Column(scope, j), columns.name(in, j), columns.tables(in, j)})
				} else if e != nil {
					items = append(items, item{e, columns.name(in, j), nil})
				}
			}
			u := slices.DeleteFunc(slices.Clone(in.unreadable), func(u unreadable) bool {
				return !u.in(qualifier) ||
					slices.ContainsFunc(star.Exclude,
						func(n syntax.StarName) bool { return strings.EqualFold(n.Name, u.Name) && u.in(n.Table) })
			})
			if len(u) > 0 {
				s.faultf(sub, "%s has columns that cannot be read: %s; select the others by name%s", c.Expr,
					describeUnreadable(u), suggestColumns(in))
				ok = false
			} else if len(found) == 0 {
				s.faultf(sub, "%s matches no column: there is no source or step named %q here%s", c.Expr, qualifier,
					job.DidYouMean(qualifier, scope.TableNames()))
				ok = false
			}
			continue
		}
		if parsed[i] == nil {
			continue
		}
		text, name := texts[i], names[i]
		e := below.bind(parsed[i], text, sub)
		if e == nil {
			ok = false
			continue
		}
		// A column that keeps its name can still be qualified by its tables.
		var from *expr.Tables
		if id, bare := e.IsColumn(); bare {
			if col := in.index(id); col >= 0 && (name == "" || name == in.name(col)) {
				name, from = in.name(col), in.columns[col].tables
			}
		}
		if name == "" {
			name = text
		}
		items = append(items, item{e, name, from})
	}
	made := make([]string, len(items))
	for i, x := range items {
		made[i] = x.name
	}
	if !ok || !s.distinct(made, path) || condition != nil && !below.qualify(condition, items) {
		return nil
	}
	return project(s.here(), below.node, items)
}

// distinct reports names that appear twice among the columns of a step. Columns that
// differ only in case are two columns, as in a file that has them.
func (s *stepBinder) distinct(names []string, sub string) bool {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] {
			s.faultf(sub, "two columns are named %q; rename one with 'expression as name'", n)
			return false
		}
		seen[n] = true
	}
	return true
}

func (s *stepBinder) sort(in *Relation) *Relation {
	var exprs []*expr.Expr
	var keys []rel.SortKey
	for i, text := range s.step.Sort {
		body, key, err := parseSortKey(text)
		sub := fmt.Sprintf(".sort[%d]", i)
		if err != nil {
			s.faultf(sub, "%v", err)
			return nil
		}
		e := s.key(in, body, sub, "sort")
		if e == nil {
			return nil
		}
		exprs, keys = append(exprs, e), append(keys, key)
	}
	wide, ids := rel.Extend(in.node, exprs, nil)
	for i := range keys {
		keys[i].Column = ids[i]
	}
	return in.over(rel.NewSort(s.here(), wide, keys, 0, -1))
}

func (s *stepBinder) union(in *Relation) *Relation {
	ins := []*Relation{in}
	for i, name := range s.step.Union {
		r, _ := s.lookup(name, fmt.Sprintf(".union[%d]", i))
		if r == nil {
			return nil
		}
		if got, want := len(r.columns), len(in.columns); got != want {
			s.faultf(fmt.Sprintf(".union[%d]", i),
				"%q has %d columns and the step's input has %d; a union needs as many on both sides", name, got, want)
			return nil
		}
		if u := unmatched(in, r); len(u) > 0 {
			s.faultf(fmt.Sprintf(".union[%d]", i),
				"the step's input and %q do not have the same columns: %s; leave that out with a select step on the "+
					"side that has it", name, describeUnreadable(u))
			return nil
		}
		ins = append(ins, r)
	}
	types, wrong := unionTypes(ins)
	if wrong != nil {
		s.faultf(fmt.Sprintf(".union[%d]", wrong.side-1),
			"column %d is %v here and %v in the step's input (%q); cast one of them", wrong.column+1, wrong.is,
			wrong.others, in.name(wrong.column))
		return nil
	}
	for i, r := range ins {
		cast, err := castTo(s.estimator, r, types, s.origin(".union"))
		if err != nil {
			s.faultf("", "%v", err)
			return nil
		}
		ins[i] = cast
	}
	return s.concatenated(ins)
}

// unionMismatch is a column of a side of a union whose type does not fit those of the sides before it.
type unionMismatch struct {
	side, column int
	is, others   gpu.Type
}

func (m *unionMismatch) Error() string {
	return fmt.Sprintf("column %d is %v on one side and %v on the other; cast one of them", m.column+1, m.others, m.is)
}

// unionTypes returns the types that hold the values of the columns of all sides of a union.
func unionTypes(sides []*Relation) ([]gpu.Type, *unionMismatch) {
	types := make([]gpu.Type, len(sides[0].columns))
	for c := range types {
		first := sides[0].field(c)
		types[c] = first.Type
		for i, n := range sides[1:] {
			f := n.field(c)
			if f.Annotation == gpu.AllNull {
				continue
			}
			if first.Annotation == gpu.AllNull {
				types[c], first = f.Type, f
				continue
			}
			t, ok := commonType(types[c], f.Type)
			if !ok {
				return nil, &unionMismatch{i + 1, c, f.Type, types[c]}
			}
			types[c] = t
		}
	}
	return types, nil
}

// commonType returns the type that holds the values of two types. Values of every type but BLOB have a text form.
func commonType(x, y gpu.Type) (gpu.Type, bool) {
	t, ok := gpu.CommonType(x, y)
	if text := gpu.Of(gpu.String); !ok && (x == text || y == text) && x.Kind != gpu.Binary && y.Kind != gpu.Binary {
		return text, true
	}
	return t, ok
}

// concatenated returns the union of relations that have the same number and types of columns.
func (s *stepBinder) concatenated(ins []*Relation) *Relation {
	var nodes []rel.Node
	var from [][]rel.ID
	for _, in := range ins {
		nodes, from = append(nodes, in.node), append(from, in.ids())
	}
	var ids []rel.ID
	for i, c := range ins[0].columns {
		column := s.md.Column(c.id)
		for _, in := range ins {
			f := in.field(i)
			column.Nullable = column.Nullable || f.Nullable
			if column.Annotation != f.Annotation {
				column.Annotation = gpu.NoAnnotation
			}
		}
		ids = append(ids, s.md.Add(column))
	}
	return ins[0].of(rel.NewUnion(s.here(), nodes, from, ids), ids)
}

// castTo projects a relation to columns of the given types.
func castTo(e *Estimator, in *Relation, types []gpu.Type, origin *expr.Origin) (*Relation, error) {
	same := true
	items := in.items(e)
	for i, t := range types {
		f := in.field(i)
		if f.Type == t {
			continue
		}
		same = false
		if f.Annotation == gpu.AllNull {
			items[i].expr = expr.Null(gpu.Field{Type: t})
			continue
		}
		cast, err := expr.Cast(items[i].expr, t, host.Fold)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", f.Name, err)
		}
		if items[i].expr = cast.At(origin); f.Type.IsEnum() && t.Kind == gpu.String {
			items[i].expr = items[i].expr.OfEnum()
		}
	}
	if same {
		return in, nil
	}
	out := project(in.node.Rel().Origin, in.node, items)
	out.unreadable = in.unreadable
	return out, nil
}

// groupAlgorithm returns the algorithm that the step asks for, if it is a group.
func (s *stepBinder) groupAlgorithm() string {
	if s.step.Group == nil {
		return ""
	}
	return s.step.Group.Algorithm
}

func (s *stepBinder) group(in *Relation) *Relation {
	g := s.step.Group
	if g.Algorithm != "" && !slices.Contains(groupby.Algorithms(), g.Algorithm) {
		s.faultf(".group.algorithm", "there is no algorithm %q for groups; the algorithms are %s", g.Algorithm,
			strings.Join(groupby.Algorithms(), ", "))
		return nil
	}
	scope := s.scope(in)
	var exprs []*expr.Expr // the keys
	var names []string     // names of the keys
	var keys []string      // as they are written
	ok := true
	for i, c := range g.By {
		text, name := splitAlias(s.query.Values, c)
		e := s.key(in, text, fmt.Sprintf(".group.by[%d]", i), "group")
		if e == nil {
			ok = false
			continue
		}
		if id, bare := e.IsColumn(); bare && name == "" {
			name = s.md.Column(id).Name
		}
		if name == "" {
			name = text
		}
		exprs, names, keys = append(exprs, e), append(names, name), append(keys, text)
	}
	var sets [][]bool
	if ok {
		sets, ok = s.groupingSets(g, exprs, names, keys)
	}
	var calls []expr.AggregateCall // a call in two columns is computed once
	texts, posts := make([]string, len(g.Aggregates)), make([]syntax.Node, len(g.Aggregates))
	uses := make([][]int, len(g.Aggregates)) // calls[uses[i][k]] is "$agg<k>" of column i
	columns, tables := slices.Clone(names), tablesOf(in, exprs)
	for i, c := range g.Aggregates {
		sub := fmt.Sprintf(".group.aggregates[%d]", i)
		text, name := splitAlias(s.query.Values, c)
		if name == "" {
			name = text
		}
		texts[i], columns = text, append(columns, name)
		n, err := s.query.Values.Parse(text)
		var found []expr.AggregateCall
		if err == nil {
			scope.Origin = s.origin(sub)
			found, posts[i], err = expr.BindAggregates(n, scope)
		}
		if err != nil {
			s.exprDiagnostic(in, sub, text, err, "")
			ok = false
			continue
		}
		for _, call := range found {
			at := slices.IndexFunc(calls, call.Equal)
			if at < 0 {
				at = len(calls)
				calls = append(calls, call)
			}
			uses[i] = append(uses[i], at)
		}
	}
	if !ok || !s.distinct(columns, ".group") {
		return nil
	}
	return s.afterGroup(in, s.groupBy(in.node, exprs, names, calls, sets), columns, tables, texts, posts, uses, sets)
}

// tablesOf returns the tables of expressions over a relation: those of a bare column, and none for what is computed.
func tablesOf(in *Relation, exprs []*expr.Expr) []*expr.Tables {
	tables := make([]*expr.Tables, len(exprs))
	for i, e := range exprs {
		if id, bare := e.IsColumn(); bare {
			tables[i] = in.columns[in.index(id)].tables
		}
	}
	return tables
}

// groups is a group-by: its keys, and a column for each call.
type groups struct {
	node        rel.Node
	keys, calls []rel.ID
}

// groupBy computes groups by keys, for each of the sets of keys if there are any: in one phase or in two.
func (s *stepBinder) groupBy(in rel.Node, keys []*expr.Expr, names []string, calls []expr.AggregateCall,
	sets [][]bool) *groups {
	if mergesSets(calls, sets) {
		return s.twoPhase(in, keys, names, calls, sets, nil)
	}
	var always [][]gpu.Scalar
	if sets != nil {
		in, keys, always = s.expandSets(in, keys, names, sets)
		names = append(slices.Clone(names), expr.SetColumn)
	}
	if s.isTwoPhase(in, keys, calls) {
		return s.twoPhase(in, keys, names, calls, nil, always)
	}
	return s.grouped(in, keys, names, calls, always)
}

// grouped computes keys and arguments below a group-by, and the group-by.
func (s *stepBinder) grouped(in rel.Node, exprs []*expr.Expr, names []string, calls []expr.AggregateCall,
	always [][]gpu.Scalar) *groups {
	nkeys := len(exprs)
	exprs, names = slices.Clone(exprs), slices.Clone(names)
	use := func(e *expr.Expr) int {
		if e == nil {
			return -1
		}
		exprs, names = append(exprs, e), append(names, "")
		return len(exprs) - 1
	}
	inputs := make([]int, len(calls))
	sorted := make([]*window.GroupFunction, len(calls))
	for i, c := range calls {
		inputs[i] = use(c.Arg)
		if needSort(calls) {
			sorted[i] = sortedFunction(c, inputs[i], use)
		}
	}
	wide, at := rel.Extend(in, exprs, names)
	g := &groups{keys: at[:nkeys:nkeys]}
	var aggs []rel.Aggregate
	for i, c := range calls {
		a := rel.Aggregate{Kind: c.Kind, Input: rel.None, Output: c.Output}
		if inputs[i] >= 0 {
			a.Input = at[inputs[i]]
		}
		if sorted[i] != nil {
			f := sorted[i].Remap(func(e int) rel.ID { return at[e] })
			a.Sorted = &f
		}
		a = s.aggregate(a, c.String(), wide, nkeys, always)
		aggs, g.calls = append(aggs, a), append(g.calls, a.Out)
	}
	g.node = rel.NewGroup(s.here(), wide, g.keys, aggs, always, s.groupAlgorithm())
	return g
}

// aggregate makes the column of an aggregate of a group-by.
func (s *stepBinder) aggregate(a rel.Aggregate, name string, in rel.Node, keys int,
	always [][]gpu.Scalar) rel.Aggregate {
	a.Out = s.md.Add(rel.Column{Field: a.Field(name, in.Rel(), keys, always)})
	return a
}

// needSort reports whether a call needs all rows of a group at the same time. All aggregates of the
// group-by are then computed from sorted rows.
func needSort(calls []expr.AggregateCall) bool {
	return slices.ContainsFunc(calls, func(c expr.AggregateCall) bool { return c.Sorted != nil })
}

// sortedFunction returns the function of a call over sorted rows. use returns the position of an
// expression among the columns below the group-by.
func sortedFunction(c expr.AggregateCall, input int, use func(*expr.Expr) int) *window.GroupFunction {
	f := &window.GroupFunction{Aggregate: c.Kind, Value: input, Key: -1, Filter: -1, Distinct: c.Distinct,
		Output: c.Output}
	if s := c.Sorted; s != nil {
		f.Kind, f.Key, f.Filter, f.IgnoreNulls = s.Kind, use(s.Key), use(s.Filter), s.IgnoreNulls
		f.Fraction, f.Numerator, f.Denominator, f.Descending, f.Separator = s.Fraction, s.Numerator, s.Denominator,
			s.Descending, s.Separator
		for _, k := range s.Order {
			f.Order = append(f.Order, sort.Key{Column: use(k.Expr), Descending: k.Descending, NullsFirst: k.NullsFirst})
		}
	}
	return f
}

// afterGroup computes the columns of the step from keys and calls, such as 100 * sum(a) / sum(b).
// in is the input of the step. With grouping sets, the last key of g is the number of the set.
func (s *stepBinder) afterGroup(in *Relation, g *groups, columns []string, tables []*expr.Tables, texts []string,
	posts []syntax.Node, uses [][]int, sets [][]bool) *Relation {
	nkeys := len(columns) - len(posts)
	r := &Relation{node: g.node}
	for i, k := range g.keys {
		c := column{id: k}
		if i < nkeys {
			c.tables = tables[i]
		}
		r.columns = append(r.columns, c)
	}
	items := r.items(s.estimator)[:nkeys]
	keys := r.columns
	for i, post := range posts {
		sub := fmt.Sprintf(".group.aggregates[%d]", i)
		r := r.over(g.node)
		r.columns = keys[:len(keys):len(keys)]
		for _, u := range uses[i] {
			r.columns = append(r.columns, column{id: g.calls[u]})
		}
		scope := s.scopeAt(r, sub)
		scope.Grouping = &expr.Grouping{Keys: nkeys, Sets: sets}
		for k := range uses[i] {
			scope.Schema.Fields[len(keys)+k].Name = expr.AggregateColumn(k)
		}
		e, err := expr.Bind(post, scope)
		if err != nil {
			hint := ""
			if mistake := (*syntax.Error)(nil); errors.As(err, &mistake) && mistake.Missing != nil {
				hint = " (a column here must be a group key or stand inside an aggregate)"
			}
			s.exprDiagnostic(in, sub, texts[i], err, hint)
			return nil
		}
		items = append(items, item{e, columns[nkeys+i], nil})
	}
	return project(s.here(), g.node, items)
}
