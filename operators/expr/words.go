package expr

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

func bindChr(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "i", a)
	if err != nil {
		return nil, err
	}
	valid, err := b.expand(n, "_1 BETWEEN 0 AND 1114111 AND _1 NOT BETWEEN 55296 AND 57343", args...)
	if err != nil {
		return nil, err
	}
	e, err := b.op(n, Expr{op: gpu.OpChr, typ: gpu.Of(gpu.String), nullable: args[0].nullable}, args...)
	if err != nil {
		return nil, err
	}
	return b.require(n, valid, e, "there is no code point of this number")
}

// pad binds lpad and rpad: body joins the padding _1 and the text _2.
func pad(body string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, "sis", a)
		if err != nil {
			return nil, err
		}
		enough, err := b.expand(n, "_3 <> '' OR length(_1) >= _2", args...)
		if err != nil {
			return nil, err
		}
		missing, err := b.expand(n, "greatest(_2, 0) - length(_1)", args...)
		if err != nil {
			return nil, err
		}
		fill,
			err := b.expand(n,
			"substring(repeat(_1, CASE WHEN _2 > 0 THEN _2 // greatest(length(_1), 1) + 1 ELSE 0 END), 1, "+
				"greatest(_2, 0))", args[2], missing)
		if err != nil {
			return nil, err
		}
		e, err := b.expand(n, "CASE WHEN _3 > 0 THEN "+body+" ELSE substring(_2, 1, greatest(_4, 0)) END", fill,
			args[0], missing, args[1])
		if err != nil {
			return nil, err
		}
		// A null argument makes the condition null, and so the result.
		if e, err = b.require(n, enough, e, "an empty text cannot pad"); err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _2 IS NOT NULL AND _3 IS NOT NULL AND _4 IS NOT NULL THEN _1 END", e, args[0],
			args[1], args[2])
	}
}

// bindConcatWS joins the arguments that are not null, with a separator between them.
func bindConcatWS(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	separator, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	parts := make([]*Expr, len(a)-1)
	nodes := make([]syntax.Node, len(parts))
	for i, x := range a[1:] {
		nodes[i] = n.Args[1+i]
		if x.typ.Kind == gpu.List { // its elements
			if x, err = b.expand(n, "array_to_string(_1, _2)", x, separator); err == nil {
				x, err = b.expand(n, "CASE WHEN len(list_filter(_1, lambda x: x IS NOT NULL)) > 0 THEN _2 END",
					a[1+i], x)
			}
			if err != nil {
				return nil, err
			}
		}
		text, err := b.convert(nodes[i], x, gpu.Of(gpu.String), false)
		if err != nil {
			return nil, err
		}
		if parts[i], err = b.expand(n, "CASE WHEN _2 IS NULL THEN '' ELSE _1 || _2 END", separator, text); err != nil {
			return nil, err
		}
	}
	all := parts[0]
	if len(parts) > 1 {
		if all, err = b.concat(n, nodes, parts); err != nil {
			return nil, err
		}
	}
	return b.expand(n, "substring(_2, length(_1) + 1)", separator, all)
}

// bindSlice binds s[from:to], whose ends may be absent and count from the end if negative.
func bindSlice(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.Kind == gpu.List {
		if len(a) > 3 {
			return b.steppedSlice(n, a)
		}
		return b.sliceOf(n, a)
	}
	if len(a) > 3 {
		return nil, b.errorf(n.Args[3], "only lists have slices with a step, not %v", a[0].typ)
	}
	args, err := b.arguments(n, "sii", a)
	if err != nil {
		return nil, err
	}
	at := func(i int) string {
		return fmt.Sprintf("CASE WHEN _%[1]d < 0 THEN length(_1) + greatest(_%[1]d, -4294967296) + 1 ELSE "+
			"least(_%[1]d, 4294967296) END", i)
	}
	from, err := b.expand(n, "CASE WHEN _2 IS NOT NULL THEN greatest("+at(2)+", 1) END", args...)
	if err != nil {
		return nil, err
	}
	to, err := b.expand(n, "CASE WHEN _3 IS NOT NULL THEN "+at(3)+" END", args...)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "substring(_1, _2, CASE WHEN _3 >= _2 THEN _3 - _2 + 1 WHEN _3 < _2 THEN 0 END)", args[0], from,
		to)
}

// likeColumn binds LIKE with a pattern that is not constant.
func (b *binder) likeColumn(n *syntax.Like, x, pattern *Expr) (*Expr, error) {
	if n.Escape != nil {
		return nil, b.errorf(n.Escape, "ESCAPE needs a constant pattern before it")
	}
	op := gpu.OpLike
	if n.Fold {
		op = gpu.OpILike
	}
	e, err := b.op(n, Expr{op: op, typ: gpu.Of(gpu.Bool), nullable: x.nullable || pattern.nullable}, x, pattern)
	if err == nil && n.Not {
		return b.not(n, e)
	}
	return e, err
}

// bindOverlay binds overlay. Positions before the text mean its beginning.
func bindOverlay(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "ssii", a)
	if err != nil {
		return nil, err
	}
	start, err := b.expand(n, "CASE WHEN _1 IS NOT NULL THEN least(greatest(_1, -4294967296), 4294967296) - 1 END",
		args[2])
	if err != nil {
		return nil, err
	}
	count, err := b.expand(n, "length(_1)", args[1])
	if err == nil && len(args) == 4 {
		count, err = b.expand(n, "CASE WHEN _1 < 0 THEN _2 WHEN _1 >= 0 THEN least(_1, 4294967296) END", args[3], count)
	}
	if err != nil {
		return nil, err
	}
	return b.expand(n, "substring(_1, 1, CASE WHEN _3 > 0 THEN _3 WHEN _3 <= 0 THEN 0 END) || _2 || substring(_1, "+
		"CASE WHEN _3 + _4 > 0 THEN _3 + _4 + 1 WHEN _3 + _4 <= 0 THEN 1 END)", args[0], args[1], start, count)
}
