package expr

import (
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// sortFlags binds the constants 'ASC' or 'DESC' and 'NULLS FIRST' or 'NULLS LAST' among the arguments of a call.
func (b *binder) sortFlags(n *syntax.Call, a []*Expr, first, flags int) (int, error) {
	for i, x := range a[first:] {
		v, ok := x.Constant()
		if !ok || !v.Valid || v.Type.Kind != gpu.String {
			return 0, b.errorf(n.Args[first+i], "the order of %s must be a constant text", n.Name)
		}
		direction := i == 0 && strings.HasSuffix(n.Name, "_sort") && !strings.Contains(n.Name, "reverse") ||
			i == 0 && strings.Contains(n.Name, "grade")
		switch word := strings.Join(strings.Fields(strings.ToUpper(v.Str)), " "); {
		case direction && (word == "ASC" || word == "ASCENDING" || word == "DEFAULT"):
		case direction && (word == "DESC" || word == "DESCENDING"):
			flags |= gpu.SortDescending
		case !direction && (word == "NULLS LAST" || word == "DEFAULT"):
		case !direction && word == "NULLS FIRST":
			flags |= gpu.SortNullsFirst
		case direction:
			return 0, b.errorf(n.Args[first+i], "the order of %s is 'ASC' or 'DESC'", n.Name)
		default:
			return 0, b.errorf(n.Args[first+i], "nulls are 'NULLS FIRST' or 'NULLS LAST' in %s", n.Name)
		}
	}
	return flags, nil
}

// bindSort binds list_sort(list, order, nulls) and, descending, list_reverse_sort(list, nulls). of makes the element of
// the result from an element of the list and its position.
func bindSort(flags int, of func(element, at *Expr) *Expr) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		list, err := b.list(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		flags, err := b.sortFlags(n, a, 1, flags)
		if err != nil {
			return nil, err
		}
		element := b.newParam(theElement, list.typ.Element())
		one := of(element, b.newParam(thePosition, long))
		body, err := b.nest(n, one)
		if err != nil {
			return nil, err
		}
		key, err := b.canonical(n, element)
		if err != nil {
			return nil, err
		}
		return b.each(n, gpu.OpSortElements, flags, list, gpu.ListOf(one.typ), key, body)
	}
}

func itself(element, _ *Expr) *Expr { return element }
func itsPosition(_, at *Expr) *Expr { return at }

// bindReverseList binds list_reverse(list).
func bindReverseList(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	body, err := b.nest(n, b.newParam(theElement, list.typ.Element()))
	if err != nil {
		return nil, err
	}
	return b.each(n, gpu.OpSortElements, gpu.SortDescending, list, list.typ, b.newParam(thePosition, long), body)
}

// distinctElements returns the different values of a body that are not null, in the order of the list. level is that of
// the body.
func (b *binder) distinctElements(n syntax.Node, level int, list, body *Expr) (*Expr, error) {
	key, err := b.canonical(n, body)
	if err != nil {
		return nil, err
	}
	one, err := b.present(n, body)
	if err != nil {
		return nil, err
	}
	outer := b.level
	b.level = level
	defer func() { b.level = outer }()
	return b.each(n, gpu.OpSortElements, gpu.SortOnce, list, gpu.ListOf(gpu.Nestable(body.typ)), key, one)
}

func bindDistinct(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.distinctElements(n, b.level, list, b.newParam(theElement, list.typ.Element()))
}

func bindUnique(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := bindDistinct(b, n, a)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CAST(len(_1) AS UBIGINT)", list)
}

// twoLists checks that two arguments are lists, and converts them to one type.
func (b *binder) twoLists(n *syntax.Call, a []*Expr) (x, y *Expr, err error) {
	both := make([]*Expr, 2)
	for i := range both {
		if both[i] = a[i]; a[i].literal == nullLiteral {
			both[i] = newConstant(gpu.Null(typed(a[1-i]).typ))
		}
		if both[i], err = b.list(n, i, both[i]); err != nil {
			return nil, nil, err
		}
	}
	err = b.unify(n.Args[:2], both, "the lists of "+n.Name)
	return both[0], both[1], err
}

// lookIn returns whether a list has the element of another one, which is not null.
func (b *binder) lookIn(n *syntax.Call, list, element *Expr) (*Expr, error) {
	key, err := b.key(n, 0, element, element.typ)
	if err != nil {
		return nil, err
	}
	at, err := b.find(n, list, key, 0)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "_1 IS NOT NULL AND _2 > 0", element, at)
}

// bindIntersect binds list_intersect(x, y): the different elements of x that are in y.
func bindIntersect(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, y, err := b.twoLists(n, a)
	if err != nil {
		return nil, err
	}
	element := b.newParam(theElement, x.typ.Element())
	in, err := b.lookIn(n, y, element)
	if err != nil {
		return nil, err
	}
	body, err := b.choose(n, in, element, Null(gpu.Field{Type: element.typ}))
	if err != nil {
		return nil, err
	}
	return b.distinctElements(n, b.level, x, body)
}

