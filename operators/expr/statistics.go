package expr

import (
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
)

// ComparisonOp is the operator of a Comparison.
type ComparisonOp uint8

// The operators that statistics can answer.
const (
	Eq ComparisonOp = iota
	Lt
	Le
	Gt
	Ge
	In
	IsNull
	IsNotNull
)

// Comparison is a predicate that file statistics can refute. It compares a column with constants of
// its SQL type: one constant for a comparison, any number for In, none for the null tests.
type Comparison struct {
	Column int
	Op     ComparisonOp
	Values []gpu.Scalar
}

var statisticsOps = map[gpu.Op]ComparisonOp{
	gpu.OpEq: Eq, gpu.OpNotDistinct: Eq, gpu.OpLt: Lt, gpu.OpLe: Le, gpu.OpGt: Gt, gpu.OpGe: Ge,
	gpu.OpIn: In, gpu.OpIsNull: IsNull, gpu.OpIsNotNull: IsNotNull,
}

// Comparisons returns conditions on single columns that are all true wherever e, a conjunct, is
// true. Most expressions have none. LIKE with a fixed prefix has two, its bounds.
func Comparisons(e *Expr) []Comparison {
	if len(e.args) == 0 || e.args[0].op != opColumn {
		return nil
	}
	c := Comparison{Column: e.args[0].column}
	if e.op == gpu.OpLike && len(e.args) == 1 {
		return likeBounds(c, e)
	}
	op, ok := statisticsOps[e.op]
	if !ok {
		return nil
	}
	c.Op = op
	switch {
	case e.op == gpu.OpIn:
		c.Values = e.set
	case len(e.args) == 2:
		v, ok := e.args[1].Constant()
		if !ok || !v.Valid || !v.Type.SameSQL(e.args[0].typ) {
			return nil
		}
		c.Values = []gpu.Scalar{v}
	}
	return []Comparison{c}
}

// likeBounds returns prefix ≤ column < successor of prefix.
func likeBounds(c Comparison, e *Expr) []Comparison {
	var prefix []rune
	for s := e.value.Str; len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		if r == '%' || r == '_' || r == utf8.RuneError || e.n != 0 && r == rune(e.n) {
			break
		}
		prefix = append(prefix, r)
		s = s[n:]
	}
	if len(prefix) == 0 {
		return nil
	}
	low := c
	low.Op, low.Values = Ge, []gpu.Scalar{gpu.StringScalar(string(prefix))}
	// The successor adds one to the last byte that is not 255, which preserves the order
	// of bytes.
	b := []byte(string(prefix))
	for len(b) > 0 && b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	b[len(b)-1]++
	c.Op, c.Values = Lt, []gpu.Scalar{gpu.StringScalar(string(b))}
	return []Comparison{low, c}
}
