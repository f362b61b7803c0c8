package pipeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/exprtest"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// Nodes that no job makes: SQL will. Their trees are made by hand, over values.

// null is the null of values.
const null = -1 << 63

// values makes a table of BIGINT columns.
func values(m *rel.Metadata, name, columns string, rows ...[]int64) *rel.Values {
	var ids []rel.ID
	for _, c := range strings.Fields(columns) {
		ids = append(ids, m.Add(rel.Column{Field: gpu.Field{Name: c, Type: gpu.Of(gpu.Int64), Nullable: true},
			Table: name}))
	}
	scalars := make([][]gpu.Scalar, len(rows))
	for i, row := range rows {
		for _, v := range row {
			if v == null {
				scalars[i] = append(scalars[i], gpu.Null(gpu.Of(gpu.Int64)))
			} else {
				scalars[i] = append(scalars[i], gpu.IntScalar(gpu.Of(gpu.Int64), v))
			}
		}
	}
	return rel.NewValues(m, expr.Origin{Step: name}, ids, scalars)
}

// sqlValues is the query of the table that values makes.
func sqlValues(columns string, rows [][]int64) string {
	var texts []string
	names := strings.Fields(columns)
	for _, row := range rows {
		var list []string
		for _, v := range row {
			if v == null {
				list = append(list, "NULL::BIGINT")
			} else {
				list = append(list, fmt.Sprintf("%d::BIGINT", v))
			}
		}
		texts = append(texts, "("+strings.Join(list, ", ")+")")
	}
	if len(rows) == 0 {
		list := strings.Join(slices.Repeat([]string{"NULL::BIGINT"}, len(names)), ", ")
		return fmt.Sprintf("SELECT * FROM (SELECT %s LIMIT 0) t(%s)", list, strings.Join(names, ", "))
	}
	return fmt.Sprintf("SELECT * FROM (VALUES %s) t(%s)", strings.Join(texts, ", "), strings.Join(names, ", "))
}

// lowered checks a tree after each rule, and encodes and decodes its physical plan.
func lowered(t *testing.T, o rel.Output) (*Plan, error) {
	t.Helper()
	require.NoError(t, rel.Check(o), rel.Print(o.Root))
	e := logical.NewEstimator(t.Context())
	o = logical.Optimize(e, o, logical.Options{Applied: func(r logical.Rule, before, after rel.Output) {
		require.NoError(t, rel.Check(after), "after %s:\n%s\nbefore:\n%s", r.Name, rel.Print(after.Root),
			rel.Print(before.Root))
		require.NoError(t, rel.SameRows(before, after), r.Name)
	}})
	stages, err := physical.Lower("tree", e, o)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(stages)
	require.NoError(t, err)
	decoded := &physical.Plan{}
	require.NoError(t, json.Unmarshal(data, decoded))
	return &Plan{stages: decoded, targets: []Target{&collected{}}}, nil
}

// treeRows returns the rows of a tree on a device, sorted.
func treeRows(t *testing.T, o rel.Output, d gpu.Device) ([][]string, error) {
	t.Helper()
	p, err := lowered(t, o)
	require.NoError(t, err)
	_, err = p.Run(t.Context(), RunOptions{Device: d})
	out := p.targets[0].(*collected)
	rows := normalized(out.rows, out.types)
	slices.SortFunc(rows, slices.Compare)
	return rows, err
}

func shortStrides(t *testing.T) gpu.Device {
	d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 28})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return smallStrides{d, 2}
}

var leftRows, rightRows = [][]int64{{1, 1}, {1, 1}, {1, 2}, {2, null}, {2, null}, {2, null}, {null, 1}, {null, null},
	{3, 3}, {4, 1}}, [][]int64{{1, 1}, {2, null}, {2, null}, {null, null}, {5, 3}, {null, 2}, {3, 4}}

// sidesOf are the right sides of the tests: with nulls, without, only nulls, and empty.
var rightSides = [][][]int64{rightRows, {{1, 1}, {2, 3}, {5, 2}}, {{null, 1}}, nil}

func TestSetOperationsGiveDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	duck, d := exprtest.StartDuckDB(t), shortStrides(t)
	for _, right := range rightSides {
		for _, op := range []rel.SetOp{rel.UnionOf, rel.Intersect, rel.Except} {
			for _, all := range []bool{false, true} {
				m := &rel.Metadata{}
				l, r := values(m, "l", "a b", leftRows...), values(m, "r", "c d", right...)
				made := values(m, "s", "x y").Columns
				s := rel.NewSetOperation(expr.Origin{Step: "s"}, op, all, l, r, l.Columns, r.Columns, made)
				sql := sqlValues("a b", leftRows) + map[bool]string{false: " " + op.String() + " ",
					true: " " + op.String() + " ALL "}[all] + sqlValues("c d", right)
				positive := rel.NewFilter(expr.Origin{Step: "f"}, s, bound("x > 1", s, made[0]))
				for sql, n := range map[string]rel.Node{sql: s,
					fmt.Sprintf("SELECT * FROM (%s) u(x, y) WHERE x > 1", sql): positive} {
					answer := duck.Ask(exprtest.Question{SQL: sql})[0]
					require.Empty(t, answer.Error, sql)
					got, err := treeRows(t, rel.Output{Root: n, Columns: made}, d)
					require.NoError(t, err, sql)
					want := normalized(answer.Rows, []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Int64)})
					slices.SortFunc(want, slices.Compare)
					require.Equal(t, want, got, sql)
				}
			}
		}
	}
}

// bound binds a condition over columns of a node.
func bound(text string, in rel.Node, columns ...rel.ID) []*expr.Expr {
	n, err := syntax.Parse(text)
	if err != nil {
		panic(err)
	}
	e, err := expr.Bind(n, &expr.Scope{Schema: in.Rel().Schema(columns), IDs: columns})
	if err != nil {
		panic(err)
	}
	return expr.Conjuncts(e)
}

// unknownKeys are the joins of the tests: keys of l (a, b) and r (c, d), and the same in SQL.
var unknownKeys = map[string]struct {
	keys, unknown string // positions of the columns that are compared, and which comparisons may be unknown
	safe          bool   // the second key is compared with IS NOT DISTINCT FROM
	residual      bool   // b <= d
	in            string
}{
	"a key":                 {"0", "+", false, false, "a IN (SELECT c FROM r)"},
	"correlated":            {"01", "+-", false, false, "a IN (SELECT c FROM r WHERE d = b)"},
	"correlated, null-safe": {"01", "+-", true, false, "a IN (SELECT c FROM r WHERE d IS NOT DISTINCT FROM b)"},
	"correlated by a bound": {"0", "+", false, true, "a IN (SELECT c FROM r WHERE b <= d)"},
	"correlated by both":    {"01", "+-", false, true, "a IN (SELECT c FROM r WHERE b <= d AND b = d)"},
	"two keys, both unknown": {"01", "++", false, false, "CASE WHEN EXISTS (SELECT 1 FROM r WHERE a = c AND b = d) " +
		"THEN true WHEN EXISTS (SELECT 1 FROM r WHERE coalesce(a = c, true) AND coalesce(b = d, true)) THEN NULL " +
		"ELSE false END"},
}

// unknownJoin makes a join of unknownKeys. Its output has the columns of the left side, and the mark of a mark join.
// The rows of a right side that is grouped are worth holding.
func unknownJoin(name string, kind join.Kind, right [][]int64, grouped bool) rel.Output {
	c, m := unknownKeys[name], &rel.Metadata{}
	l, v := values(m, "l", "a b", leftRows...), values(m, "r", "c d", right...)
	r, columns := rel.Node(v), v.Columns
	if grouped {
		r = rel.NewGroup(expr.Origin{Step: "g"}, v, columns, nil, nil, "")
	}
	spec := rel.JoinSpec{Kind: kind, Mark: rel.None}
	for i, at := range c.keys {
		spec.LeftKeys = append(spec.LeftKeys, l.Columns[at-'0'])
		spec.RightKeys = append(spec.RightKeys, columns[at-'0'])
		spec.NullSafe = append(spec.NullSafe, c.safe && i == 1)
		spec.NullAware = append(spec.NullAware, c.unknown[i] == '+')
	}
	if c.residual {
		both := rel.NewJoin(expr.Origin{}, l, r, rel.JoinSpec{Kind: join.Inner})
		spec.Residual = bound("b <= d", both, l.Columns[1], columns[1])
	}
	columns = slices.Clone(l.Columns)
	if kind == join.Mark {
		spec.Mark = m.Add(rel.Column{Field: gpu.Field{Name: "found", Type: gpu.Of(gpu.Bool), Nullable: true}})
		columns = append(columns, spec.Mark)
	}
	return rel.Output{Root: rel.NewJoin(expr.Origin{Step: "j"}, l, r, spec), Columns: columns}
}

