package expr

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// as returns a value with the encoding of a list as another type with that encoding.
func (b *binder) as(n syntax.Node, x *Expr, t gpu.Type) (*Expr, error) {
	return b.op(n, Expr{op: gpu.OpSliceElements, typ: t, nullable: x.nullable}, x, position(1), position(-1))
}

// mapArgument checks that an argument is a map.
func (b *binder) mapArgument(n *syntax.Call, i int, x *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.MapOf(gpu.Of(gpu.Int32), gpu.Of(gpu.Int32)))), nil
	}
	if x.typ.Kind != gpu.Map {
		return nil, b.errorf(n.Args[i], "%s needs a MAP, found %v", n.Name, x.typ)
	}
	return x, nil
}

// mapOfEntries returns a list of structs of two fields as a map. Keys must be different and not null.
func (b *binder) mapOfEntries(n *syntax.Call, entries *Expr) (*Expr, error) {
	fields := entries.typ.Element().Children()
	t := gpu.MapOf(fields[0].Type, fields[1].Type)
	if v, ok := entries.Constant(); ok && v.Valid && gpu.CountNested(v.Str) == 0 {
		return b.as(n, entries, t)
	}
	key, err := b.element(n, b.newParam(theElement, entries.typ.Element()), position(1), fields[0].Type)
	if err != nil {
		return nil, err
	}
	keys, err := b.distinctElements(n, b.level, entries, key)
	if err != nil {
		return nil, err
	}
	m, err := b.as(n, entries, t)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN len(_1) <> len(_2) THEN error('the keys of a map must be different and not NULL') "+
		"ELSE _3 END", keys, entries, m)
}

// mapOfLists binds map(keys, values) of two lists.
func (b *binder) mapOfLists(n *syntax.Call, keys, values *Expr) (*Expr, error) {
	entries, err := b.zip(n, keys, values)
	if err != nil {
		return nil, err
	}
	m, err := b.mapOfEntries(n, entries)
	if err != nil {
		return nil, err
	}
	return b.expand(n,
		"CASE WHEN _1 IS NULL OR _2 IS NULL THEN NULL WHEN len(_1) <> len(_2) THEN error('a map has as many keys as "+
			"values') ELSE _3 END", keys, values, m)
}

func bindMapFromEntries(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	if t := list.typ.Element(); t.Kind != gpu.Struct || len(t.Children()) != 2 {
		return nil, b.errorf(n.Args[0], "%s needs a list of structs of two fields, found %v", n.Name, list.typ)
	}
	return b.mapOfEntries(n, list)
}

func bindMapEntries(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	m, err := b.mapArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.as(n, m, gpu.ListOf(m.typ.Element()))
}

// bindMapContains binds map_contains(m, key).
func bindMapContains(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	m, err := b.mapArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	k, err := b.key(n, 1, a[1], m.typ.Children()[0].Type)
	if err != nil {
		return nil, err
	}
	at, err := b.find(n, m, k, 1)
	if err != nil {
		return nil, err
	}
	return b.foundAt(n, m, known(a[1]), at)
}

// bindMapExtract binds map_extract(m, key): a list of the value, or an empty one.
func bindMapExtract(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	there, err := bindMapContains(b, n, a)
	if err != nil {
		return nil, err
	}
	m, err := b.mapArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	value, err := b.lookUp(n, m, a[1])
	if err != nil {
		return nil, err
	}
	t := gpu.ListOf(value.typ)
	one, err := b.assemble(n, t, []*Expr{value})
	if err != nil {
		return nil, err
	}
	none, err := b.assemble(n, t, nil)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NULL THEN NULL WHEN _2 THEN _3 ELSE _4 END", m, there, one, none)
}

// bindStructInsert binds struct_insert(s, b := x), and struct_update, which also replaces fields.
func bindStructInsert(replace bool) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		s := a[0]
		if s.typ.Kind != gpu.Struct {
			return nil, b.errorf(n.Args[0], "%s needs a STRUCT, found %v", n.Name, s.typ)
		}
		fields := slices.Clone(s.typ.Children())
		parts := make([]*Expr, len(fields))
		for i, f := range fields {
			var err error
			if parts[i], err = b.element(n, s, position(int64(i+1)), f.Type); err != nil {
				return nil, err
			}
		}
		for i, x := range a[1:] {
			name := ""
			if n.Names != nil {
				name = n.Names[i+1]
			}
			if name == "" {
				return nil, b.errorf(n.Args[i+1], "a field of %s needs a name, as in %[1]s(s, a := 1)", n.Name)
			}
			x = known(x)
			at := slices.IndexFunc(fields, func(f gpu.Field) bool { return strings.EqualFold(f.Name, name) })
			switch {
			case at >= 0 && !replace:
				return nil, b.errorf(n.Args[i+1], "the STRUCT has a field %q already", syntax.Cut(name, 60))
			case at >= 0:
				fields[at].Type, parts[at] = x.typ, x
			default:
				fields, parts = append(fields, gpu.Field{Name: name, Type: x.typ}), append(parts, x)
			}
		}
		return b.assemble(n, gpu.StructOf(fields...), parts)
	}
}

