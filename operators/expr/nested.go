package expr

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

var encoding = gpu.Of(gpu.Binary)

// nestedFunctions are the functions of lists, structs and maps.
func nestedFunctions() []function {
	const list = "a LIST"
	return []function{
		{name: "list_value", aliases: "list_pack", args: "…", bind: bindListValue, nulls: "never", result: list,
			about:    "A list of values of one type. Also [x, …].",
			examples: "[1, NULL, 3] → [1, NULL, 3]\nlist_value('a', 'b') → [a, b]\n[] → []"},
		{name: "struct_pack", args: "name := x, …", bind: bindStruct, nulls: "never", result: "a STRUCT",
			about:    "A struct with named fields. Also {'name': x, …}.",
			examples: "{'a': 1, 'b': 'x'} → {'a': 1, 'b': x}\nstruct_pack(a := 1) → {'a': 1}"},
		{name: "map", args: "keys, values", bind: bindMap, result: "a MAP",
			about:    "A map of a list of keys and a list of values, which are literals. Also MAP {key: value, …}.",
			examples: "MAP {'k': 1} → {k=1}"},
		{name: "struct_extract", args: "s, name", bind: bindField, result: "that of the field",
			about:    "A field of a struct, by its name, which is constant. Also s.name and s['name'].",
			examples: "{'a': 1}.a → 1\nstruct_extract({'a': 1}, 'a') → 1"},
		{name: "map_extract_value", args: "m, key", bind: bindMapValue,
			result: "that of the values", about: "The value of a key. Also m[key].", nulls: "also without the key",
			examples: "MAP {'k': 1}['k'] → 1\nMAP {'k': 1}['x'] → NULL"},
		{name: "cardinality", args: "m", bind: bindCardinality, result: "UBIGINT",
			about: "The number of entries of a map.", examples: "cardinality(MAP {'k': 1}) → 1"},
		{name: "list_contains", aliases: "list_has array_contains array_has", args: "list, x", bind: bindContains,
			result: boolean, about: "Whether a list has a value.", examples: "list_contains([1, 2], 2) → true"},
		{name: "list_position", aliases: "list_indexof array_position array_indexof", args: "list, x",
			bind: bindPositionOf, result: "INTEGER", nulls: "also without it",
			about:    "The position of the first element that equals x.",
			examples: "list_position([5, 7], 7) → 2\nlist_position([5, 7], 9) → NULL"},
		{name: "list_concat", aliases: "list_cat array_concat array_cat", args: "x, y", bind: bindListConcat,
			result: list, about: "The elements of two lists. Also x || y, which is null if x or y is.",
			nulls:    "if both are; one that is null is empty",
			examples: "list_concat([1], [2, 3]) → [1, 2, 3]\n[1] || [2] → [1, 2]"},
		{name: "list_append", aliases: "array_append array_push_back", args: "list, x", bind: bindAppend(false),
			result: list, about: "The list with one more element at its end.", nulls: "never; a null list is empty",
			examples: "list_append([1], 2) → [1, 2]"},
		{name: "list_prepend", aliases: "array_prepend", args: "x, list", bind: bindAppend(true), result: list,
			about: "The list with one more element in front.", nulls: "never; a null list is empty",
			examples: "list_prepend(1, [2]) → [1, 2]"},
		{name: "flatten", args: "list", bind: bindFlatten, result: list,
			about: "The elements of the lists in a list.", examples: "flatten([[1], [2, 3]]) → [1, 2, 3]"},
		{name: "map_keys", args: "m", bind: bindUnzip(1), result: list, about: "The keys of a map.",
			examples: "map_keys(MAP {'k': 1}) → [k]"},
		{name: "map_values", args: "m", bind: bindUnzip(2), result: list, about: "The values of a map.",
			examples: "map_values(MAP {'k': 1}) → [1]"},
	}
}

// nest returns the encoding of a value.
func (b *binder) nest(n syntax.Node, x *Expr) (*Expr, error) {
	return b.op(n, Expr{op: gpu.OpNest, typ: encoding}, typed(x))
}

