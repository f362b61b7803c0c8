package rel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/operators/window"
	"github.com/gstream/gstream/source"
)

// table has the BIGINT columns a and b, and the VARCHAR column t.
type table struct{ source.Table }

func (table) Schema() *gpu.Schema {
	return gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "b", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "t", Type: gpu.Of(gpu.String)})
}

func (table) Scan(context.Context, source.ScanOptions) (source.Reader, error) {
	panic("a tree reads nothing")
}

func step(name string) expr.Origin { return expr.Origin{Step: name} }

// trees makes two scans of one query.
func trees() (m *Metadata, x, y *Scan) {
	m = &Metadata{}
	return m, NewScan(m, step("x"), table{}), NewScan(m, step("y"), table{})
}

func equalKeys(left, right ID) JoinSpec {
	return JoinSpec{Kind: join.Inner, LeftKeys: []ID{left}, RightKeys: []ID{right}, NullSafe: []bool{false}}
}

func TestCheckFindsWhatDoesNotFit(t *testing.T) {
	m, x, y := trees()
	a, b, text := x.Columns[0], x.Columns[1], x.Columns[2]
	other := y.Columns[0]
	fresh := m.Add(Column{Field: gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)}})
	count := func(out ID) []Aggregate {
		return []Aggregate{{Out: out, Kind: gpu.CountAll, Input: None, Output: gpu.Of(gpu.Int64)}}
	}
	between := func(r Range) *Join { return NewJoin(step("j"), x, y, JoinSpec{Kind: join.Inner, Range: &r}) }
	long := gpu.IntScalar(gpu.Of(gpu.Int64), 1)
	found := m.Add(Column{Field: gpu.Field{Name: "found", Type: gpu.Of(gpu.Bool), Nullable: true}})
	surely := m.Add(Column{Field: gpu.Field{Name: "surely", Type: gpu.Of(gpu.Bool)}})
	unknown := func(kind join.Kind, aware, safe bool, mark ID) *Join {
		return NewJoin(step("j"), x, y, JoinSpec{Kind: kind, LeftKeys: []ID{a}, RightKeys: []ID{other},
			NullSafe: []bool{safe}, NullAware: []bool{aware}, Mark: mark})
	}
	correlated := []*expr.Expr{expr.Equal(x.Expr(a), y.Expr(other), false)}
	apply := func(kind join.Kind, right Node, outer ...ID) *Apply {
		return NewApply(step("a"), kind, x, right, outer, nil, None)
	}
	for _, c := range []struct {
		n    Node
		want string // "" fits
	}{
		{NewFilter(step("f"), x, []*expr.Expr{expr.Equal(x.Expr(a), x.Expr(b), false)}), ""},
		{NewFilter(step("f"), x, []*expr.Expr{expr.Equal(x.Expr(a), y.Expr(other), false)}),
			`filter (a = a) [f]: column "a" (3) of an expression is not below it`},
		{NewFilter(step("f"), x, []*expr.Expr{x.Expr(a).Remap(func(ID) ID { return text })}),
			`column "a" is BIGINT in an expression and VARCHAR below it`},
		{NewProject(step("p"), x, []ID{a, fresh}, []*expr.Expr{x.Expr(a), x.Expr(b)}), ""},
		{NewProject(step("p"), x, []ID{a}, []*expr.Expr{x.Expr(b)}),
			"project b as a [p]: it computes column x.a (0), which its input has"},
		{NewProject(step("p"), x, []ID{fresh}, []*expr.Expr{x.Expr(text)}),
			"it computes VARCHAR as column n of BIGINT"},
		{NewProject(step("p"), x, []ID{fresh}, nil), "project  [p]: it computes 0 of 1 columns"},
		{NewProject(step("p"), x, []ID{a, a}, x.Exprs([]ID{a, a})), "it has column x.a (0) twice"},
		{NewJoin(step("j"), x, y, equalKeys(a, other)), ""},
		{NewJoin(step("j"), x, x, equalKeys(a, a)), "it has column x.a (0) twice"},
		{NewJoin(step("j"), x, x, JoinSpec{Kind: join.Semi}), "both sides have one column"},
		{NewJoin(step("j"), x, y, equalKeys(other, other)), "it uses column y.a (3), which scan does not have"},
		{NewJoin(step("j"), x, y, equalKeys(a, a)), "it uses column x.a (0), which scan does not have"},
		{NewJoin(step("j"), x, y, equalKeys(text, other)), "it compares VARCHAR and BIGINT"},
		{NewJoin(step("j"), x, y, JoinSpec{LeftKeys: []ID{a}}), "it has 1 and 0 keys"},
		{between(Range{Left: true, Key: a, Lower: other, Upper: None}), ""},
		{between(Range{Left: true, Key: other, Lower: other, Upper: None}), "which scan does not have"},
		{between(Range{Left: true, Key: a, Lower: None, Upper: b}), "which scan does not have"},
		{NewExpand(step("e"), x, []Copy{{fresh, a}}, [][]ID{{fresh}, nil}, None), ""},
		{NewExpand(step("e"), x, []Copy{{fresh, other}}, nil, None), "which scan does not have"},
		{NewExpand(step("e"), x, []Copy{{b, a}}, nil, None), "it has column x.b (1) twice"},
		{NewExpand(step("e"), x, []Copy{{fresh, a}}, [][]ID{{b}}, None),
			"a variant has null for column x.b, which is no copy"},
		{NewGroup(step("g"), x, []ID{a}, count(fresh), nil, ""), ""},
		{NewGroup(step("g"), x, []ID{other}, count(fresh), nil, ""), "which scan does not have"},
		{NewGroup(step("g"), x, []ID{a}, count(b), nil, ""), "it makes column x.b (1), which its input has"},
		{NewWindow(step("w"), x, []ID{other}, nil, nil, nil), "which scan does not have"},
		{NewWindow(step("w"), x, nil, []SortKey{{Column: other}}, nil, nil), "which scan does not have"},
		{NewWindow(step("w"), x, nil, nil,
			[]window.Function{{Kind: window.RowNumber, Value: -1, Offset: -1, Default: -1}}, nil),
			"it has 1 functions and makes 0 columns"},
		{NewSort(step("s"), x, []SortKey{{Column: other}}, 0, -1), "which scan does not have"},
		{NewUnion(step("u"), []Node{x, y}, [][]ID{{a}, {other}}, []ID{fresh}), ""},
		{NewUnion(step("u"), []Node{x, x}, [][]ID{{a}, {b}}, []ID{fresh}), ""},
		{NewUnion(step("u"), []Node{x, y}, [][]ID{{a}, {text}}, []ID{fresh}), "which scan does not have"},
		{NewUnion(step("u"), []Node{x, y}, [][]ID{{text}, {other}}, []ID{fresh}),
			"column n is VARCHAR in an input and BIGINT in the union"},
		{NewUnion(step("u"), []Node{x}, [][]ID{{a, b}}, []ID{fresh}), "it takes 2 columns of an input and has 1"},
		{NewUnion(step("u"), []Node{x}, nil, []ID{fresh}), "it has 1 inputs and takes columns of 0"},
		{NewValues(m, step("v"), []ID{a, text}, [][]gpu.Scalar{{long, gpu.StringScalar("x")}}), ""},
		{NewValues(m, step("v"), []ID{a, text}, [][]gpu.Scalar{{long}}), "row 0 has 1 values for 2 columns"},
		{NewValues(m, step("v"), []ID{text}, [][]gpu.Scalar{{long}}),
			"row 0 has a value of BIGINT for column x.t of VARCHAR"},
		{NewValues(m, step("v"), []ID{a}, [][]gpu.Scalar{{gpu.Null(gpu.Of(gpu.Int64))}}),
			"1 rows of values: a [v]: row 0 has a null for column x.a, which has none"},
		{NewSetOperation(step("s"), Except, true, x, y, []ID{a}, []ID{other}, []ID{fresh}), ""},
		{NewSetOperation(step("s"), UnionOf, false, x, y, []ID{a}, []ID{a}, []ID{fresh}), "which scan does not have"},
		{NewSetOperation(step("s"), Except, false, x, y, []ID{a, b}, []ID{other}, []ID{fresh}),
			"except: n [s]: it takes 2 columns of an input and has 1"},
		{NewSetOperation(step("s"), Intersect, true, x, y, []ID{a}, []ID{other}, []ID{text}),
			"intersect all: t [s]: column x.t is BIGINT in an input and VARCHAR in the intersect"},
		{unknown(join.Anti, true, false, None), ""},
		{unknown(join.Mark, true, false, found), ""},
		{unknown(join.Mark, true, false, surely), "its mark may be unknown, but is not nullable"},
		{unknown(join.Semi, true, false, None), "a null in a key is unknown only to an anti or a mark join"},
		{unknown(join.Anti, true, true, None), "a null in a key is unknown only to an anti or a mark join"},
		{NewJoin(step("j"), x, y, JoinSpec{Kind: join.Anti, LeftKeys: []ID{a}, RightKeys: []ID{other},
			NullSafe: []bool{false}, NullAware: []bool{true, true}}),
			"it has 1 keys and says of 2 whether nulls are unknown"},
		{apply(join.Left, NewFilter(step("f"), y, correlated), a), ""},
		{apply(join.Semi, NewProject(step("p"), y, []ID{fresh}, []*expr.Expr{x.Expr(a)}), a), ""},
		{apply(join.Left, NewFilter(step("f"), y, correlated)),
			`filter (a = a) [f]: column "a" (0) of an expression is not below it`},
		{apply(join.Left, y, fresh), "it uses column n (6), which scan does not have"},
		{apply(join.Left, NewSort(step("s"), y, []SortKey{{Column: a}}, 0, -1), a), "which scan does not have"},
		{apply(join.Inner, apply(join.Inner, NewFilter(step("f"), y, correlated), a), a),
			"it has column x.a (0) twice"},
		{NewApply(step("o"), join.Inner, x, NewApply(step("i"), join.Semi, NewScan(m, step("z"), table{}),
			NewFilter(step("f"), y, correlated), []ID{a}, nil, None), []ID{a}, nil, None), ""},
		{apply(join.Semi, x), "both sides have one column"},
		{apply(join.Full, y), "so it cannot keep them all"},
		{apply(join.Mark, y), "only a mark join has a mark"},
		{NewApply(step("a"), join.Mark, x, y, nil, correlated, found), ""},
		{NewApply(step("a"), join.Mark, x, y, nil,
			[]*expr.Expr{x.Expr(text).Remap(func(ID) ID { return other })}, found),
			`column "t" is VARCHAR in an expression and BIGINT below it`},
		{NewLimit(step("l"), NewSort(step("s"), x, []SortKey{{Column: other}}, 0, -1), 0, 1), "sort by a [s]"},
	} {
		err := Check(Output{c.n, c.n.Rel().Columns})
		if c.want == "" {
			require.NoError(t, err, Print(c.n))
		} else {
			require.ErrorContains(t, err, c.want, Print(c.n))
		}
	}
	require.ErrorContains(t, Check(Output{x, []ID{other}}), "it uses column y.a (3), which scan does not have")
	require.NoError(t, SameRows(Output{x, []ID{a}}, Output{x, []ID{a}}))
	require.ErrorContains(t, SameRows(Output{x, []ID{a}}, Output{x, []ID{b}}), "columns [0] became [1]")
	require.ErrorContains(t, SameRows(Output{x, []ID{a}}, Output{y, []ID{a}}), "which scan does not have")
}

