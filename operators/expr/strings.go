package expr

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"slices"
)

// str returns an error unless an argument is text.
func (b *binder) str(n *syntax.Call, i int, e *Expr) (*Expr, error) {
	if e.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	}
	e, err := b.enumAsText(n.Args[i], e)
	if err != nil {
		return nil, err
	}
	if e.typ.Kind != gpu.String {
		return nil, b.errorf(n.Args[i], "%s needs text (VARCHAR), found %v; cast it, as in x::VARCHAR", n.Name, e.typ)
	}
	return e, nil
}

// count casts an integer argument to BIGINT.
func (b *binder) count(n *syntax.Call, i int, e *Expr) (*Expr, error) {
	if e.literal != nullLiteral && !e.typ.IsInteger() {
		return nil, b.errorf(n.Args[i], "%s needs an integer here, found %v", n.Name, e.typ)
	}
	return b.convert(n.Args[i], e, gpu.Of(gpu.Int64), false)
}

func bindLength(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.IsNested() {
		return bindCount(b, n, a)
	}
	x, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpLength, typ: gpu.Of(gpu.Int64), nullable: x.nullable, rng: rangeOf(0, 1<<31)}, x)
}

// bindContainsAny binds contains(text, part), contains(list, x) and contains(map, key).
func bindContainsAny(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	switch a[0].typ.Kind {
	case gpu.List:
		return bindContains(b, n, a)
	case gpu.Map:
		return bindMapContains(b, n, a)
	}
	args, err := b.arguments(n, "s", a)
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpContains, typ: gpu.Of(gpu.Bool), nullable: args[0].nullable || args[1].nullable},
		args...)
}

func bindOctets(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x := a[0]
	if x.literal == nullLiteral || x.typ.Kind != gpu.Binary {
		return nil, b.errorf(n.Args[0], "%s needs a BLOB, found %v", n.Name, x.typ)
	}
	return b.op(n, Expr{op: gpu.OpLength, typ: gpu.Of(gpu.Int64), nullable: x.nullable, rng: rangeOf(0, 1<<31)}, x)
}

func bindSubstring(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	e := Expr{op: gpu.OpSubstring, typ: gpu.Of(gpu.String), nullable: x.nullable}
	args := []*Expr{x}
	for i := 1; i < len(a); i++ {
		c, err := b.count(n, i, a[i])
		if err != nil {
			return nil, err
		}
		args = append(args, c)
		e.nullable = e.nullable || c.nullable
	}
	return b.op(n, e, args...)
}

// bindLeft binds left: the first k characters, or all but the last -k.
func bindLeft(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if _, ok := a[1].Constant(); !ok {
		return macro("si", "substring(_1, 1, CASE WHEN _2 < 0 THEN greatest(length(_1) + _2, 0) ELSE _2 END)")(b, n, a)
	}
	x, k, length, err := b.side(n, a)
	if err != nil {
		return nil, err
	}
	one := newConstant(gpu.IntScalar(gpu.Of(gpu.Int64), 1))
	if k.Sign() < 0 {
		// length + k characters, or none if that is negative.
		count, err := b.integerArithmetic(n, gpu.OpAdd, length,
			newConstant(gpu.Scalar{Type: gpu.Of(gpu.Int64), Valid: true, Int: k}))
		if err != nil {
			return nil, err
		}
		zero := newConstant(gpu.IntScalar(gpu.Of(gpu.Int64), 0))
		negative, err := b.compare(n, gpu.OpLt, n, count, n, zero)
		if err != nil {
			return nil, err
		}
		if count, err = b.choose(n, negative, zero, count); err != nil {
			return nil, err
		}
		return b.op(n, Expr{op: gpu.OpSubstring, typ: x.typ, nullable: x.nullable}, x, one, count)
	}
	return b.op(n, Expr{op: gpu.OpSubstring, typ: x.typ, nullable: x.nullable}, x, one,
		newConstant(gpu.Scalar{Type: gpu.Of(gpu.Int64), Valid: true, Int: k}))
}