// assemble returns a nested value of the encodings of its elements.
func (b *binder) assemble(n syntax.Node, t gpu.Type, elements []*Expr) (*Expr, error) {
	if t.Depth() > gpu.MaxNesting {
		return nil, b.errorf(n, "the value is nested more than %d levels deep", gpu.MaxNesting)
	}
	bytes := func(s []byte) *Expr {
		return newConstant(gpu.Scalar{Type: encoding, Valid: true, Str: string(s)})
	}
	parts := []*Expr{bytes(gpu.OpenNested(nil))}
	for _, e := range elements {
		x, err := b.nest(n, e)
		if err != nil {
			return nil, err
		}
		parts = append(parts, x)
	}
	return b.op(n, Expr{op: gpu.OpConcat, typ: t}, append(parts, bytes(gpu.CloseNested(nil)))...)
}

// known gives a bare NULL the type INTEGER, and takes literals as their type.
func known(x *Expr) *Expr {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	return typed(x)
}

func bindListValue(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if len(a) == 0 {
		return b.assemble(n, gpu.ListOf(gpu.Of(gpu.Int32)), nil)
	}
	if err := b.unify(n.Args, a, "the elements of a list"); err != nil {
		return nil, err
	}
	for i := range a {
		a[i] = known(a[i])
	}
	return b.assemble(n, gpu.ListOf(a[0].typ), a)
}

func bindStruct(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	fields := make([]gpu.Field, len(a))
	for i, x := range a {
		name := ""
		if n.Names != nil {
			name = n.Names[i]
		}
		if column, ok := n.Args[i].(*syntax.Name); ok && name == "" {
			name = column.Parts[len(column.Parts)-1]
		}
		if name == "" {
			return nil, b.errorf(n.Args[i], "a field of struct_pack needs a name, as in struct_pack(a := 1)")
		}
		for _, f := range fields[:i] {
			if strings.EqualFold(f.Name, name) {
				return nil, b.errorf(n.Args[i], "a STRUCT has two fields %q", syntax.Cut(name, 60))
			}
		}
		a[i] = known(x)
		fields[i] = gpu.Field{Name: name, Type: a[i].typ}
	}
	return b.assemble(n, gpu.StructOf(fields...), a)
}

// bindMap binds map(keys, values) of two lists that are written as such.
func bindMap(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	keys, ok1 := n.Args[0].(*syntax.Call)
	values, ok2 := n.Args[1].(*syntax.Call)
	if !ok1 || !ok2 || keys.Name != "list_value" || values.Name != "list_value" || len(keys.Args) != len(values.Args) {
		return nil, b.errorf(n, "map takes two list literals of one length, as in map(['a', 'b'], [1, 2])")
	}
	var of [2][]*Expr
	types := [2]gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Int32)}
	for k, list := range []*syntax.Call{keys, values} {
		for _, arg := range list.Args {
			x, err := b.bind(arg)
			if err != nil {
				return nil, err
			}
			of[k] = append(of[k], x)
		}
		if len(of[k]) == 0 {
			continue
		}
		if err := b.unify(list.Args, of[k], "the keys and the values of a map"); err != nil {
			return nil, err
		}
		types[k] = known(of[k][0]).typ
	}
	t := gpu.MapOf(types[0], types[1])
	entries := make([]*Expr, len(of[0]))
	for i, key := range of[0] {
		if v, ok := key.Constant(); ok && !v.Valid || key.nullable {
			return nil, b.errorf(keys.Args[i], "the key of a map cannot be NULL")
		}
		var err error
		if entries[i], err = b.assemble(n, t.Element(), []*Expr{known(key), known(of[1][i])}); err != nil {
			return nil, err
		}
		for _, other := range of[0][:i] {
			if other.Equal(key) {
				return nil, b.errorf(keys.Args[i], "a map has the key %s twice", key)
			}
			_, constant := key.Constant()
			if _, both := other.Constant(); !constant || !both {
				return nil, b.errorf(keys.Args[i], "the keys of a map of several entries must be constants")
			}
		}
	}
	return b.assemble(n, t, entries)
}