// bindHas binds list_has_any and list_has_all: whether the list of has any, or all, elements of the list in that are
// not null.
func bindHas(kind gpu.AggregateKind, swapped bool) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, y, err := b.twoLists(n, a)
		if err != nil {
			return nil, err
		}
		if swapped {
			x, y = y, x
		}
		element := b.newParam(theElement, y.typ.Element())
		in, err := b.lookIn(n, x, element)
		if err == nil && kind == gpu.Min {
			in, err = b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", element, in)
		}
		if err != nil {
			return nil, err
		}
		out, err := b.op(n, Expr{op: gpu.OpFoldElements, n: int(kind), level: b.level, typ: truth, nullable: true}, y,
			in)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL THEN coalesce(_3, _4) END", x, y, out,
			newConstant(gpu.BoolScalar(kind == gpu.Min)))
	}
}

// zipFunction is the function that unnest of several lists calls. No text can call it.
const zipFunction = "$zip"

// Zipped returns the call of a list of structs of an element of each of two or more lists, null behind the end of a
// list, and a function that returns the element of list i from such a struct.
func Zipped(at syntax.Node, lists ...syntax.Node) (syntax.Node, func(element syntax.Node, i int) syntax.Node) {
	field := func(x syntax.Node, k string) syntax.Node {
		args := []syntax.Node{x, &syntax.NumberLiteral{Base: syntax.At(at), Text: k}}
		return &syntax.Call{Base: syntax.At(at, args...), Name: "struct_extract", Args: args}
	}
	return &syntax.Call{Base: syntax.At(at, lists...), Name: zipFunction, Args: lists},
		func(element syntax.Node, i int) syntax.Node {
			for range len(lists) - 1 - max(i, 1) {
				element = field(element, "1")
			}
			if i == 0 {
				return field(element, "1")
			}
			return field(element, "2")
		}
}

// bindZip pairs the lists from the first to the last: {{x, y}, z}.
func bindZip(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	out, err := b.list(n, 0, a[0])
	for i := 1; i < len(a) && err == nil; i++ {
		var y *Expr
		if y, err = b.list(n, i, a[i]); err == nil {
			out, err = b.zip(n, out, y)
		}
	}
	return out, err
}

// zip returns the list of structs of an element of each of two lists. A null is an empty list.
func (b *binder) zip(n *syntax.Call, x, y *Expr) (*Expr, error) {
	t := gpu.ListOf(gpu.StructOf(gpu.Field{Name: "key", Type: x.typ.Element()},
		gpu.Field{Name: "value", Type: y.typ.Element()}))
	x, err := b.orEmpty(n, x)
	if err == nil {
		y, err = b.orEmpty(n, y)
	}
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpZipElements, typ: t}, x, y)
}

// bindWhere binds list_where(list, conditions): the elements whose condition is true.
func bindWhere(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	mask, err := b.list(n, 1, a[1])
	if err != nil {
		return nil, err
	}
	if mask.typ.Element().Kind != gpu.Bool {
		return nil, b.errorf(n.Args[1], "%s needs a list of conditions, found %v", n.Name, mask.typ)
	}
	pairs, err := b.zip(n, list, mask)
	if err != nil {
		return nil, err
	}
	pair := b.newParam(theElement, pairs.typ.Element())
	element, err := b.element(n, pair, position(1), list.typ.Element())
	if err != nil {
		return nil, err
	}
	there, err := b.element(n, pair, position(2), truth)
	if err != nil {
		return nil, err
	}
	body, err := b.nest(n, element)
	if err == nil {
		body, err = b.onlyIf(n, there, body)
	}
	if err != nil {
		return nil, err
	}
	out, err := b.each(n, gpu.OpEachElement, 0, pairs, list.typ, body)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL THEN _3 END", list, mask, out)
}

