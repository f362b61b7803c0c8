package logical

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// from binds FROM: the tables that commas separate are all paired.
func (b *queryBinder) from(n *syntax.Select, l *level) (*Relation, error) {
	if len(n.From) == 0 {
		return &Relation{node: b.oneRow()}, nil
	}
	var in *Relation
	for _, t := range n.From {
		if f, ok := t.(*syntax.TableFunction); ok && f.Call.Name == "unnest" {
			var err error
			if in, err = b.unnestTable(f, in, false); err != nil {
				return nil, err
			}
			continue
		}
		r, outer, err := b.tableRef(t, l, in)
		if err != nil {
			return nil, err
		}
		if in == nil {
			in = r
			continue
		}
		if in, err = b.paired(t, in, r, outer); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// paired is the cross join of tables. outer are the columns of the left side that the right side uses.
func (b *queryBinder) paired(at syntax.TableRef, left, right *Relation, outer []rel.ID) (*Relation, error) {
	left, right, err := b.apart(at, left, right)
	if err != nil {
		return nil, err
	}
	out := &Relation{columns: slices.Concat(left.columns, right.columns),
		unreadable: slices.Concat(left.unreadable, right.unreadable)}
	if len(outer) > 0 {
		out.node = rel.NewApply(b.here(), join.Inner, left.node, right.node, outer, nil, rel.None)
		return out, nil
	}
	c := joinCondition{}
	n, err := c.build(b.here(), left.node, right.node, rel.JoinSpec{Kind: join.Inner})
	if err != nil {
		return nil, err
	}
	out.node = n
	return out, nil
}

// apart returns the sides of a join without a common column, and refuses two tables of one name.
func (b *queryBinder) apart(at syntax.TableRef, left, right *Relation) (_, _ *Relation, err error) {
	if rel.Shares(left.node, right.node) {
		right = b.copied(right)
	}
	names := namesOf(left)
	for _, c := range right.columns {
		if c.tables != nil && names.has(c.tables.First()) {
			return nil, nil, syntax.NewError(b.step.SQL, at.Pos(),
				"there are two tables %q; give one of them another name, as in %s AS other", c.tables.First(),
				c.tables.First())
		}
	}
	return left, right, nil
}

// tableRef binds a table of FROM. left are the tables before it, nil for none; a query may use their columns, which are
// returned then.
func (b *queryBinder) tableRef(t syntax.TableRef, l *level, left *Relation) (r *Relation, outer []rel.ID, err error) {
	switch t := t.(type) {
	case *syntax.TableName:
		r, err = b.tableName(t, l)
	case *syntax.TableFunction:
		r, err = b.function(t, l)
	case *syntax.TableQuery:
		return b.tableQuery(t, l, left)
	case *syntax.JoinedTable:
		r, err = b.joined(t, l)
	case *syntax.Pivot:
		if r, err = b.pivot(t, l); err == nil {
			r, err = b.withAlias(t, r, "", t.Alias)
		}
	case *syntax.Unpivot:
		if r, err = b.unpivot(t, l); err == nil {
			r, err = b.withAlias(t, r, "", t.Alias)
		}
	}
	return r, nil, err
}

// withAlias gives a table and its columns other names.
func (b *queryBinder) withAlias(at syntax.TableRef, r *Relation, name string, a syntax.Alias) (*Relation, error) {
	if a.Sample != nil {
		n, err := b.sampled(r.node, a.Sample)
		if err != nil {
			return nil, err
		}
		r = r.over(n)
	}
	if len(a.Columns) > len(r.columns) {
		return nil, syntax.NewError(b.step.SQL, at.Pos(), "the table has %d columns, and %d names are given",
			len(r.columns),
			len(a.Columns))
	}
	if len(a.Columns) > 0 {
		unreadable := r.unreadable
		r = b.renamed(r, a.Columns)
		r.unreadable = unreadable
	}
	if a.Name != "" {
		name = a.Name
	}
	tables := expr.TablesOf(name)
	if name == "" {
		tables = nil
	}
	r = withTables(known(r, name), func(*expr.Tables) *expr.Tables { return tables })
	return r, nil
}

// tableName binds a table by its name: a common table expression, a view, a source, an earlier step, or a file.
func (b *queryBinder) tableName(t *syntax.TableName, l *level) (*Relation, error) {
	name := strings.Join(t.Parts, ".")
	if len(t.Parts) == 1 && !t.Path {
		if q := l.catalog.find(name); q != nil {
			r, err := b.reading(t, q, l)
			if err != nil {
				return nil, err
			}
			return b.withAlias(t, r, q.Name, t.Alias)
		}
	}
	key := b.tableKey(name)
	short := key
	if key == "" {
		if key, _ = job.TableFiles(t); key == "" {
			var names []string
			for n := range b.named {
				names = append(names, n)
			}
			for c := l.catalog; c != nil; c = c.outer {
				for _, q := range c.tables {
					names = append(names, q.Name)
				}
			}
			slices.Sort(names)
			if err := b.readsItself(t, name); err != nil {
				return nil, err
			}
			return nil, mistake(t, "there is no table %q%s; a file is a table by its path in quotes, as in FROM "+
				"'x.parquet'", name, job.DidYouMean(name, names))
		}
		short = strings.TrimSuffix(path.Base(key), path.Ext(key))
	}
	r, err := b.read(t, key)
	if err != nil {
		return nil, err
	}
	return b.withAlias(t, r, short, t.Alias)
}

// tableKey finds a source or an earlier step by its name, in any case.
func (b *queryBinder) tableKey(name string) (key string) {
	if _, ok := b.named[name]; ok {
		return name
	}
	for n := range b.named {
		if strings.EqualFold(n, name) && (key == "" || n < key) {
			key = n
		}
	}
	return key
}

// errFaulty is the mistake of a table whose own mistake is listed already.
var errFaulty = errors.New("a table has a mistake")

// read returns the rows of a source or a step for one more reader.
func (b *queryBinder) read(at *syntax.TableName, key string) (*Relation, error) {
	r, ok := b.named[key]
	if !ok {
		return nil, mistake(at, "there is no table %q", key)
	}
	if r == nil {
		return nil, errFaulty
	}
	if scan, ok := r.node.(*rel.Scan); ok { // each reader has a scan of its own, which reads what the reader needs
		return b.source(key, scan.Table), nil
	}
	return b.copied(r), nil
}

// reading returns the rows of a named query for one more reader.
func (b *queryBinder) reading(at *syntax.TableName, q *namedQuery, l *level) (*Relation, error) {
	if q.recursion != nil {
		return b.workingTable(q.recursion), nil
	}
	if q.bound == nil {
		if slices.Contains(b.binds, q) {
			return nil, mistake(at, "%q can read itself only after its last UNION or UNION ALL: write WITH RECURSIVE "+
				"%s AS (SELECT … UNION ALL SELECT … FROM %s), with parentheses around several parts that read it",
				q.Name, q.Name, q.Name)
		}
		b.binds = append(b.binds, q)
		defer func() { b.binds = b.binds[:len(b.binds)-1] }()
		around := &level{outer: q.level, free: map[rel.ID]bool{}, catalog: q.around}
		r, err := b.boundQuery(q.Query, around)
		if err != nil {
			return nil, err
		}
		if err := q.checkNames(r); err != nil {
			return nil, err
		}
		if len(q.Columns) > 0 {
			r = b.renamed(r, q.Columns)
		}
		hold := q.readers > 1 && (worthHolding(r.node) || nodes(r.node, map[rel.Node]int{}) > maxCopied)
		if q.Materialized != nil && q.union == nil {
			hold = q.readers > 1 && *q.Materialized
		}
		if hold && len(around.free) == 0 {
			r = r.over(rel.NewMaterialized(r.node, &rel.Share{Step: fmt.Sprintf("%s: %s", b.name, q.Name)}))
		}
		q.bound, q.free = r, around.free
	}
	for at := l; at != nil && at != q.level; at = at.outer {
		for id := range q.free {
			at.free[id] = true
		}
	}
	return b.copied(q.bound), nil
}

// checkNames returns an error if a query has more names of columns than columns.
func (q *namedQuery) checkNames(r *Relation) error {
	if len(q.Columns) > len(r.columns) {
		return mistake(q.CTE, "%q has %d columns, and %d names are given", q.Name, len(r.columns), len(q.Columns))
	}
	return nil
}

// tableQuery binds a query in FROM, which may use the columns of the tables before it.
func (b *queryBinder) tableQuery(t *syntax.TableQuery, l *level, left *Relation) (*Relation, []rel.ID, error) {
	around := &level{outer: l.outer, free: l.free, catalog: l.catalog}
	var outer []rel.ID
	var r *Relation
	var err error
	if left == nil {
		q := &level{outer: l.outer, free: l.free, catalog: l.catalog}
		r, err = b.boundQuery(t.Query, q)
	} else {
		around.names, around.node = left, left.node
		r, outer, err = b.inner(around, t.Query)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err = b.withAlias(t, r, "", t.Alias)
	return r, outer, err
}

// positional joins the rows of two tables by their positions. The shorter one gets nulls.
func (b *queryBinder) positional(t *syntax.JoinedTable, left, right *Relation, outer []rel.ID) (*Relation, error) {
	if len(outer) > 0 {
		return nil, mistake(t, "the right side of a POSITIONAL JOIN cannot use columns of the left side")
	}
	left, right, err := b.apart(t.Right, left, right)
	if err != nil {
		return nil, err
	}
	l, x := ranked(b.here(), left.node, nil, nil)
	r, y := ranked(b.here(), right.node, nil, nil)
	n := rel.NewJoin(b.here(), l, r, rel.JoinSpec{Kind: join.Full, LeftKeys: []rel.ID{x}, RightKeys: []rel.ID{y},
		NullSafe: []bool{false}})
	out := &Relation{node: n, columns: slices.Concat(left.columns, right.columns),
		unreadable: slices.Concat(left.unreadable, right.unreadable)}
	if t.Name == "" {
		return out, nil
	}
	return b.withAlias(t, out, "", t.Alias)
}

// joined binds a join.
func (b *queryBinder) joined(t *syntax.JoinedTable, l *level) (*Relation, error) {
	if out, ok, err := b.unnestJoin(t, l); ok || err != nil {
		return out, err
	}
	left, _, err := b.tableRef(t.Left, l, nil)
	if err != nil {
		return nil, err
	}
	right, outer, err := b.tableRef(t.Right, l, left)
	if err != nil {
		return nil, err
	}
	if t.Kind == "POSITIONAL" {
		return b.positional(t, left, right, outer)
	}
	if left, right, err = b.apart(t.Right, left, right); err != nil {
		return nil, err
	}
	out, err := b.joinedOn(t, l, left, right, outer)
	if err != nil {
		return nil, err
	}
	if t.Name == "" {
		return out, nil
	}
	return b.withAlias(t, out, "", t.Alias)
}

var sqlJoins = map[string]join.Kind{"INNER": join.Inner, "": join.Inner, "CROSS": join.Inner, "LEFT": join.Left,
	"RIGHT": join.Right, "FULL": join.Full, "SEMI": join.Semi, "ANTI": join.Anti}

func (b *queryBinder) joinedOn(t *syntax.JoinedTable, l *level, left, right *Relation, outer []rel.ID) (*Relation,
	error) {
	kind := sqlJoins[t.Kind]
	if len(outer) > 0 && (t.AsOf || rel.KeepsRight(kind)) {
		what := t.Kind
		if t.AsOf {
			what = "ASOF"
		}
		return nil, mistake(t, "the right side of a join of the kind %s cannot use columns of the left side", what)
	}
	var c joinCondition
	using := t.Using
	if t.Natural {
		for _, name := range left.names() {
			if len(b.scope(right).Named(name)) > 0 {
				using = append(using, name)
			}
		}
		if len(using) == 0 {
			return nil, mistake(t, "the tables of a NATURAL join have no column of one name")
		}
	}
	for _, name := range using {
		if err := b.usingColumns(t, &c, left, right, name); err != nil {
			return nil, err
		}
	}
	both := &Relation{node: rel.NewJoin(b.here(), left.node, right.node, rel.JoinSpec{Kind: join.Inner}),
		columns: slices.Concat(left.columns, right.columns), unreadable: slices.Concat(left.unreadable,
			right.unreadable)}
	var conditions []*expr.Expr
	for i := range c.left {
		x, y, err := sameType(c.left[i], c.right[i])
		if err != nil {
			return nil, mistake(t, "%v", err)
		}
		conditions = append(conditions, expr.Equal(x, y, false))
	}
	if t.On != nil {
		on := &level{outer: l.outer, names: both, node: both.node, free: l.free, catalog: l.catalog}
		e, err := b.bound(on, t.On)
		if err == nil {
			e, err = truth(t.On, e, "ON")
		}
		if err != nil {
			return nil, err
		}
		if on.node != both.node { // a subquery has added columns to the pairs
			return b.joinedBySubquery(t, l, left, right, outer)
		}
		conditions = append(conditions, expr.Conjuncts(e)...)
	}
	out := both
	if !kind.Pairs() {
		out = left
	}
	switch {
	case t.AsOf:
		n, err := b.asofJoin(t, left, right, conditions, len(using))
		if err != nil {
			return nil, err
		}
		out = out.over(n)
	case len(outer) > 0:
		out = out.over(rel.NewApply(b.here(), kind, left.node, right.node, outer, conditions, rel.None))
	default:
		c.left, c.right, c.nullSafe = nil, nil, nil
		for _, e := range conditions {
			c.add(e, left.node, right.node)
		}
		n, err := c.build(b.here(), left.node, right.node, rel.JoinSpec{Kind: kind})
		if err != nil {
			return nil, mistake(t, "%v", err)
		}
		out = out.over(n)
	}
	if len(c.using) > 0 && kind.Pairs() {
		merged, err := c.merged(b.estimator, b.here(), out, len(left.columns), kind)
		if err != nil {
			return nil, mistake(t, "%v", err)
		}
		return b.bothTables(merged, &c, right, kind), nil
	}
	return out, nil
}

// bothTables lets the columns of USING be qualified by both tables. After an inner join they are equal.
func (b *queryBinder) bothTables(r *Relation, c *joinCondition, right *Relation, kind join.Kind) *Relation {
	if kind != join.Inner {
		return r
	}
	out := r.over(r.node)
	out.columns = slices.Clone(r.columns)
	for _, u := range c.using {
		col := &out.columns[u[0]]
		for _, name := range slices.Backward(right.columns[u[1]].tables.Names()) {
			if first := col.tables.First(); first != "" {
				col.tables = col.tables.Older().With(name).With(first)
			} else {
				col.tables = col.tables.With(name)
			}
		}
	}
	return out
}

// usingColumns adds a column of USING.
func (b *queryBinder) usingColumns(t *syntax.JoinedTable, c *joinCondition, left, right *Relation, name string) error {
	find := func(r *Relation, side string) (int, error) {
		found := b.scope(r).Named(name)
		switch len(found) {
		case 1:
			return found[0], nil
		case 0:
			if u, ok := r.findUnreadable("", name); ok {
				return 0, mistake(t, "%v", u)
			}
			return 0, mistake(t, "the %s side of the join has no column %q%s", side, name,
				job.DidYouMean(name, r.names()))
		}
		return 0, mistake(t, "the %s side of the join has %d columns %q; use ON", side, len(found), name)
	}
	x, err := find(left, "left")
	if err != nil {
		return err
	}
	y, err := find(right, "right")
	if err != nil {
		return err
	}
	c.left, c.right = append(c.left, expr.Column(b.scope(left), x)), append(c.right, expr.Column(b.scope(right), y))
	c.nullSafe = append(c.nullSafe, false)
	c.using = append(c.using, [2]int{x, y})
	return nil
}