func TestOuterJoinsFillColumnsWithNulls(t *testing.T) {
	_, x, y := trees()
	a, other := x.Columns[0], y.Columns[0]
	for kind, want := range map[join.Kind][2]bool{join.Inner: {false, false}, join.Left: {false, true},
		join.Right: {true, false}, join.Full: {true, true}} {
		spec := equalKeys(a, other)
		spec.Kind = kind
		j := NewJoin(step("j"), x, y, spec)
		for _, n := range []*Relation{j.Rel(), NewLimit(step("l"), j, 0, 1).Rel()} {
			require.Equal(t, want, [2]bool{n.Field(a).Nullable, n.Field(other).Nullable}, kind)
		}
		require.False(t, x.Field(a).Nullable, "only above the join")
	}
}

func TestRewritingKeepsWhatIsShared(t *testing.T) {
	_, x, y := trees()
	f := NewFilter(step("f"), x, []*expr.Expr{expr.Equal(x.Expr(x.Columns[0]), x.Expr(x.Columns[1]), false)})
	renamed, ids := Renamed(f, x.Columns[:1], "again")
	j := NewJoin(step("j"), f, renamed, equalKeys(x.Columns[0], ids[0]))
	require.False(t, Shares(f, renamed))
	require.Equal(t, "inner join x.a = again.a [j]\n  filter (a = b) [f]\n    scan [x]\n"+
		"  project a [f]\n    filter (a = b) [f]\n      scan [x]\n", Print(j))
	rewrite := Remembered(func(n Node, again func(Node) Node) Node {
		if n, ok := n.(*Scan); ok {
			s := *n
			return &s
		}
		return WithInputs(n, again)
	})
	out := rewrite(j).(*Join)
	require.NotSame(t, f, out.Left)
	require.Same(t, out.Left, out.Right.(*Project).In)
	require.Same(t, y, WithInputs(y, rewrite), "a node whose inputs stay is the same")
	require.Same(t, j, WithInputs(j, func(n Node) Node { return n }))
}