// bindRight binds right: the last k characters, or all but the first -k.
func bindRight(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if _, ok := a[1].Constant(); !ok {
		return macro("si",
			"substring(_1, CASE WHEN _2 < 0 THEN 1 - greatest(_2, -4294967296) WHEN _2 >= 0 THEN greatest(length(_1) "+
				"- _2, 0) + 1 END)")(b, n, a)
	}
	x, k, _, err := b.side(n, a)
	if err != nil {
		return nil, err
	}
	start := k.Neg()
	switch k.Sign() {
	case 0:
		zero := newConstant(gpu.IntScalar(gpu.Of(gpu.Int64), 0))
		return b.op(n, Expr{op: gpu.OpSubstring, typ: x.typ, nullable: x.nullable}, x, zero, zero)
	case -1:
		start, _ = start.Add(gpu.Int128From(1))
	}
	return b.op(n, Expr{op: gpu.OpSubstring, typ: x.typ, nullable: x.nullable}, x,
		newConstant(gpu.Scalar{Type: gpu.Of(gpu.Int64), Valid: true, Int: start}))
}

// side checks the arguments of left and right.
func (b *binder) side(n *syntax.Call, a []*Expr) (x *Expr, k gpu.Int128, length *Expr, err error) {
	if x, err = b.str(n, 0, a[0]); err != nil {
		return
	}
	c, _ := a[1].Constant()
	if a[1].literal == nullLiteral {
		c.Type = gpu.Of(gpu.Int64)
	}
	if !c.Type.IsInteger() {
		err = b.errorf(n.Args[1], "the number of characters in %s must be an integer", n.Name)
		return
	}
	if !c.Valid {
		x = newConstant(gpu.Null(x.typ))
	}
	// No text has more than 2^31 characters.
	k = gpu.Int128From(min(max(c.Int.Int64(), -1<<32), 1<<32))
	length, err = b.op(n, Expr{op: gpu.OpLength, typ: gpu.Of(gpu.Int64), nullable: x.nullable, rng: rangeOf(0, 1<<31)},
		x)
	return
}

// concat binds ||, which is null if an operand is null.
func (b *binder) concat(n syntax.Node, nodes []syntax.Node, args []*Expr) (*Expr, error) {
	if slices.ContainsFunc(args, func(a *Expr) bool { return a.typ.Kind == gpu.List }) {
		return b.concatLists(n, args)
	}
	e := Expr{op: gpu.OpConcat, typ: gpu.Of(gpu.String), fails: true}
	for i, a := range args {
		if other := args[len(args)-1-i]; a.typ.Kind == gpu.Binary &&
			(other.typ.Kind == gpu.Binary || other.literal == nullLiteral) {
			e.typ = gpu.Of(gpu.Binary)
		}
	}
	flat := make([]*Expr, 0, len(args))
	for i, a := range args {
		if e.typ.Kind == gpu.String && a.typ.Kind == gpu.Binary {
			return nil, b.errorf(nodes[i], "cannot join a BLOB and text; cast one of them")
		}
		x, err := b.convert(nodes[i], a, e.typ, false)
		if err != nil {
			return nil, err
		}
		e.nullable = e.nullable || x.nullable
		if x.op == gpu.OpConcat && x.typ == e.typ {
			flat = append(flat, x.args...)
		} else {
			flat = append(flat, x)
		}
	}
	return b.op(n, e, flat...)
}

// bindConcat binds concat(…), for which a null is an empty text.
func bindConcat(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if slices.ContainsFunc(a, func(x *Expr) bool { return x.typ.Kind == gpu.List }) {
		return bindListConcat(b, n, a)
	}
	empty := newConstant(gpu.StringScalar(""))
	args := make([]*Expr, len(a))
	for i := range a {
		x, err := b.convert(n.Args[i], a[i], gpu.Of(gpu.String), false)
		if err != nil {
			return nil, err
		}
		there, err := b.isNull(n, x, true)
		if err != nil {
			return nil, err
		}
		if x, err = b.choose(n, there, x, empty); err != nil {
			return nil, err
		}
		if x.op == gpu.OpSelect {
			x.nullable = false
		}
		args[i] = x
	}
	if len(args) == 1 {
		return args[0], nil
	}
	return b.concat(n, n.Args, args)
}

// spaces are the space separators of Unicode (category Zs). Tabs and line ends are not
// among them.
const spaces = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"

// trim is trim, ltrim or rtrim. Without a second argument it removes the spaces of
// Unicode, as DuckDB does.
func trim(sides int) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.str(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		set := newConstant(gpu.StringScalar(spaces))
		if len(a) == 2 {
			if set, err = b.str(n, 1, a[1]); err != nil {
				return nil, err
			}
		}
		return b.op(n, Expr{op: gpu.OpTrim, typ: x.typ, n: sides, nullable: x.nullable || set.nullable}, x, set)
	}
}