func TestUnknownKeysGiveDuckDBsRows(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	duck, d := exprtest.StartDuckDB(t), shortStrides(t)
	for name, c := range unknownKeys {
		for _, right := range rightSides {
			for _, kind := range []join.Kind{join.Anti, join.Mark} {
				sql := fmt.Sprintf("WITH l AS (%s), r AS (%s) SELECT *", sqlValues("a b", leftRows),
					sqlValues("c d", right))
				if kind == join.Mark {
					sql += ", " + c.in + " FROM l"
				} else {
					sql += " FROM l WHERE NOT " + c.in
				}
				answer := duck.Ask(exprtest.Question{SQL: sql})[0]
				require.Empty(t, answer.Error, sql)
				want := normalized(answer.Rows, []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Int64), gpu.Of(gpu.Bool)})
				slices.SortFunc(want, slices.Compare)
				for _, grouped := range []bool{false, true} {
					got, err := treeRows(t, unknownJoin(name, kind, right, grouped), d)
					require.NoError(t, err, sql)
					require.Equal(t, want, got, "%s: %s", name, sql)
				}
			}
		}
	}
}

// onDevices runs a test in short strides on the CPU, and on the GPU.
func onDevices(t *testing.T, test func(t *testing.T, d gpu.Device)) {
	t.Run("host", func(t *testing.T) { test(t, shortStrides(t)) })
	t.Run("cuda", func(t *testing.T) { test(t, cudatest.Open(t, cuda.Options{Memory: 64 << 20})) })
}

// TestValues has constants of every type, and rows without columns.
func TestValues(t *testing.T) {
	types := []gpu.Type{gpu.Of(gpu.Bool), gpu.Of(gpu.Int8), gpu.Of(gpu.Uint64), gpu.DecimalOf(38, 2),
		gpu.DecimalOf(9, 2), gpu.Of(gpu.Float32), gpu.Of(gpu.Date), gpu.Of(gpu.String), gpu.Of(gpu.Binary)}
	row := []gpu.Scalar{gpu.BoolScalar(true), gpu.IntScalar(types[1], -3), gpu.IntScalar(types[2], 7),
		gpu.IntScalar(types[3], 150), gpu.IntScalar(types[4], -150), gpu.FloatScalar(types[5], 0.5),
		gpu.IntScalar(types[6], 1), gpu.StringScalar("it's"), {Type: types[8], Valid: true, Str: "\x00\xff"}}
	onDevices(t, func(t *testing.T, d gpu.Device) {
		m := &rel.Metadata{}
		var ids []rel.ID
		var nulls []gpu.Scalar
		for _, typ := range types {
			ids = append(ids, m.Add(rel.Column{Field: gpu.Field{Name: "v", Type: typ, Nullable: true}}))
			nulls = append(nulls, gpu.Null(typ))
		}
		v := rel.NewValues(m, expr.Origin{Step: "v"}, ids, [][]gpu.Scalar{row, nulls, row})
		p, err := lowered(t, rel.Output{Root: v, Columns: ids})
		require.NoError(t, err)
		_, err = p.Run(t.Context(), RunOptions{Device: d})
		require.NoError(t, err)
		out := p.targets[0].(*collected)
		require.Len(t, out.rows, 3)
		for i, s := range row {
			require.Equal(t, exprtest.Value(s), out.rows[0][i], types[i])
			require.Nil(t, out.rows[1][i])
			require.Equal(t, exprtest.Value(s), out.rows[2][i])
		}
		none := rel.NewValues(&rel.Metadata{}, expr.Origin{Step: "v"}, nil, make([][]gpu.Scalar, 3))
		got, err := treeRows(t, rel.Output{Root: none}, d)
		require.NoError(t, err)
		require.Len(t, got, 3)
	})
}

