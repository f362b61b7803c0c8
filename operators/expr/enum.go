package expr

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// An ENUM is compared, grouped, joined and sorted by its codes, in the order of its texts. Next to a text or another
// ENUM it is a VARCHAR, as in DuckDB.

// textsOf returns the list of the texts of an ENUM.
func textsOf(t gpu.Type) *Expr { return listOfTexts(t.EnumValues()) }

func listOfTexts(values []string) *Expr {
	b := gpu.OpenNested(nil)
	for _, v := range values {
		b = gpu.AppendBytes(b, v)
	}
	return newConstant(gpu.Scalar{Type: gpu.ListOf(text), Valid: true, Str: string(gpu.CloseNested(b))})
}

// codeOf returns the code of an ENUM as an integer.
func codeOf(fold Fold, x *Expr, t gpu.Type) (*Expr, error) {
	n := int64(len(x.typ.EnumValues()))
	return newOp(fold, Expr{op: gpu.OpCast, typ: t, nullable: x.nullable, rng: rangeOf(0, n-1)}, x)
}

// textOfEnum casts an ENUM to text.
func textOfEnum(fold Fold, x *Expr) (*Expr, error) {
	if v, ok := x.Constant(); ok {
		if !v.Valid {
			return newConstant(gpu.Null(text)), nil
		}
		return newConstant(gpu.StringScalar(v.String())), nil
	}
	code, err := codeOf(fold, x, long)
	if err != nil {
		return nil, err
	}
	n := int64(len(x.typ.EnumValues()))
	at, err := newOp(fold, Expr{op: gpu.OpAdd, typ: long, nullable: x.nullable, rng: rangeOf(1, n)}, code, position(1))
	if err != nil {
		return nil, err
	}
	return newOp(fold, Expr{op: gpu.OpElement, typ: text, nullable: x.nullable}, textsOf(x.typ), at)
}

// enumOfText casts text to an ENUM. A text that it does not have fails where a row has it, or is null if try is set.
func enumOfText(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	values := t.EnumValues()
	if v, ok := x.Constant(); ok {
		if i := slices.Index(values, v.Str); v.Valid && i >= 0 {
			return newConstant(gpu.IntScalar(t, int64(i))), nil
		} else if !v.Valid || try {
			return newConstant(gpu.Null(t)), nil
		}
	}
	c := newNestedCast(fold, try)
	key, err := c.nest(c.at, x)
	if err != nil {
		return nil, c.plain(err)
	}
	at, err := c.op(c.at, Expr{op: gpu.OpFindElement, typ: long, rng: rangeOf(0, int64(len(values)))}, textsOf(t), key)
	if err != nil {
		return nil, c.plain(err)
	}
	body := "CASE WHEN _1 IS NOT NULL THEN CASE WHEN _2 > 0 THEN _2 - 1 END END"
	if !try {
		body = strings.Replace(body, "END END", "ELSE error('there is no ''' || _1 || ''' in ' || _3) END END", 1)
	}
	about := newConstant(gpu.StringScalar(syntax.Cut(t.String(), 200)))
	code, err := c.expand(c.at, body, typed(x), at, about)
	if err != nil {
		return nil, c.plain(err)
	}
	e := Expr{op: gpu.OpCast, typ: t, nullable: code.nullable, rng: rangeOf(0, int64(len(values)-1))}
	return newOp(fold, e, code)
}

// OfEnum returns a text with the annotation that its values are those of an ENUM.
func (e *Expr) OfEnum() *Expr {
	out := *e
	out.annotation = gpu.Enum
	return &out
}

// castEnum casts from or to an ENUM.
func castEnum(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	if !castable(x.typ, t) {
		return nil, fmt.Errorf("cannot cast %v to %v", x.typ, t)
	}
	if !x.typ.IsEnum() {
		return enumOfText(fold, x, t, try)
	}
	s, err := textOfEnum(fold, x)
	if err != nil || t.Kind == gpu.String {
		return s, err
	}
	return newCast(fold, s, t, try)
}

// enumAsText replaces an ENUM by its text, where an operation takes texts. It returns other expressions unchanged.
func (b *binder) enumAsText(n syntax.Node, x *Expr) (*Expr, error) {
	if !x.typ.IsEnum() {
		return x, nil
	}
	return b.convert(n, x, text, false)
}

// enumLiterals replaces a text that is compared for equality with an ENUM by its code, if the ENUM has it.
func enumLiterals(op gpu.Op, x, y *Expr) (*Expr, *Expr) {
	if op != gpu.OpEq && op != gpu.OpNe && op != gpu.OpDistinct && op != gpu.OpNotDistinct {
		return x, y
	}
	return enumLiteral(x, y.typ), enumLiteral(y, x.typ)
}

func enumLiteral(x *Expr, t gpu.Type) *Expr {
	v, ok := x.Constant()
	if !ok || !v.Valid || x.typ.Kind != gpu.String || !t.IsEnum() {
		return x
	}
	if i := slices.Index(t.EnumValues(), v.Str); i >= 0 {
		return newConstant(gpu.IntScalar(t, int64(i)))
	}
	return x
}

// enumArgument returns an error unless an argument is an ENUM.
func (b *binder) enumArgument(n *syntax.Call, i int, x *Expr) error {
	if !x.typ.IsEnum() {
		return b.errorf(n.Args[i], "%s needs an ENUM, found %v", n.Name, x.typ)
	}
	return nil
}

func bindEnumCode(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if err := b.enumArgument(n, 0, a[0]); err != nil {
		return nil, err
	}
	return codeOf(b.scope.Fold, a[0], a[0].typ.CodeType())
}

// enumTexts binds the functions that return some of the texts of an ENUM, whatever the value is.
func enumTexts(of func([]string) *Expr) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		if err := b.enumArgument(n, 0, a[0]); err != nil {
			return nil, err
		}
		return of(a[0].typ.EnumValues()), nil
	}
}

func firstText(values []string) *Expr { return newConstant(gpu.StringScalar(values[0])) }
func lastText(values []string) *Expr  { return newConstant(gpu.StringScalar(values[len(values)-1])) }

// bindEnumBoundary binds enum_range_boundary(from, to), of which one may be null.
func bindEnumBoundary(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	t, other := a[0], a[1]
	if !t.typ.IsEnum() {
		t, other = a[1], a[0]
	}
	if err := b.enumArgument(n, 0, t); err != nil {
		return nil, err
	}
	if other.literal != nullLiteral && other.typ != t.typ {
		return nil, b.errorf(n, "%s needs two values of one ENUM, found %v and %v", n.Name, a[0].typ, a[1].typ)
	}
	ends := [2]*Expr{position(1), position(int64(len(t.typ.EnumValues())))}
	for i, x := range a {
		if x.literal == nullLiteral {
			continue
		}
		code, err := codeOf(b.scope.Fold, x, long)
		if err == nil {
			ends[i], err = b.expand(n, "coalesce(_1 + 1, _2)", code, ends[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return b.expand(n, "list_slice(_1, _2, _3)", textsOf(t.typ), ends[0], ends[1])
}