// bindPick binds list_select(list, positions).
func bindPick(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	places, err := b.list(n, 1, a[1])
	if err != nil {
		return nil, err
	}
	if !places.typ.Element().IsInteger() {
		return nil, b.errorf(n.Args[1], "%s needs a list of positions, found %v", n.Name, places.typ)
	}
	at, err := b.convert(n, b.newParam(theElement, places.typ.Element()), long, false)
	if err != nil {
		return nil, err
	}
	one, err := b.element(n, list, at, list.typ.Element())
	if err != nil {
		return nil, err
	}
	body, err := b.nest(n, one)
	if err != nil {
		return nil, err
	}
	out, err := b.each(n, gpu.OpEachElement, 0, places, list.typ, body)
	if err != nil || !list.nullable {
		return out, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", list, out)
}

// steppedSlice binds list[from:to:step], which counts from the end if the step is negative.
func (b *binder) steppedSlice(n *syntax.Call, a []*Expr) (*Expr, error) {
	step, err := b.count(n, 3, a[3])
	if err != nil {
		return nil, err
	}
	v, ok := step.Constant()
	switch {
	case !ok:
		forward, err := b.stepped(n, a, step, false)
		if err != nil {
			return nil, err
		}
		backward, err := b.stepped(n, a, step, true)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _1 > 0 THEN _2 WHEN _1 < 0 THEN _3 WHEN _1 = 0 THEN "+
			"error('the step of a slice is 0') END", step, forward, backward)
	case !v.Valid:
		return newConstant(gpu.Null(a[0].typ)), nil
	case v.Int.Sign() == 0:
		return nil, b.errorf(n.Args[3], "the step of a slice must not be 0")
	}
	return b.stepped(n, a, step, v.Int.Sign() < 0)
}

// stepped is steppedSlice for steps of one sign.
func (b *binder) stepped(n *syntax.Call, a []*Expr, step *Expr, backward bool) (*Expr, error) {
	op, flags, ends := gpu.OpEachElement, 0, a[1:3]
	if backward {
		op, flags, ends = gpu.OpSortElements, gpu.SortDescending, []*Expr{a[2], a[1]}
	}
	list, err := b.sliceOf(n, append([]*Expr{a[0]}, ends...))
	if err != nil {
		return nil, err
	}
	at := b.newParam(thePosition, long)
	count, err := bindCount(b, n, []*Expr{list})
	if err != nil {
		return nil, err
	}
	there, err := b.expand(n, "(CASE WHEN _3 > 0 THEN _1 - 1 ELSE _2 - _1 END) % _3 = 0", at, count, step)
	if err != nil {
		return nil, err
	}
	body, err := b.nest(n, b.newParam(theElement, list.typ.Element()))
	if err == nil {
		body, err = b.onlyIf(n, there, body)
	}
	if err != nil {
		return nil, err
	}
	bodies := []*Expr{body}
	if op == gpu.OpSortElements {
		bodies = []*Expr{at, body}
	}
	return b.each(n, op, flags, list, list.typ, bodies...)
}

// copies returns the list of an element, or of the elements of a list, repeated.
func (b *binder) copies(n *syntax.Call, x, times *Expr) (*Expr, error) {
	one, err := b.nest(n, x)
	if err != nil {
		return nil, err
	}
	all, err := b.op(n, Expr{op: gpu.OpRepeat, typ: encoding, nullable: times.nullable, fails: true}, one, times)
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpConcat, typ: gpu.ListOf(gpu.Nestable(x.typ)), nullable: times.nullable},
		byteConstant(gpu.OpenNested(nil)), all, byteConstant(gpu.CloseNested(nil)))
}

// bindRepeat binds repeat(s, n) of a text or a list.
func bindRepeat(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if a[0].typ.Kind != gpu.List {
		args, err := b.arguments(n, "si", a)
		if err != nil {
			return nil, err
		}
		// A text can exceed the offsets of a column.
		return b.op(n, Expr{op: gpu.OpRepeat, typ: text, nullable: args[0].nullable || args[1].nullable, fails: true},
			args...)
	}
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	times, err := b.count(n, 1, a[1])
	if err != nil {
		return nil, err
	}
	lists, err := b.copies(n, list, times)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN flatten(_2) END", list, lists)
}

// bindResize binds list_resize(list, n[, x]).
func bindResize(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	list, err := b.list(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	size, err := b.count(n, 1, a[1])
	if err == nil {
		size, err = b.expand(n, "CASE WHEN _1 < 0 THEN error('a list cannot have the size ' || _1) "+
			"ELSE coalesce(_1, 0) END", size)
	}
	if err != nil {
		return nil, err
	}
	x := newConstant(gpu.Null(list.typ.Element()))
	if len(a) > 2 {
		if x, err = b.convert(n.Args[2], a[2], list.typ.Element(), false); err != nil {
			return nil, err
		}
	}
	missing, err := b.expand(n, "greatest(_1 - len(_2), 0)", size, list)
	if err != nil {
		return nil, err
	}
	if missing, err = b.convert(n, missing, long, false); err != nil {
		return nil, err
	}
	more, err := b.copies(n, x, missing)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN list_concat(list_slice(_1, 1, _2), _3) END", list, size, more)
}

// bindPop binds array_pop_front and array_pop_back.
func bindPop(body string) func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		list, err := b.list(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		return b.expand(n, body, list)
	}
}