// element returns an element by its position.
func (b *binder) element(n syntax.Node, x, at *Expr, t gpu.Type) (*Expr, error) {
	return b.op(n, Expr{op: gpu.OpElement, typ: t, nullable: true, rng: typeRange(t)}, x, at)
}

func position(k int64) *Expr { return newConstant(gpu.IntScalar(long, k)) }

// fieldOf returns a field of a struct by its name.
func (b *binder) fieldOf(n syntax.Node, x *Expr, name string) (*Expr, error) {
	children := x.typ.Children()
	if x.typ.Kind != gpu.Struct {
		return nil, b.errorf(n, "%v has no field %q; only a STRUCT has fields", x.typ, syntax.Cut(name, 100))
	}
	for _, same := range []func(string) bool{func(s string) bool { return s == name },
		func(s string) bool { return strings.EqualFold(s, name) }} {
		for i, c := range children {
			if same(c.Name) {
				return b.element(n, x, position(int64(i+1)), c.Type)
			}
		}
	}
	names := make([]string, len(children))
	for i, c := range children {
		names[i] = c.Name
	}
	return nil, b.errorf(n, "the STRUCT has no field %q; its fields are %s", syntax.Cut(name, 100),
		syntax.Cut(phrase.Some(names, 20, ", "), 1000))
}

func bindField(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	v, ok := a[1].Constant()
	switch {
	case ok && v.Valid && v.Type.Kind == gpu.String:
		return b.fieldOf(n, a[0], v.Str)
	case ok && v.Valid && v.Type.IsInteger() && a[0].typ.Kind == gpu.Struct:
		children := a[0].typ.Children()
		if k := v.Int.Int64(); v.Int.IsInt64() && k > 0 && k <= int64(len(children)) {
			return b.element(n, a[0], position(k), children[k-1].Type)
		}
	}
	return nil, b.errorf(n.Args[1], "a field of a STRUCT is a constant: its name, or its number from 1")
}

// key converts a value to the type of the elements or keys that it is compared with, and encodes it.
func (b *binder) key(n *syntax.Call, i int, x *Expr, t gpu.Type) (*Expr, error) {
	x, err := b.convert(n.Args[i], x, t, false)
	if err != nil {
		return nil, err
	}
	if t.IsFloat() { // +0 for both zeros
		x, err = b.expand(n, "CASE WHEN _1 = 0 THEN _2 ELSE _1 END", x, newConstant(gpu.FloatScalar(t, 0)))
	} else {
		x, err = b.canonical(n, x)
	}
	if err != nil {
		return nil, err
	}
	return b.nest(n, x)
}

// find returns the position of an element, or of an entry by its key if field is 1; 0 without one.
func (b *binder) find(n *syntax.Call, list, key *Expr, field int) (*Expr, error) {
	list, err := b.canonical(n, list)
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpFindElement, typ: long, n: field, nullable: list.nullable}, list, key)
}

func (b *binder) lookUp(n *syntax.Call, m, key *Expr) (*Expr, error) {
	c := m.typ.Children()
	k, err := b.key(n, 1, key, c[0].Type)
	if err != nil {
		return nil, err
	}
	at, err := b.find(n, m, k, 1)
	if err != nil {
		return nil, err
	}
	entry, err := b.element(n, m, at, m.typ.Element())
	if err != nil {
		return nil, err
	}
	return b.element(n, entry, position(2), c[1].Type)
}

func bindMapValue(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.Kind != gpu.Map {
		return nil, b.errorf(n.Args[0], "%s needs a MAP, found %v", n.Name, a[0].typ)
	}
	return b.lookUp(n, a[0], a[1])
}

