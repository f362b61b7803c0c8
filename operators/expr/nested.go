package expr

import (
	"slices"
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
	fs := []function{
		{name: "list_value", aliases: "list_pack", args: "…", bind: bindListValue, nulls: "never", result: list,
			about:    "A list of values of one type. Also [x, …].",
			examples: "[1, NULL, 3] → [1, NULL, 3]\nlist_value('a', 'b') → [a, b]\n[] → []"},
		{name: "struct_pack", args: "name := x, …", bind: bindStruct, nulls: "never", result: "a STRUCT",
			about:    "A struct with named fields. Also {'name': x, …}.",
			examples: "{'a': 1, 'b': 'x'} → {'a': 1, 'b': x}\nstruct_pack(a := 1) → {'a': 1}"},
		{name: "map", args: "keys, values", bind: bindMap, result: "a MAP",
			about: "A map of a list of keys and a list of values. Keys are different and not null, or that is an " +
				"error. " +
				"Also MAP {key: value, …}.",
			examples: "MAP {'k': 1} → {k=1}\nmap([1, 2], ['a', 'b']) → {1=a, 2=b}"},
		{name: "map_from_entries", args: "list", bind: bindMapFromEntries, result: "a MAP",
			about:    "A map of a list of structs of a key and a value.",
			examples: "map_from_entries([{'k': 1, 'v': 'a'}]) → {1=a}"},
		{name: "map_entries", args: "m", bind: bindMapEntries, result: list,
			about:    "The entries of a map as structs.",
			examples: "map_entries(MAP {'k': 1}) → [{'key': k, 'value': 1}]"},
		{name: "map_contains", args: "m, key", bind: bindMapContains, result: boolean,
			about: "Whether a map has a key.", examples: "map_contains(MAP {'k': 1}, 'k') → true"},
		{name: "map_extract", aliases: "element_at", args: "m, key", bind: bindMapExtract, result: list,
			about:    "A list of the value of a key, which is empty without the key.",
			nulls:    "if m is",
			examples: "map_extract(MAP {'k': 1}, 'k') → [1]\nmap_extract(MAP {'k': 1}, 'x') → []"},
		{name: "map_concat", args: "x, y, …", bind: bindMapConcat, result: "a MAP",
			about:    "The entries of maps. The last value of a key counts. It compares each key with each.",
			nulls:    "if all are; one that is null is empty",
			examples: "map_concat(MAP {1: 2}, MAP {1: 3, 4: 5}) → {1=3, 4=5}"},
		{name: "struct_insert", args: "s, name := x, …", bind: bindStructInsert(false), result: "a STRUCT",
			nulls:    "never",
			about:    "A struct with more fields.",
			examples: "struct_insert({'a': 1}, b := 'x') → {'a': 1, 'b': x}"},
		{name: "struct_update", args: "s, name := x, …", bind: bindStructInsert(true), result: "a STRUCT",
			nulls:    "never",
			about:    "A struct with other or more fields.",
			examples: "struct_update({'a': 1, 'b': 2}, a := 'x') → {'a': x, 'b': 2}"},
		{name: "struct_concat", args: "s, t, …", bind: bindStructConcat, result: "a STRUCT", nulls: "never",
			about:    "A struct with the fields of all, whose names are different.",
			examples: "struct_concat({'a': 1}, {'b': 2}) → {'a': 1, 'b': 2}"},
		{name: "struct_keys", args: "s", bind: bindStructKeys, result: list, about: "The names of the fields.",
			examples: "struct_keys({'a': 1, 'b': 2}) → [a, b]"},
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
		{name: "list_concat", aliases: "list_cat array_concat array_cat", args: "x, y, …",
			bind: bindListConcat, result: list,
			about:    "The elements of lists. Also x || y, which is null if x or y is.",
			nulls:    "never; a null list is empty",
			examples: "list_concat([1], [2, 3]) → [1, 2, 3]\n[1] || [2] → [1, 2]"},
		{name: "list_append", aliases: "array_append array_push_back", args: "list, x", bind: bindAppend(false),
			result: list, about: "The list with one more element at its end.", nulls: "never; a null list is empty",
			examples: "list_append([1], 2) → [1, 2]"},
		{name: "list_prepend", aliases: "array_prepend", args: "x, list", bind: bindAppend(true), result: list,
			about: "The list with one more element in front.", nulls: "never; a null list is empty",
			examples: "list_prepend(1, [2]) → [1, 2]"},
		{name: "list_transform", aliases: "list_apply array_transform array_apply apply", args: "list, lambda",
			bind: bindTransform, unbound: true, result: list,
			about: "The values of a lambda for each element, and its position from 1 as a second parameter. Also " +
				"[x + 1 FOR x IN list IF x > 1].",
			examples: "list_transform([1, 2], lambda x: x + 1) → [2, 3]\n" +
				"list_transform(['a', 'b'], lambda x, i: x || i) → [a1, b2]\n[x + 1 FOR x IN [1, 2] IF x > 1] → [3]"},
		{name: "list_filter", aliases: "array_filter filter", args: "list, lambda", bind: bindFilter, unbound: true,
			result: list, about: "The elements for which a lambda is true.",
			examples: "list_filter([1, 2, 3], lambda x: x > 1) → [2, 3]\n" +
				"list_filter([5, 6], lambda x, i: i = 2) → [6]"},
		{name: "list_reduce", aliases: "array_reduce reduce", args: "list, lambda[, start]", bind: bindReduce,
			unbound: true, result: "the type of the lambda",
			about: "The last of the values of a lambda of the value before it, the element, and its position if it " +
				"has " +
				"a third parameter. The first value is start, or else the first element; an empty list is then an " +
				"error.",
			nulls: "if the list is",
			examples: "list_reduce([1, 2, 3], lambda a, x: a + x) → 6\nlist_reduce([1, 2], lambda a, x: a || x, " +
				"'') → 12"},
		{name: "list_sort", aliases: "array_sort", args: "list[, order, nulls]", bind: bindSort(0, itself),
			result: list,
			about: "The elements in ascending order, or 'DESC'. Nulls come last unless 'NULLS FIRST' is given. " +
				"Lists and " +
				"structs compare by their first difference.",
			examples: "list_sort([3, NULL, 1]) → [1, 3, NULL]\nlist_sort([1, 2], 'DESC') → [2, 1]\n" +
				"list_sort([1, NULL], 'ASC', 'NULLS FIRST') → [NULL, 1]"},
		{name: "list_reverse_sort", aliases: "array_reverse_sort", args: "list[, nulls]",
			bind: bindSort(gpu.SortDescending, itself), result: list, about: "list_sort in descending order.",
			examples: "list_reverse_sort([1, NULL, 3]) → [3, 1, NULL]"},
		{name: "list_grade_up", aliases: "array_grade_up grade_up", args: "list[, order, nulls]",
			bind: bindSort(0, itsPosition), result: list,
			about:    "The positions of the elements in the order of list_sort.",
			examples: "list_grade_up([30, 10, 20]) → [2, 3, 1]"},
		{name: "list_reverse", aliases: "array_reverse", args: "list", bind: bindReverseList, result: list,
			about: "The elements from the last to the first.", examples: "list_reverse([1, 2, NULL]) → [NULL, 2, 1]"},
		{name: "list_distinct", aliases: "array_distinct", args: "list", bind: bindDistinct, result: list,
			about:    "The different elements without nulls, in the order of the list; in DuckDB in any order.",
			examples: "list_distinct([1, 1, NULL]) → [1]"},
		{name: "list_unique", aliases: "array_unique", args: "list", bind: bindUnique, result: "UBIGINT",
			about: "The number of different elements without nulls.", examples: "list_unique([3, 1, NULL, 3]) → 2"},
		{name: "list_intersect", aliases: "array_intersect", args: "x, y", bind: bindIntersect, result: list,
			about:    "The different elements of x that are in y. It compares each with each.",
			examples: "list_intersect([1, 1, 2], [1, 3]) → [1]"},
		{name: "list_has_any", aliases: "array_has_any", args: "x, y", bind: bindHas(gpu.Max, false), result: boolean,
			about:    "Whether x and y have an element in common that is not null. It compares each with each.",
			examples: "list_has_any([1, 2], [2, 3]) → true"},
		{name: "list_has_all", aliases: "array_has_all", args: "x, y", bind: bindHas(gpu.Min, false), result: boolean,
			about:    "Whether x has all elements of y that are not null. It compares each with each.",
			examples: "list_has_all([1, 2], [2]) → true"},
		{name: "list_where", aliases: "array_where", args: "list, conditions", bind: bindWhere, result: list,
			about:    "The elements whose condition in a second list is true.",
			examples: "list_where([1, 2, 3], [true, false, true]) → [1, 3]"},
		{name: "list_select", aliases: "array_select", args: "list, positions", bind: bindPick, result: list,
			about:    "The elements at the positions of a second list.",
			examples: "list_select(['a', 'b'], [2, 1, 5]) → [b, a, NULL]"},
		{name: "list_resize", aliases: "array_resize", args: "list, n[, x]", bind: bindResize, result: list,
			about:    "The first n elements. A shorter list gets x, or nulls, at its end.",
			examples: "list_resize([1, 2, 3], 2) → [1, 2]\nlist_resize([1], 3, 0) → [1, 0, 0]"},
		{name: "array_pop_front", args: "list", bind: bindPop("_1[2:]"), result: list,
			about: "The list without its first element.", examples: "array_pop_front([1, 2, 3]) → [2, 3]"},
		{name: "array_pop_back", args: "list", bind: bindPop("_1[:-2]"), result: list,
			about: "The list without its last element.", examples: "array_pop_back([1, 2, 3]) → [1, 2]"},
		{name: "list_aggregate", aliases: "list_aggr array_aggregate array_aggr aggregate", args: "list, name, …",
			bind: bindListAggregate, unbound: true, result: "that of the aggregate",
			about: "An aggregate of the elements, as in a group-by, by its name; further arguments are its own. " +
				"list_sum and others are functions of one argument.",
			nulls:    "if the aggregate is",
			examples: "list_aggregate([1, 2, NULL], 'sum') → 3\nlist_aggregate(['a', 'b'], 'string_agg', '|') → a|b"},
		{name: "array_to_string", args: "list, separator", bind: bindArrayToString, unbound: true, result: varchar,
			about:    "The elements that are not null as text, with a constant separator between them.",
			examples: "array_to_string([1, NULL, 2], ',') → 1,2"},
		{name: "string_split", aliases: "str_split split string_to_array", args: "s, separator", bind: bindSplit,
			result: list, about: "The parts of a text between separators, or its code points if that is empty.",
			nulls:    "if s is; a null separator is not in the text",
			examples: "string_split('a,,b', ',') → [a, '', b]\nstring_split('añ', '') → [a, ñ]"},
		{name: "string_split_regex", aliases: "str_split_regex regexp_split_to_array", args: "s, pattern",
			bind: bindSplitRegex, result: list,
			about:    "The parts of a text between matches of a constant pattern, which must not fit an empty text.",
			examples: "string_split_regex('a1b22c', '[0-9]+') → [a, b, c]"},
		{name: "flatten", args: "list", bind: bindFlatten, result: list,
			about: "The elements of the lists in a list.", examples: "flatten([[1], [2, 3]]) → [1, 2, 3]"},
		{name: "map_keys", args: "m", bind: bindUnzip(1), result: list, about: "The keys of a map.",
			examples: "map_keys(MAP {'k': 1}) → [k]"},
		{name: "map_values", args: "m", bind: bindUnzip(2), result: list, about: "The values of a map.",
			examples: "map_values(MAP {'k': 1}) → [1]"},
	}
	for _, name := range listAggregates {
		fs = append(fs, function{name: "list_" + name, args: "list", bind: bindNamedAggregate, result: "that of " +
			name, about: "The aggregate " + name + " of the elements.",
			nulls: "if the aggregate is", examples: examplesOfAggregates[name]})
	}
	return fs
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
	if len(elements) == 0 {
		return newConstant(gpu.Scalar{Type: t, Valid: true, Str: string(gpu.CloseNested(gpu.OpenNested(nil)))}), nil
	}
	parts := []*Expr{byteConstant(gpu.OpenNested(nil))}
	for _, e := range elements {
		x, err := b.nest(n, e)
		if err != nil {
			return nil, err
		}
		parts = append(parts, x)
	}
	return b.op(n, Expr{op: gpu.OpConcat, typ: t}, append(parts, byteConstant(gpu.CloseNested(nil)))...)
}

