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
