package expr

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// TestEveryOperatorThatIsParsedIsBound compares the tables of the parser and of the binder.
func TestEveryOperatorThatIsParsedIsBound(t *testing.T) {
	var parsed, bound []string
	for _, o := range syntax.BinaryOperators {
		parsed = append(parsed, o.Name)
	}
	for _, o := range operatorTable {
		bound = append(bound, o.name)
	}
	require.Equal(t, parsed, bound)
}

// TestRowsAndOperationsBelongTogether finds a row of the SQL tables for each operation that SQL can write, and each
// operation in the expressions that the examples of its rows are bound to.
func TestRowsAndOperationsBelongTogether(t *testing.T) {
	columns := &Scope{Schema: gpu.NewSchema(gpu.Field{Name: "i", Type: gpu.Of(gpu.Int64), Nullable: true},
		gpu.Field{Name: "j", Type: gpu.Of(gpu.Int64)}, gpu.Field{Name: "b", Type: gpu.Of(gpu.Bool), Nullable: true},
		gpu.Field{Name: "c", Type: gpu.Of(gpu.Bool)})}
	rows := map[gpu.Op][]int{}
	add := func(op gpu.Op, n int, name, examples string) {
		if op == gpu.OpConst {
			return
		}
		rows[op] = append(rows[op], n)
		o := op.Info()
		assert.False(t, o.Internal, "%s is written, but its operation is internal", name)
		var texts []string
		for _, x := range parseExamples(examples) {
			texts = append(texts, x.SQL)
		}
		switch o.Form { // constants may be folded
		case gpu.Infix:
			texts = append(texts, "i "+o.SQL+" j", "b "+o.SQL+" c")
		case gpu.Prefix:
			texts = append(texts, o.SQL+"b")
		case gpu.Postfix:
			texts = append(texts, "i"+o.SQL)
		}
		assert.True(t, slices.ContainsFunc(texts, func(sql string) bool {
			tree, err := syntax.Parse(sql)
			require.NoError(t, err)
			found := false
			if e, err := Bind(tree, columns); err == nil {
				e.walk(func(e *Expr) { found = found || e.op == op && (o.Variants == nil || e.n == n) })
			}
			return found
		}), "no example of %s has its operation %d (%s)", name, op, o.Name(n))
	}
	for _, o := range operatorTable {
		assert.True(t, o.op == gpu.OpConst || o.op.Info().Form == gpu.Infix, o.name)
		add(o.op, 0, o.name, o.examples)
	}
	for _, f := range formTable {
		for _, op := range f.ops {
			add(op, 0, f.name, f.examples)
		}
	}
	for _, c := range chapters {
		for _, f := range c.functions {
			add(f.op, f.n, f.name, f.examples)
			if f.takes != "" {
				lo, hi := f.arity()
				o := f.op.Info()
				assert.True(t, lo >= o.Least && (hi <= o.Most || o.Most < 0), "%s has another arity than its operation",
					f.name)
			}
		}
	}
	for op := gpu.OpConst + 1; op < gpu.Ops; op++ {
		o := op.Info()
		for n := range max(len(o.Variants), 1) {
			if o.Internal || o.Variants != nil && o.Variants[n] == "" {
				continue
			}
			assert.True(t, rows[op] != nil && (o.Variants == nil || slices.Contains(rows[op], n)),
				"no row of the SQL tables has operation %s", strings.TrimSpace(fmt.Sprint(op, " ", o.Name(n))))
		}
	}
}