// known gives a bare NULL the type INTEGER, and takes literals as their type.
func known(x *Expr) *Expr {
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	return typed(x)
}

func bindListValue(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if !slices.ContainsFunc(a, func(x *Expr) bool { return x.literal != nullLiteral && !x.untyped }) {
		return b.untypedList(n, a)
	}
	if err := b.unify(n.Args, a, "the elements of a list"); err != nil {
		return nil, err
	}
	for i := range a {
		a[i] = known(a[i])
	}
	return b.assemble(n, gpu.ListOf(a[0].typ), a)
}

// untypedList binds a list of NULLs, [] and lists of those.
func (b *binder) untypedList(n *syntax.Call, a []*Expr) (*Expr, error) {
	t := gpu.Of(gpu.Int32)
	if len(a) > 0 {
		if err := b.unify(n.Args, a, "the elements of a list"); err != nil {
			return nil, err
		}
		t = known(a[0]).typ
	}
	list := gpu.OpenNested(nil)
	for _, x := range a {
		list = gpu.AppendScalar(list, x.value)
	}
	out := newConstant(gpu.Scalar{Type: gpu.ListOf(t), Valid: true, Str: string(gpu.CloseNested(list))})
	out.untyped = true
	return out, nil
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

// bindMap binds map(keys, values).
func bindMap(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if entries, ok, err := b.literalMap(n); ok || err != nil {
		return entries, err
	}
	keys, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	values, err := b.list(n, 1, a[1])
	if err != nil {
		return nil, err
	}
	return b.mapOfLists(n, keys, values)
}

// literalMap binds a map of two lists that are written as such, with keys that are different constants. ok is false for
// other ones.
func (b *binder) literalMap(n *syntax.Call) (_ *Expr, ok bool, _ error) {
	keys, ok1 := n.Args[0].(*syntax.Call)
	values, ok2 := n.Args[1].(*syntax.Call)
	if !ok1 || !ok2 || keys.Name != "list_value" || values.Name != "list_value" || len(keys.Args) != len(values.Args) {
		return nil, false, nil
	}
	var of [2][]*Expr
	types := [2]gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Int32)}
	for k, list := range []*syntax.Call{keys, values} {
		for _, arg := range list.Args {
			x, err := b.bind(arg)
			if err != nil {
				return nil, false, err
			}
			of[k] = append(of[k], x)
		}
		if len(of[k]) == 0 {
			continue
		}
		if err := b.unify(list.Args, of[k], "the keys and the values of a map"); err != nil {
			return nil, false, err
		}
		types[k] = known(of[k][0]).typ
	}
	t := gpu.MapOf(types[0], types[1])
	entries := make([]*Expr, len(of[0]))
	for i, key := range of[0] {
		v, constant := key.Constant()
		if constant && !v.Valid {
			return nil, false, b.errorf(keys.Args[i], "the key of a map cannot be NULL")
		}
		if !constant && (key.nullable || len(of[0]) > 1) {
			return nil, false, nil
		}
		if slices.ContainsFunc(of[0][:i], key.Equal) {
			return nil, false, b.errorf(keys.Args[i], "a map has the key %s twice", key)
		}
		var err error
		if entries[i], err = b.assemble(n, t.Element(), []*Expr{known(key), known(of[1][i])}); err != nil {
			return nil, false, err
		}
	}
	out, err := b.assemble(n, t, entries)
	return out, true, err
}