// bindSplit binds string_split(text, separator). A null separator is not in the text.
func bindSplit(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	var parts [2]*Expr
	for i := range parts {
		s, err := b.str(n, i, a[i])
		if err != nil {
			return nil, err
		}
		parts[i] = s
	}
	s, separator := parts[0], parts[1]
	all, err := b.assemble(n, gpu.ListOf(text), []*Expr{s})
	if err != nil {
		return nil, err
	}
	if v, ok := separator.Constant(); ok && !v.Valid {
		return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", s, all)
	} else if ok && v.Str == "" {
		return b.splitLetters(n, s)
	}
	split, err := b.splitAt(n, s, separator)
	if err != nil {
		return nil, err
	}
	if _, constant := separator.Constant(); !constant {
		letters, err := b.splitLetters(n, s)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _1 IS NULL THEN NULL WHEN _2 IS NULL THEN _3 WHEN _2 = '' THEN _4 ELSE _5 END", s,
			separator, all, letters, split)
	}
	return split, nil
}

// betweenTexts is what ends a text in the encoding of a list, and begins the next one.
var betweenTexts = gpu.AppendBytes(gpu.AppendBytes(nil, ""), "")[1:4]

func byteConstant[T string | []byte](s T) *Expr {
	return newConstant(gpu.Scalar{Type: encoding, Valid: true, Str: string(s)})
}

// splitAt splits a text at a separator that is not empty. The text becomes the encoding of a list of texts when
// betweenTexts takes the place of the separators.
func (b *binder) splitAt(n *syntax.Call, s, separator *Expr) (*Expr, error) {
	replace := func(x, from, to *Expr) (*Expr, error) {
		return b.op(n, Expr{op: gpu.OpReplace, typ: encoding, nullable: x.nullable || from.nullable, fails: true}, x,
			from,
			to)
	}
	var encoded [2]*Expr // a zero byte is followed by 0xFF
	for i, x := range []*Expr{s, separator} {
		raw, err := b.op(n, Expr{op: gpu.OpEncode, n: int(gpu.Raw), typ: encoding, nullable: x.nullable}, x)
		if err == nil {
			encoded[i], err = replace(raw, byteConstant("\x00"), byteConstant("\x00\xff"))
		}
		if err != nil {
			return nil, err
		}
	}
	marked, err := replace(encoded[0], encoded[1], byteConstant(betweenTexts))
	if err != nil {
		return nil, err
	}
	return b.listOfTexts(n, marked)
}

// listOfTexts completes the encoding of a list of texts, with betweenTexts between them.
func (b *binder) listOfTexts(n *syntax.Call, texts *Expr) (*Expr, error) {
	all := gpu.CloseNested(gpu.AppendBytes(gpu.OpenNested(nil), ""))
	return b.op(n, Expr{op: gpu.OpConcat, typ: gpu.ListOf(text), nullable: texts.nullable}, byteConstant(all[:2]),
		texts,
		byteConstant(all[2:]))
}

// splitText is listOfTexts of a text that an expression makes of another one, which has no zero byte.
func (b *binder) splitText(n *syntax.Call, s, marked *Expr) (*Expr, error) {
	raw, err := b.op(n, Expr{op: gpu.OpEncode, n: int(gpu.Raw), typ: encoding, nullable: marked.nullable}, marked)
	if err != nil {
		return nil, err
	}
	list, err := b.listOfTexts(n, raw)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN contains(_1, chr(0)) THEN error('"+n.Name+" of a text with a zero byte is only "+
		"possible at a text') ELSE _2 END", s, list)
}

// splitLetters returns the code points of a text.
func (b *binder) splitLetters(n *syntax.Call, s *Expr) (*Expr, error) {
	marked, err := b.expand(n, `substring(regexp_replace(_1, '(?s)(.)', chr(0) || chr(0) || chr(8) || '\1', 'g'), 4)`,
		s)
	if err != nil {
		return nil, err
	}
	list, err := b.splitText(n, s, marked)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 = '' THEN [] ELSE _2 END", s, list)
}

// bindSplitRegex binds string_split_regex(text, pattern).
func bindSplitRegex(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	s, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	if v, ok := a[1].Constant(); ok && v.Valid && v.Type.Kind == gpu.String && b.scope.Fold != nil {
		if v.Str == "" {
			return b.splitLetters(n, s)
		}
		empty, err := b.expand(n, "regexp_matches('', '^(?:' || _1 || ')$')", a[1])
		if err != nil {
			return nil, err
		}
		if empty, ok := empty.Constant(); ok && empty.Int.Lo != 0 {
			return nil, b.errorf(n.Args[1], "the pattern of %s fits an empty text", n.Name)
		}
	}
	marked, err := b.expand(n, "regexp_replace(_1, _2, chr(0) || chr(0) || chr(8), 'g')", s, a[1])
	if err != nil {
		return nil, err
	}
	return b.splitText(n, s, marked)
}