// bindExtract binds x[i]: an element, a field, a value, or a character.
func bindExtract(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	switch t := a[0].typ; t.Kind {
	case gpu.List:
		at, err := b.count(n, 1, a[1])
		if err != nil {
			return nil, err
		}
		return b.element(n, a[0], at, t.Element())
	case gpu.Struct:
		return bindField(b, n, a)
	case gpu.Map:
		return b.lookUp(n, a[0], a[1])
	}
	return bindCharacter(b, n, a)
}

var bindCharacter = macro("si", "substring(_1, _2, 1)")

func bindCount(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if k := a[0].typ.Kind; k != gpu.List && k != gpu.Map {
		return nil, b.errorf(n.Args[0], "%s needs a LIST or MAP, found %v", n.Name, a[0].typ)
	}
	return b.op(n, Expr{op: gpu.OpCountElements, typ: long, nullable: a[0].nullable}, a[0])
}

func bindCardinality(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.Kind != gpu.Map {
		return nil, b.errorf(n.Args[0], "%s needs a MAP, found %v", n.Name, a[0].typ)
	}
	x, err := bindCount(b, n, a)
	if err != nil {
		return nil, err
	}
	return b.convert(n, x, gpu.Of(gpu.Uint64), false)
}

// list checks that an argument is a list.
func (b *binder) list(n *syntax.Call, i int, x *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.ListOf(gpu.Of(gpu.Int32)))), nil
	}
	if x.typ.Kind != gpu.List {
		return nil, b.errorf(n.Args[i], "%s needs a LIST, found %v", n.Name, x.typ)
	}
	return x, nil
}

func (b *binder) positionOf(n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	key, err := b.key(n, 1, a[1], list.typ.Element())
	if err != nil {
		return nil, err
	}
	return b.find(n, list, key, 0)
}

func bindContains(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	at, err := b.positionOf(n, a)
	if err != nil {
		return nil, err
	}
	if a[1].literal == nullLiteral {
		a[1] = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	return b.expand(n, "CASE WHEN _2 IS NOT NULL THEN _1 > 0 END", at, a[1])
}

func bindPositionOf(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	at, err := b.positionOf(n, a)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CAST(nullif(_1, 0) AS INTEGER)", at)
}

func (b *binder) joinLists(n syntax.Node, x, y *Expr) (*Expr, error) {
	if x.typ != y.typ {
		return nil, b.errorf(n, "cannot join lists of two types, %v and %v", x.typ, y.typ)
	}
	return b.op(n, Expr{op: gpu.OpJoinElements, typ: x.typ, nullable: x.nullable || y.nullable}, x, y)
}

// orEmpty returns a list, or an empty one instead of a null.
func (b *binder) orEmpty(n syntax.Node, x *Expr) (*Expr, error) {
	if !x.nullable {
		return x, nil
	}
	empty, err := b.assemble(n, x.typ, nil)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "coalesce(_1, _2)", x, empty)
}

func bindListConcat(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	null := [2]*Expr{}
	for i := range a {
		if a[i].literal == nullLiteral {
			return typed(a[1-i]), nil
		}
		x, err := b.list(n, i, a[i])
		if err != nil {
			return nil, err
		}
		if a[i], null[i] = x, x; x.nullable {
			if a[i], err = b.orEmpty(n, x); err != nil {
				return nil, err
			}
		}
	}
	both, err := b.joinLists(n, a[0], a[1])
	if err != nil || !null[0].nullable || !null[1].nullable {
		return both, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL OR _2 IS NOT NULL THEN _3 END", null[0], null[1], both)
}

func bindAppend(front bool) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		at := 0
		if front {
			at = 1
		}
		list, err := b.list(n, at, a[at])
		if err != nil {
			return nil, err
		}
		x, err := b.convert(n.Args[1-at], a[1-at], list.typ.Element(), false)
		if err != nil {
			return nil, err
		}
		one, err := b.assemble(n, list.typ, []*Expr{x})
		if err != nil {
			return nil, err
		}
		if list, err = b.orEmpty(n, list); err != nil {
			return nil, err
		}
		if front {
			return b.joinLists(n, one, list)
		}
		return b.joinLists(n, list, one)
	}
}