// element returns an element by its position.
func (b *binder) element(n syntax.Node, x, at *Expr, t gpu.Type) (*Expr, error) {
	return b.op(n, Expr{op: gpu.OpElement, typ: t, nullable: true, rng: typeRange(t)}, x, at)
}

func position(k int64) *Expr { return newConstant(gpu.IntScalar(long, k)) }

// fieldOf returns a field of a struct by its name.
func (b *binder) fieldOf(n syntax.Node, x *Expr, name string) (*Expr, error) {
	if x.isJSON() {
		return b.jsonPath(n, n, gpu.JSONExtract, x, newConstant(gpu.StringScalar(name)))
	}
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
	case a[0].isJSON():
		return b.jsonPath(n, n.Args[1], gpu.JSONExtract, a[0], a[1])
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
	m, err := b.mapArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.lookUp(n, m, a[1])
}

// bindExtract binds x[i]: an element, a field, a value, or a character.
func bindExtract(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	switch t := a[0].typ; t.Kind {
	case gpu.String:
		if a[0].isJSON() {
			return b.jsonPath(n, n.Args[1], gpu.JSONExtract, a[0], a[1])
		}
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
	m, err := b.mapArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	x, err := bindCount(b, n, []*Expr{m})
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
	if _, constant := a[1].Constant(); err != nil || !constant {
		// A constant that fits takes the type of the elements. Otherwise both get their common type.
		t, ok := common(b.newParam(theElement, list.typ.Element()), a[1])
		if ok && t != list.typ.Element() && t.Kind != gpu.Invalid {
			if list, err = b.convert(n.Args[0], list, gpu.ListOf(t), false); err != nil {
				return nil, err
			}
			key, err = b.key(n, 1, a[1], t)
		}
	}
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
	return b.foundAt(n, a[0], a[1], at)
}

// foundAt returns whether a list or map has a value, from its position. A null is in none, and whether it is in a list
// that has others is not known.
func (b *binder) foundAt(n *syntax.Call, list, x, at *Expr) (*Expr, error) {
	count, err := b.op(n, Expr{op: gpu.OpCountElements, typ: long, nullable: list.nullable}, list)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 > 0 WHEN _3 = 0 THEN false END", x, at, count)
}

func bindPositionOf(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	at, err := b.positionOf(n, a)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CAST(nullif(_1, 0) AS INTEGER)", at)
}

func (b *binder) joinLists(n syntax.Node, x, y *Expr) (*Expr, error) {
	both := []*Expr{x, y}
	if t, ok := common(x, y); !ok || t.Kind != gpu.List {
		return nil, b.errorf(n, "cannot join lists of two types, %v and %v", x.typ, y.typ)
	}
	if err := b.unify([]syntax.Node{n, n}, both, "the elements of a list"); err != nil {
		return nil, err
	}
	x, y = both[0], both[1]
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
	var out *Expr
	for i, x := range a {
		if x.literal == nullLiteral {
			continue
		}
		x, err := b.list(n, i, x)
		if err == nil {
			x, err = b.orEmpty(n, x)
		}
		if err == nil && out != nil {
			x, err = b.joinLists(n, out, x)
		}
		if err != nil {
			return nil, err
		}
		out = x
	}
	if out == nil {
		return nullOfAnyType(), nil
	}
	return out, nil
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
		x := a[1-at]
		if _, ok := common(b.newParam(theElement, list.typ.Element()), x); !ok || x.literal == nullLiteral {
			if x, err = b.convert(n.Args[1-at], x, list.typ.Element(), false); err != nil {
				return nil, err
			}
		}
		x = known(x)
		one, err := b.assemble(n, gpu.ListOf(x.typ), []*Expr{x})
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
	if a[0].literal == nullLiteral {
		return x, nil
	}
	if t.Kind != gpu.List {
		return nil, b.errorf(n.Args[0], "flatten needs a list of lists, found %v", x.typ)
	}
	return b.op(n, Expr{op: gpu.OpFlattenElements, typ: t, nullable: x.nullable}, x)
}

func bindUnzip(field int) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.mapArgument(n, 0, a[0])
		if err != nil {
			return nil, err
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
	if err := b.distinctOrder(n, s.Order, x); err != nil {
		return call, err
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
	return b.op(n, Expr{op: gpu.OpConcat, typ: a[0].typ, nullable: a[0].nullable}, byteConstant(gpu.OpenNested(nil)),
		a[0],
		byteConstant(gpu.CloseNested(nil)))
}

// canonical returns a nested value whose zeros have no sign, for comparisons.
func (b *binder) canonical(n syntax.Node, x *Expr) (*Expr, error) {
	if !x.typ.IsNested() || !x.typ.HasFloats() || x.op == gpu.OpCanonical {
		return x, nil
	}
	return b.op(n, Expr{op: gpu.OpCanonical, typ: x.typ, nullable: x.nullable}, x)
}

// Canonical returns a nested value whose zeros have no sign, so that equal values have the same bytes.
func Canonical(x *Expr) *Expr {
	return &Expr{op: gpu.OpCanonical, typ: x.typ, nullable: x.nullable, args: []*Expr{x}, column: -1}
}

// Part is what an expression takes of a nested column: a field of a struct, of a struct in it, or of the elements of a
// list. Path has the names of the fields, and gpu.PathElements for elements.
type Part struct {
	Column int
	Path   []string
	Shape  bool // the expression depends only on the number of elements, or on whether the list is null
}

// part is a Part, and the positions of the elements on the way.
type part struct {
	Part
	at []*Expr
}

// partOf returns the part that an expression is.
func (e *Expr) partOf() (p part, ok bool) {
	switch e.op {
	case opColumn:
		return part{Part: Part{Column: e.column}}, true
	case gpu.OpCountElements, gpu.OpIsNull, gpu.OpIsNotNull:
		if p, ok = e.args[0].partOf(); !ok || p.Shape || e.args[0].typ.Kind != gpu.List {
			return p, false
		}
		p.Shape = true
		return p, true
	case gpu.OpElement:
		if p, ok = e.args[0].partOf(); !ok || p.Shape {
			return p, false
		}
	default:
		return p, false
	}
	if e.args[0].typ.Kind == gpu.List {
		p.Path, p.at = append(p.Path, gpu.PathElements), append(p.at, e.args[1])
		return p, true
	}
	name, ok := e.fieldName()
	p.Path = append(p.Path, name)
	return p, ok
}

// fieldName returns the name of a field of a struct.
func (e *Expr) fieldName() (name string, ok bool) {
	children := e.args[0].typ.Children()
	k, constant := e.args[1].Constant()
	if e.args[0].typ.Kind != gpu.Struct || !constant || !k.Valid || k.Int.Int64() < 1 ||
		k.Int.Int64() > int64(len(children)) {
		return "", false
	}
	return children[k.Int.Int64()-1].Name, true
}

// IsPart returns the part that the expression is, unless it takes single elements.
func (e *Expr) IsPart() (Part, bool) {
	p, ok := e.partOf()
	return p.Part, ok && !p.Shape && len(p.at) == 0
}

// Parts calls f for each part of a column that the expression uses, but not for the parts around it.
func (e *Expr) Parts(f func(Part)) {
	e.visitParts(f, map[*Expr]bool{})
}

func (e *Expr) visitParts(f func(Part), seen map[*Expr]bool) {
	if seen[e] {
		return
	}
	seen[e] = true
	args := e.args
	if p, ok := e.partOf(); ok {
		f(p.Part)
		args = p.at
	}
	for _, a := range args {
		a.visitParts(f, seen)
	}
}

// WithParts returns the expression with columns in the place of parts: of returns the column that has the values of a
// part, in as many lists as the path has elements; for a shape, any column of a field of the elements; nil if there is
// none.
func (e *Expr) WithParts(of func(Part) *Expr) *Expr {
	done := map[*Expr]*Expr{}
	var replace func(*Expr) *Expr
	replace = func(e *Expr) *Expr {
		if r, ok := done[e]; ok {
			return r
		}
		out := e
		if p, ok := e.partOf(); ok && (len(p.Path) > 0 || p.Shape) {
			if c := of(p.Part); c != nil {
				for _, at := range p.at {
					t := c.typ.Element()
					c = &Expr{op: gpu.OpElement, typ: t, nullable: true, rng: typeRange(t), column: -1, fails: e.fails,
						args: []*Expr{c, replace(at)}}
				}
				if p.Shape {
					shape := *e
					shape.args = []*Expr{c}
					c = &shape
				}
				if c.typ == e.typ {
					done[e] = c
					return c
				}
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
