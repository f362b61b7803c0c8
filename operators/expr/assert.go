package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// asserted returns a condition, which must not be null, as an operation that fails with a text where it is false. It is
// not folded: what it says is true of rows, and there may be none.
func (b *binder) asserted(condition, text *Expr) *Expr {
	return &Expr{op: gpu.OpAssert, typ: gpu.Of(gpu.Bool), column: -1, args: []*Expr{condition, text},
		nullable: text.nullable, fails: true}
}

// bindError is error(text): it fails with the text, and is null where that is null. Like NULL, it takes the type of the
// other operands.
func bindError(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].literal == nullLiteral {
		return nullOfAnyType(), nil
	}
	text, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	missing, err := b.isNull(n, text, false)
	if err != nil {
		return nil, err
	}
	return failureOf(b.asserted(missing, text), gpu.Of(gpu.Int32), errorLiteral), nil
}

// failureOf returns an assertion as a null of a type.
func failureOf(assertion *Expr, t gpu.Type, literal literalKind) *Expr {
	null := Null(gpu.Field{Type: t})
	return &Expr{op: gpu.OpSelect, typ: t, column: -1, args: []*Expr{assertion, null, null}, nullable: true,
		fails: true, literal: literal}
}

// failsWithText returns the text of a call of error, or of its assertion. It is nil for other expressions.
func (e *Expr) failsWithText() *Expr {
	switch {
	case e.op == gpu.OpSelect && e.args[0].op == gpu.OpAssert && isNullConstant(e.args[1]) && isNullConstant(e.args[2]):
		return e.args[0].failsWithText()
	case e.op != gpu.OpAssert || len(e.args) < 2:
		return nil
	}
	condition, text := e.args[0], e.args[1]
	if v, ok := condition.Constant(); ok && v.Valid && v.Int.Sign() == 0 ||
		condition.op == gpu.OpIsNull && condition.args[0] == text {
		return text
	}
	return nil
}

func isNullConstant(e *Expr) bool {
	v, ok := e.Constant()
	return ok && !v.Valid
}

// bindAssert is assert_true(condition, text): null, or a failure with the text where the condition is not true.
func bindAssert(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	condition, err := b.boolean(n.Args[0], a[0], n.Name)
	if err != nil {
		return nil, err
	}
	if v, ok := condition.Constant(); ok && v.Valid && v.Int.Sign() != 0 {
		return nullOfAnyType(), nil
	}
	unnamed := newConstant(gpu.StringScalar("the assertion failed"))
	text := unnamed
	if len(a) > 1 && a[1].literal != nullLiteral {
		if text, err = b.convert(n.Args[1], a[1], gpu.Of(gpu.String), false); err != nil {
			return nil, err
		}
		if text.nullable {
			text = Coalesce(text, unnamed)
		}
	}
	if condition.nullable {
		condition = Coalesce(condition, newConstant(gpu.BoolScalar(false)))
	}
	return failureOf(b.asserted(condition, text), gpu.Of(gpu.Int32), errorLiteral), nil
}

// Asserts reports whether an expression has an error or assertion of the user, for which it is evaluated even if nobody
// needs its value.
func (e *Expr) Asserts() (asserts bool) {
	if !e.fails {
		return false
	}
	e.walk(func(e *Expr) { asserts = asserts || e.op == gpu.OpAssert && len(e.args) > 1 })
	return asserts
}