func bindFlatten(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	t := x.typ.Element()
	if t.Kind != gpu.List {
		return nil, b.errorf(n.Args[0], "flatten needs a list of lists, found %v", x.typ)
	}
	return b.op(n, Expr{op: gpu.OpFlattenElements, typ: t, nullable: x.nullable}, x)
}

func bindUnzip(field int) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x := a[0]
		if x.typ.Kind != gpu.Map {
			return nil, b.errorf(n.Args[0], "%s needs a MAP, found %v", n.Name, x.typ)
		}
		t := gpu.ListOf(x.typ.Children()[field-1].Type)
		return b.op(n, Expr{op: gpu.OpPluckElements, n: field, typ: t, nullable: x.nullable}, x)
	}
}

// sliceOf binds list[from:to].
func (b *binder) sliceOf(n *syntax.Call, a []*Expr) (*Expr, error) {
	e := Expr{op: gpu.OpSliceElements, typ: a[0].typ, nullable: a[0].nullable}
	args := []*Expr{a[0]}
	for i, x := range a[1:] {
		at, err := b.count(n, i+1, x)
		if err != nil {
			return nil, err
		}
		e.nullable = e.nullable || at.nullable
		args = append(args, at)
	}
	return b.op(n, e, args...)
}

// concatLists binds x || y of lists.
func (b *binder) concatLists(n syntax.Node, args []*Expr) (*Expr, error) {
	out := args[0]
	for _, y := range args[1:] {
		if out.literal == nullLiteral {
			out = newConstant(gpu.Null(y.typ))
		}
		if y.literal == nullLiteral {
			y = newConstant(gpu.Null(out.typ))
		}
		var err error
		if out, err = b.joinLists(n, out, y); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// listFunction is the name of the function that completes the list of an aggregate. No text can call it.
const listFunction = "$list"

// listAggregate binds list(x): the encodings of the values of a group, joined. listFunction completes the list.
func (b *binder) listAggregate(n *syntax.Call) (call AggregateCall, err error) {
	if err := b.aggregateInside(n); err != nil {
		return call, err
	}
	if n.Star || len(n.Args) != 1 {
		return call, b.errorf(n, "%s takes 1 argument, found %s", n.Name, found(n))
	}
	if n.Filter != nil {
		b.lazy++
		defer func() { b.lazy-- }()
	}
	x, err := b.bind(n.Args[0])
	if err != nil {
		return call, err
	}
	x = known(x)
	s := &SortedCall{Kind: window.StringAgg, text: n.String(), IgnoreNulls: true}
	call = AggregateCall{Kind: gpu.Count, Distinct: n.Distinct, Sorted: s, Output: gpu.ListOf(x.typ)}
	if s.Order, err = b.aggregateOrder(n); err != nil {
		return call, err
	}
	if n.Distinct && len(s.Order) > 0 {
		return call, b.errorf(n, "%s of DISTINCT values has no ORDER BY; sort the rows before", n.Name)
	}
	if call.Arg, err = b.nest(n, x); err != nil {
		return call, err
	}
	if call.Arg.op == gpu.OpConst {
		// A constant would have no rows to keep.
		return call, b.errorf(n.Args[0], "%s of a constant is not possible; name a column", n.Name)
	}
	if n.Filter != nil {
		err = b.sortedFilter(n, &call)
	}
	return call, err
}

// bindAggregatedList completes a list whose elements an aggregate has joined.
func bindAggregatedList(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	bytes := func(s []byte) *Expr {
		return newConstant(gpu.Scalar{Type: encoding, Valid: true, Str: string(s)})
	}
	return b.op(n, Expr{op: gpu.OpConcat, typ: a[0].typ, nullable: a[0].nullable}, bytes(gpu.OpenNested(nil)), a[0],
		bytes(gpu.CloseNested(nil)))
}

// canonical returns a nested value whose zeros have no sign, for comparisons.
func (b *binder) canonical(n syntax.Node, x *Expr) (*Expr, error) {
	if !x.typ.IsNested() || !x.typ.HasFloats() || x.op == gpu.OpCanonical {
		return x, nil
	}
	return b.op(n, Expr{op: gpu.OpCanonical, typ: x.typ, nullable: x.nullable}, x)
}

// castNested casts a nested constant element by element.
func castNested(fold Fold, x *Expr, t gpu.Type) (*Expr, error) {
	v, ok := x.Constant()
	if !ok {
		return nil, fmt.Errorf("cannot cast %v to %v: only constants are cast inside", x.typ, t)
	}
	out, err := castInside(fold, v, t)
	if err != nil {
		return nil, err
	}
	return newConstant(out), nil
}

// castInside casts a value, or what is inside of it.
func castInside(fold Fold, v gpu.Scalar, t gpu.Type) (gpu.Scalar, error) {
	from := v.Type
	switch {
	case !v.Valid:
		return gpu.Null(t), nil
	case from == t:
		return v, nil
	case !from.IsNested() && !t.IsNested():
		c, err := newCast(fold, newConstant(v), t, false)
		if err != nil {
			return v, err
		}
		out, ok := c.Constant()
		if !ok {
			return v, fmt.Errorf("cannot cast %v to %v", from, t)
		}
		return out, nil
	}
	old, fresh := from.Children(), t.Children()
	if from.Kind != t.Kind || len(old) != len(fresh) {
		return v, fmt.Errorf("cannot cast %v to %v", from, t)
	}
	b := gpu.OpenNested(nil)
	rest := gpu.ElementsNested(v.Str)
	for i := 0; ; i++ {
		value, more, ok := gpu.NextNested(rest)
		if !ok {
			return gpu.Scalar{Type: t, Valid: true, Str: string(gpu.CloseNested(b))}, nil
		}
		rest = more
		source, target := from.Element(), t.Element()
		if from.Kind == gpu.Struct {
			source, target = old[i].Type, fresh[i].Type
		}
		inner, err := castInside(fold, gpu.ScalarNested(value, source), target)
		if err != nil {
			return v, err
		}
		b = gpu.AppendScalar(b, inner)
	}
}

// Fields returns the expression with columns in the place of fields of structs: of returns the one for the path of a
// field of a column, nil if there is none.
func (e *Expr) Fields(of func(column int, path []string) *Expr) *Expr {
	done := map[*Expr]*Expr{}
	var replace func(*Expr) *Expr
	replace = func(e *Expr) *Expr {
		if r, ok := done[e]; ok {
			return r
		}
		out := e
		if column, path, ok := e.fieldPath(); ok {
			if c := of(column, path); c != nil && c.typ == e.typ {
				done[e] = c
				return c
			}
		}
		for i, a := range e.args {
			r := replace(a)
			if r == a {
				continue
			}
			if out == e {
				c := *e
				c.args = append([]*Expr(nil), e.args...)
				out = &c
			}
			out.args[i] = r
		}
		done[e] = out
		return out
	}
	return replace(e)
}

// fieldPath returns the column and the names of fields if the expression is a field of a struct, or of one in it.
func (e *Expr) fieldPath() (column int, path []string, ok bool) {
	if e.op != gpu.OpElement || e.args[0].typ.Kind != gpu.Struct {
		return 0, nil, false
	}
	k, constant := e.args[1].Constant()
	children := e.args[0].typ.Children()
	if !constant || !k.Valid || k.Int.Int64() < 1 || k.Int.Int64() > int64(len(children)) {
		return 0, nil, false
	}
	name := children[k.Int.Int64()-1].Name
	if e.args[0].op == opColumn {
		return e.args[0].column, []string{name}, true
	}
	column, path, ok = e.args[0].fieldPath()
	return column, append(path, name), ok
}