// bindStructConcat binds struct_concat(s, t).
func bindStructConcat(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	var fields []gpu.Field
	var parts []*Expr
	for i, s := range a {
		if s.typ.Kind != gpu.Struct {
			return nil, b.errorf(n.Args[i], "%s needs a STRUCT, found %v", n.Name, s.typ)
		}
		for k, f := range s.typ.Children() {
			if slices.ContainsFunc(fields, func(g gpu.Field) bool { return strings.EqualFold(f.Name, g.Name) }) {
				return nil, b.errorf(n.Args[i], "two structs have a field %q", syntax.Cut(f.Name, 60))
			}
			x, err := b.element(n, s, position(int64(k+1)), f.Type)
			if err != nil {
				return nil, err
			}
			fields, parts = append(fields, f), append(parts, x)
		}
	}
	return b.assemble(n, gpu.StructOf(fields...), parts)
}

// bindStructKeys binds struct_keys(s).
func bindStructKeys(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.Kind != gpu.Struct {
		return nil, b.errorf(n.Args[0], "%s needs a STRUCT, found %v", n.Name, a[0].typ)
	}
	var names []*Expr
	for _, f := range a[0].typ.Children() {
		names = append(names, newConstant(gpu.StringScalar(f.Name)))
	}
	list, err := b.assemble(n, gpu.ListOf(text), names)
	if err != nil || !a[0].nullable {
		return list, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", a[0], list)
}

// bindMapConcat binds map_concat(x, y): the entries of x, with the values of y for its keys, then the others of y.
func bindMapConcat(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	out, err := b.mapArgument(n, 0, a[0])
	for i := 1; i < len(a) && err == nil; i++ {
		var y *Expr
		if y, err = b.mapArgument(n, i, a[i]); err == nil {
			out, err = b.mapConcat(n, out, y)
		}
	}
	return out, err
}

func (b *binder) mapConcat(n *syntax.Call, x, y *Expr) (*Expr, error) {
	if x.typ != y.typ {
		return nil, b.errorf(n, "the maps of %s have two types, %v and %v", n.Name, x.typ, y.typ)
	}
	entry := b.newParam(theElement, x.typ.Element())
	key, err := b.element(n, entry, position(1), x.typ.Children()[0].Type)
	if err != nil {
		return nil, err
	}
	encoded, err := b.key(n, 0, key, key.typ)
	if err != nil {
		return nil, err
	}
	part := func(of, other *Expr, change func(at *Expr) (*Expr, error)) (*Expr, error) {
		at, err := b.find(n, other, encoded, 1)
		if err != nil {
			return nil, err
		}
		body, err := change(at)
		if err != nil {
			return nil, err
		}
		entries, err := b.each(n, gpu.OpEachElement, 0, of, gpu.ListOf(x.typ.Element()), body)
		if err != nil {
			return nil, err
		}
		return entries, nil
	}
	own, err := b.nest(n, entry)
	if err != nil {
		return nil, err
	}
	first, err := part(x, y, func(at *Expr) (*Expr, error) {
		others, err := b.element(n, y, at, x.typ.Element())
		if err == nil {
			others, err = b.nest(n, others)
		}
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _1 > 0 THEN _2 ELSE _3 END", at, others, own)
	})
	if err != nil {
		return nil, err
	}
	rest, err := part(y, x, func(at *Expr) (*Expr, error) {
		return b.expand(n, "CASE WHEN _1 > 0 THEN _2 ELSE _3 END", at, noBytes, own)
	})
	if err != nil {
		return nil, err
	}
	both, err := b.joinLists(n, first, rest)
	if err == nil {
		both, err = b.as(n, both, x.typ)
	}
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NULL THEN _2 WHEN _2 IS NULL THEN _1 ELSE _3 END", x, y, both)
}