// TestPrintOfNodesThatOnlySQLMakes prints a tree with each of them, and keeps them when what is below changes.
func TestPrintOfNodesThatOnlySQLMakes(t *testing.T) {
	m, x, y := trees()
	a, b, other := x.Columns[0], x.Columns[1], y.Columns[0]
	column := func(name string, typ gpu.Type) ID {
		return m.Add(Column{Field: gpu.Field{Name: name, Type: typ, Nullable: true}})
	}
	v := NewValues(m, step("v"), []ID{column("v", gpu.Of(gpu.Int64))}, make([][]gpu.Scalar, 2))
	s := NewSetOperation(step("s"), Except, true, y, v, []ID{other}, v.Columns, []ID{column("d", gpu.Of(gpu.Int64))})
	f := NewFilter(step("f"), s, []*expr.Expr{expr.Equal(s.Expr(s.Columns[0]), x.Expr(a), false)})
	mark := column("found", gpu.Of(gpu.Bool))
	apply := NewApply(step("a"), join.Mark, x, f, []ID{a},
		[]*expr.Expr{expr.Equal(x.Expr(b), s.Expr(s.Columns[0]), false)}, mark)
	w := NewValues(m, step("w"), []ID{column("w", gpu.Of(gpu.Int64))}, nil)
	j := NewJoin(step("j"), apply, w, JoinSpec{Kind: join.Anti, LeftKeys: []ID{a}, RightKeys: w.Columns,
		NullSafe: []bool{false}, NullAware: []bool{true}})
	want := `anti join a = w or unknown [j]
  mark apply of a if (b = d) [a]
    scan [x]
    filter (d = a) [f]
      except all: d [s]
        scan [y]
        2 rows of values: v [v]
  0 rows of values: w [w]
`
	require.Equal(t, want, Print(j))
	rewrite := Remembered(func(n Node, again func(Node) Node) Node {
		if n, ok := n.(*Scan); ok {
			s := *n
			return &s
		}
		return WithInputs(n, again)
	})
	out := rewrite(j)
	require.NotSame(t, j, out)
	require.Equal(t, want, Print(out))
	require.Equal(t, []ID{x.Columns[0], b, x.Columns[2], mark}, out.Rel().Columns)
	require.True(t, apply.Right.Rel().Field(s.Columns[0]).Nullable)
}

func TestColumnsOfARelationAreFound(t *testing.T) {
	m, x, y := trees()
	require.False(t, Shares(x, y))
	j := NewJoin(step("j"), x, y, equalKeys(x.Columns[0], y.Columns[0]))
	require.True(t, Shares(j, y))
	require.True(t, Shares(y, j))
	many := m.Add(Column{Field: gpu.Field{Name: "n"}})
	for _, ids := range [][]ID{x.Columns, append(j.Columns[:6:6], j.Columns...)} { // few and many
		require.True(t, j.HasAll(ids))
		require.False(t, j.HasAll(append(ids[:len(ids):len(ids)], many)))
	}
}