// TestADependentJoinBecomesAJoin computes the rows of r for each row of l by a join.
func TestADependentJoinBecomesAJoin(t *testing.T) {
	o := dependent()
	e := logical.NewEstimator(t.Context())
	require.GreaterOrEqual(t, e.Rows(o.Root), float64(len(leftRows)))
	for _, c := range o.Columns {
		e.Column(o.Root, c)
	}
	rel.Visit(logical.Optimize(e, o, logical.Options{}).Root, func(n rel.Node) {
		_, apply := n.(*rel.Apply)
		require.False(t, apply)
	})
	got, err := treeRows(t, o, shortStrides(t))
	require.NoError(t, err)
	matches := map[int64]int{}
	for _, r := range rightRows {
		matches[r[0]]++
	}
	delete(matches, null)
	want := 0
	for _, l := range leftRows {
		want += max(matches[l[0]], 1)
	}
	require.Len(t, got, want)
}

// dependent is a tree of l, and for each row the rows of r whose c is its a.
func dependent() rel.Output {
	m := &rel.Metadata{}
	l, r := values(m, "l", "a b", leftRows...), values(m, "r", "c d", rightRows...)
	below := rel.NewFilter(expr.Origin{Step: "f"}, r,
		[]*expr.Expr{expr.Equal(l.Expr(l.Columns[0]), r.Expr(r.Columns[0]), false)})
	n := rel.NewApply(expr.Origin{Step: "apply"}, join.Left, l, below, l.Columns[:1], nil, rel.None)
	return rel.Output{Root: n, Columns: n.Columns}
}

// treesOfRules are trees that no job makes, by the rules that rewrite them.
func treesOfRules() map[string]map[string]rel.Output {
	sets, joins := map[string]rel.Output{}, map[string]rel.Output{}
	for _, op := range []rel.SetOp{rel.UnionOf, rel.Intersect, rel.Except} {
		for _, all := range []bool{false, true} {
			m := &rel.Metadata{}
			l, r := values(m, "l", "a b", leftRows...), values(m, "r", "c d", rightRows...)
			made := values(m, "s", "x y").Columns
			name := op.String()
			if all {
				name += "_all"
			}
			s := rel.NewSetOperation(expr.Origin{Step: "s"}, op, all, l, r, l.Columns, r.Columns, made)
			sets[name] = rel.Output{Root: s, Columns: made}
		}
	}
	for name := range unknownKeys {
		for _, kind := range []join.Kind{join.Anti, join.Mark} {
			file := strings.NewReplacer(" ", "_", ",", "").Replace(kind.String() + " " + name)
			joins[file] = unknownJoin(name, kind, rightRows, false)
		}
	}
	return map[string]map[string]rel.Output{"set-operations": sets, "null-aware-joins": joins}
}

// TestRulesOfTrees compares the trees below and above a rule with testdata/rules/<rule>/*.txt.
func TestRulesOfTrees(t *testing.T) {
	for rule, trees := range treesOfRules() {
		for name, tree := range trees {
			t.Run(rule+"/"+name, func(t *testing.T) {
				var got string
				logical.Optimize(logical.NewEstimator(t.Context()), tree, logical.Options{
					Applied: func(r logical.Rule, before, after rel.Output) {
						if r.Name == rule {
							got = fmt.Sprintf("%s\n%s: %s\n\n%s", rel.Print(before.Root), r.Name, r.Doc,
								rel.Print(after.Root))
						}
					}})
				file := filepath.Join("testdata/rules", rule, name+".txt")
				if *update {
					require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
					require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				}
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(text), got)
			})
		}
	}
}
