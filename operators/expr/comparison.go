package expr

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// common finds the type in which two operands are compared, or in which they are branches of one
// value.
func common(x, y *Expr) (gpu.Type, bool) {
	s, t := x.typ, y.typ
	switch {
	case x.literal == nullLiteral, t.Kind == gpu.List && x.untyped:
		return t, true
	case s.Kind == gpu.List && y.untyped:
		return s, true
	case y.literal == nullLiteral, s == t:
		return s, true
	case x.literal == errorLiteral:
		return t, true
	case y.literal == errorLiteral:
		return s, true
	case s.IsEnum() || t.IsEnum():
		return gpu.CommonType(s, t)
	case x.literal == stringLiteral:
		return readAs(t), true
	case y.literal == stringLiteral:
		return readAs(s), true
	}
	return gpu.CommonType(s, t)
}

// readAs returns the type that a text literal is parsed as next to a value of type t. For
// times in milliseconds, which only files have, it is microseconds as in DuckDB, so that
// no digit of the literal is dropped.
func readAs(t gpu.Type) gpu.Type {
	if t.Unit == gpu.Millisecond {
		t.Unit = gpu.Microsecond
	}
	return t
}

// unifyLazily is unify for values that are not evaluated on every row. The conversion of a value
// that no row needs must not fail.
func (b *binder) unifyLazily(nodes []syntax.Node, values []*Expr, what string) error {
	b.lazy++
	defer func() { b.lazy-- }()
	return b.unify(nodes, values, what)
}

// unify casts values, in place, to a common type and storage.
func (b *binder) unify(nodes []syntax.Node, values []*Expr, what string) error {
	for _, other := range values {
		if other.literal == notLiteral && other.annotation == gpu.UUID {
			for i, v := range values {
				var err error
				if values[i], err = literalAs(b.scope.Fold, v, other); err != nil {
					return b.errorf(nodes[i], "%v", err)
				}
			}
			break
		}
	}
	if all, err := b.allJSON(nodes, values); all || err != nil {
		return err
	}
	// From the first value to the last, as in DuckDB: an integer literal takes the type of the integers before it, or
	// of the integer after it, but not that of an integer behind a decimal.
	all := *values[0]
	for i, v := range values[1:] {
		t, ok := common(&all, v)
		switch {
		case v.takes(&all):
			t = all.typ
		case all.takes(v):
			t = v.typ
		case !ok:
			return b.errorf(nodes[i+1], "%s must have one type: found %v after %v", what, v.typ, all.typ)
		}
		all.typ = t
		if v.literal == integerLiteral && all.literal == integerLiteral {
			all.rng = all.rng.union(v.rng)
		}
		if v.literal != nullLiteral && v.literal != errorLiteral && (all.literal == nullLiteral ||
			all.literal == errorLiteral || all.literal == stringLiteral || v.literal == notLiteral) {
			all.literal, all.rng = v.literal, v.rng
		}
	}
	if all.typ.Kind == gpu.Invalid {
		all.typ = gpu.Of(gpu.Int32)
	}
	t := all.typ
	for i, v := range values {
		var err error
		if values[i], err = b.convert(nodes[i], v, all.typ, false); err != nil {
			return err
		}
		t.Wide = t.Wide && all.typ.Wide || values[i].typ.Wide
	}
	return nil
}

// compare binds a comparison of x and y, whose nodes are nx and ny. The result has a constant on
// its right side.
func (b *binder) compare(n syntax.Node, op gpu.Op, nx syntax.Node, x *Expr, ny syntax.Node, y *Expr) (*Expr, error) {
	x, y, err := b.comparedJSON(nx, x, ny, y)
	if err != nil {
		return nil, err
	}
	if x, err = literalAs(b.scope.Fold, x, y); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	if y, err = literalAs(b.scope.Fold, y, x); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	x, y = enumLiterals(op, x, y)
	if x, y, err = b.equalText(op, nx, x, ny, y); err != nil {
		return nil, err
	}
	if _, ok := common(x, y); x.typ.IsNested() && y.typ.IsNested() && !ok {
		if _, constant := x.Constant(); constant {
			x, err = b.convert(nx, x, y.typ, false)
		} else {
			y, err = b.convert(ny, y, x.typ, false)
		}
		if err != nil {
			return nil, err
		}
	}
	if x, err = b.canonical(nx, x); err == nil {
		y, err = b.canonical(ny, y)
	}
	if err != nil {
		return nil, err
	}
	if x, y, err = b.truthAsNumber(op, nx, x, ny, y); err != nil {
		return nil, err
	}
	if x, y, err = b.intervalLengths(nx, x, ny, y); err != nil {
		return nil, err
	}
	t, ok := common(x, y)
	if !ok {
		return nil, b.errorf(n, "cannot compare %v with %v; cast one of them", x.typ, y.typ)
	}
	if t.Kind == gpu.Invalid {
		t = gpu.Of(gpu.Int32)
	}
	if x, err = b.convert(nx, x, t, false); err != nil {
		return nil, err
	}
	if y, err = b.convert(ny, y, t, false); err != nil {
		return nil, err
	}
	if _, constant := x.Constant(); constant {
		x, y, op = y, x, op.Info().Mirrored
	}
	e := Expr{op: op, typ: gpu.Of(gpu.Bool), nullable: x.nullable || y.nullable}
	if op == gpu.OpDistinct || op == gpu.OpNotDistinct {
		e.nullable = false
		return b.op(n, e, x, y)
	}
	e.op, x, y = uncast(op, x, y)
	return b.op(n, e, x, y)
}

// intervalLengths replaces two operands, of which one is an interval and the other one may be a text literal, by
// their lengths.
func (b *binder) intervalLengths(nx syntax.Node, x *Expr, ny syntax.Node, y *Expr) (*Expr, *Expr, error) {
	t, ok := common(x, y)
	if !ok || t.Kind != gpu.Interval {
		return x, y, nil
	}
	var err error
	for _, e := range []struct {
		n syntax.Node
		x **Expr
	}{{nx, &x}, {ny, &y}} {
		if *e.x, err = b.convert(e.n, *e.x, t, false); err == nil {
			*e.x, err = b.lengthOf(e.n, *e.x)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return x, y, nil
}

// truthAsNumber converts a BOOLEAN that is compared for equality with a DECIMAL or a float to 1 or
// 0, as DuckDB does. For < and other orders it asks for a cast.
func (b *binder) truthAsNumber(op gpu.Op, nx syntax.Node, x *Expr, ny syntax.Node, y *Expr) (*Expr, *Expr, error) {
	number := func(t gpu.Type) bool { return t.IsFloat() || t.Kind == gpu.Decimal }
	var err error
	switch {
	case op != gpu.OpEq && op != gpu.OpNe && op != gpu.OpDistinct && op != gpu.OpNotDistinct:
	case x.typ.Kind == gpu.Bool && x.literal != nullLiteral && number(y.typ):
		x, err = b.convert(nx, x, gpu.Of(gpu.Int32), false)
	case y.typ.Kind == gpu.Bool && y.literal != nullLiteral && number(x.typ):
		y, err = b.convert(ny, y, gpu.Of(gpu.Int32), false)
	}
	return x, y, err
}

// equalText converts a text that is compared for equality to the type of the other operand, as
// DuckDB does. For < and other orders it asks for a cast.
func (b *binder) equalText(op gpu.Op, nx syntax.Node, x *Expr, ny syntax.Node, y *Expr) (*Expr, *Expr, error) {
	if op != gpu.OpEq && op != gpu.OpNe && op != gpu.OpDistinct && op != gpu.OpNotDistinct ||
		x.typ.Kind == y.typ.Kind || x.typ.IsEnum() || y.typ.IsEnum() ||
		x.annotation == gpu.UUID || y.annotation == gpu.UUID {
		return x, y, nil
	}
	var err error
	switch {
	case x.typ.Kind == gpu.String && x.literal == notLiteral && y.literal != nullLiteral:
		x, err = b.convert(nx, x, readAs(y.typ), false)
	case y.typ.Kind == gpu.String && y.literal == notLiteral && x.literal != nullLiteral:
		y, err = b.convert(ny, y, readAs(x.typ), false)
	}
	return x, y, err
}

// uncast compares in the type of the operand, instead of casting every row: CAST(x AS wider) op
// constant becomes x op constant, if the cast preserves all values and their order. For an integer
// b, b < 1.5 becomes b <= 1.
func uncast(op gpu.Op, x, y *Expr) (gpu.Op, *Expr, *Expr) {
	c, ok := y.Constant()
	if !ok || !c.Valid || !removableCast(x) {
		return op, x, y
	}
	t := x.args[0].typ
	below, exact := floorTo(c, t)
	r := typeRange(t)
	if !r.contains(&Range{below, below}) {
		return op, x, y
	}
	if !exact {
		switch op {
		case gpu.OpLt, gpu.OpLe:
			op = gpu.OpLe
		case gpu.OpGt, gpu.OpGe:
			op = gpu.OpGt
		default:
			return op, x, y
		}
	}
	return op, x.args[0], newConstant(gpu.Scalar{Type: t, Valid: true, Int: below})
}

// removableCast reports whether a comparison can omit the cast x. That holds if the cast cannot
// fail, or fails only for dates out of the range of timestamps.
func removableCast(x *Expr) bool {
	return x.op == gpu.OpCast && x.n == 0 && exactCast(x.args[0].typ, x.typ) &&
		(!castFails(x.args[0], x.typ) || x.typ.Kind == gpu.Timestamp)
}

// exactCast reports whether a cast between types that are stored as integers preserves
// all values and their order.
func exactCast(from, to gpu.Type) bool {
	number := func(t gpu.Type) bool { return t.IsInteger() || t.Kind == gpu.Decimal }
	switch {
	case number(from) && number(to):
		return from.Scale <= to.Scale
	case from.Kind == gpu.Date && to.Kind == gpu.Timestamp:
		return true
	case from.Kind == to.Kind && (from.Kind == gpu.Timestamp || from.Kind == gpu.Time):
		return from.Unit <= to.Unit
	}
	return false
}

// floorTo returns the greatest value of the coarser type t that is at most c, and whether
// it equals c.
func floorTo(c gpu.Scalar, t gpu.Type) (gpu.Int128, bool) {
	per := gpu.Int128From(1)
	switch {
	case c.Type.IsInfinite(c.Int.Int64()):
		return gpu.Int128From(t.Infinity() * int64(c.Int.Sign())), true
	case t.Kind == gpu.Date:
		per = gpu.Int128From(c.Type.Unit.PerDay())
	case t.Kind == gpu.Timestamp || t.Kind == gpu.Time:
		per = gpu.Int128From(c.Type.Unit.PerSecond() / t.Unit.PerSecond())
	case c.Type.Scale > t.Scale:
		per = gpu.Pow10(int(c.Type.Scale - t.Scale))
	}
	q, r := c.Int.QuoRem(per)
	if r.Sign() < 0 {
		q, _ = q.Sub(gpu.Int128From(1))
	}
	return q, r.Sign() == 0
}

func (b *binder) between(n *syntax.Between) (*Expr, error) {
	x, err := b.bind(n.X)
	if err != nil {
		return nil, err
	}
	lo, err := b.bind(n.Lo)
	if err != nil {
		return nil, err
	}
	hi, err := b.bind(n.Hi)
	if err != nil {
		return nil, err
	}
	operands := []*Expr{x, lo, hi}
	if err := b.unify([]syntax.Node{n.X, n.Lo, n.Hi}, operands, "the operands of BETWEEN"); err != nil {
		return nil, err
	}
	x, lo, hi = operands[0], operands[1], operands[2]
	above, err := b.compare(n, gpu.OpGe, n.X, x, n.Lo, lo)
	if err != nil {
		return nil, err
	}
	below, err := b.compare(n, gpu.OpLe, n.X, x, n.Hi, hi)
	if err != nil {
		return nil, err
	}
	e := newLogic(gpu.OpAnd, []*Expr{above, below})
	if e.op == gpu.OpAnd {
		if e, err = b.op(n, *e, e.args...); err != nil {
			return nil, err
		}
	}
	if n.Not {
		return b.not(n, e)
	}
	return e, nil
}

// in binds x IN (list): a set of constants, OR comparisons for the values that are not
// constant, OR NULL for nulls.
func (b *binder) in(n *syntax.In) (*Expr, error) {
	x, err := b.bind(n.X)
	if err != nil {
		return nil, err
	}
	items := make([]*Expr, 0, len(n.List))
	nodes := make([]syntax.Node, 0, len(n.List))
	null := false
	list := make([]*Expr, len(n.List))
	for i, node := range n.List {
		if list[i], err = b.bind(node); err != nil {
			return nil, err
		}
	}
	// A text takes the common type of the other values, as next to =.
	var other *Expr // has that type
	for _, y := range list {
		if y.typ.Kind == gpu.String || y.literal == nullLiteral {
			continue
		}
		with := *y
		if other != nil {
			if t, ok := common(other, y); ok {
				with.typ, with.literal = t, notLiteral
			}
		}
		other = &with
	}
	if other == nil && slices.ContainsFunc(append(list[:len(list):len(list)], x), (*Expr).isJSON) {
		for i, y := range list {
			if y.literal == notLiteral {
				if list[i], err = b.toJSON(n.List[i], y); err != nil {
					return nil, err
				}
			}
		}
		if x, err = b.toJSON(n.X, x); err != nil {
			return nil, err
		}
	}
	if other != nil {
		if x, _, err = b.equalText(gpu.OpEq, n.X, x, n.X, other); err == nil {
			x, _, err = b.truthAsNumber(gpu.OpEq, n.X, x, n.X, &Expr{typ: other.typ, column: -1})
		}
		if err != nil {
			return nil, err
		}
	}
	all := *x // has the type in which all are compared
	for i, node := range n.List {
		y, err := list[i], error(nil)
		if y.typ.Kind == gpu.String && x.typ.Kind != gpu.String {
			_, y, err = b.equalText(gpu.OpEq, n.X, x, node, y)
		}
		if err == nil {
			y, err = literalAs(b.scope.Fold, y, x)
		}
		if err == nil && y.annotation == gpu.UUID && x.literal == stringLiteral {
			if x, err = literalAs(b.scope.Fold, x, y); err == nil {
				all = *x
			}
		}
		if err != nil {
			return nil, err
		}
		if c, ok := y.Constant(); ok && !c.Valid {
			null = true
			continue
		}
		t, ok := common(&all, y)
		if !ok {
			return nil, b.errorf(node, "cannot compare %v with %v in IN; cast one of them", all.typ, y.typ)
		}
		all.typ, all.literal = t, notLiteral
		items, nodes = append(items, y), append(nodes, node)
	}
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Bool))), nil
	}
	if x, err = b.convert(n.X, x, all.typ, false); err != nil {
		return nil, err
	}
	if x.isInterval() {
		for i, y := range items {
			if _, items[i], err = b.intervalLengths(n.X, x, nodes[i], y); err != nil {
				return nil, err
			}
		}
		if x, err = b.lengthOf(n.X, x); err != nil {
			return nil, err
		}
		all.typ = x.typ
	}
	var constants, others []*Expr
	for i, y := range items {
		if y, err = b.convert(nodes[i], y, all.typ, false); err != nil {
			return nil, err
		}
		if _, constant := y.Constant(); constant {
			constants = append(constants, y)
			continue
		}
		e, err := b.compare(nodes[i], gpu.OpEq, n.X, x, nodes[i], y)
		if err != nil {
			return nil, err
		}
		others = append(others, e)
	}
	if len(constants) > 0 {
		e, err := b.inSet(n, x, constants)
		if err != nil {
			return nil, err
		}
		// The set comes after the comparisons. Their operands may fail, so a row that the set
		// decides must not skip them.
		others = append(others, e)
	}
	if null {
		others = append(others, newConstant(gpu.Null(gpu.Of(gpu.Bool))))
	}
	e := newLogic(gpu.OpOr, others)
	if e.op == gpu.OpOr {
		if e, err = b.op(n, *e, e.args...); err != nil {
			return nil, err
		}
	}
	if n.Not {
		return b.not(n, e)
	}
	return e, nil
}

// inSet is x IN a set of constants of its type. It omits a cast of x if the type below the cast can
// represent the constants.
func (b *binder) inSet(n *syntax.In, x *Expr, constants []*Expr) (*Expr, error) {
	cast := x
	if removableCast(x) {
		x = x.args[0]
	}
	set := make([]gpu.Scalar, 0, len(constants))
	for _, c := range constants {
		v := c.value
		if x != cast {
			below, exact := floorTo(v, x.typ)
			if !exact || !typeRange(x.typ).contains(&Range{below, below}) {
				continue // it equals no value of x
			}
			v = gpu.Scalar{Valid: true, Int: below}
		}
		if x.typ.Kind == gpu.Decimal && !x.typ.Wide && !v.Int.IsInt64() {
			continue
		}
		v.Type = x.typ
		set = append(set, v)
	}
	return b.op(n, Expr{op: gpu.OpIn, typ: gpu.Of(gpu.Bool), set: set, nullable: x.nullable}, x)
}

func (b *binder) like(n *syntax.Like) (*Expr, error) {
	x, err := b.text(n.X, "LIKE")
	if err != nil {
		return nil, err
	}
	pattern, err := b.text(n.Pattern, "LIKE")
	if err != nil {
		return nil, err
	}
	p, ok := pattern.Constant()
	if !ok {
		return b.likeColumn(n, x, pattern)
	}
	e := Expr{op: gpu.OpLike, typ: gpu.Of(gpu.Bool), nullable: x.nullable, value: p}
	if n.Fold {
		e.op = gpu.OpILike
	}
	if n.Escape != nil {
		escape, err := b.text(n.Escape, "ESCAPE")
		if err != nil {
			return nil, err
		}
		v, ok := escape.Constant()
		r, size := utf8.DecodeRuneInString(v.Str)
		switch {
		case ok && v.Valid && v.Str == "": // there is no escape character
		case !ok || !v.Valid || size != len(v.Str) || r == utf8.RuneError:
			return nil, b.errorf(n.Escape, "ESCAPE needs one constant character, or '' for none, found %s",
				syntax.Cut(n.Escape.String(), 60))
		default:
			if err := checkEscape(p.Str, r); err != nil {
				return nil, b.errorf(n.Pattern, "%v", err)
			}
			if r == 0 { // 0 would mean no escape character, so a character that the pattern does not have replaces it
				for r = 1; strings.ContainsRune(p.Str, r); r++ {
				}
				e.value.Str = strings.ReplaceAll(p.Str, "\x00", string(r))
			}
			e.n = int(r)
		}
	}
	if !p.Valid {
		return newConstant(gpu.Null(gpu.Of(gpu.Bool))), nil
	}
	r, err := b.op(n, e, x)
	if err == nil && n.Not {
		return b.not(n, r)
	}
	return r, err
}

func checkEscape(pattern string, escape rune) error {
	escaped := false
	for _, r := range pattern {
		escaped = !escaped && r == escape
	}
	if escaped {
		return fmt.Errorf("the pattern of LIKE must not end with its escape character")
	}
	return nil
}

// text binds an operand that must be a string.
func (b *binder) text(n syntax.Node, where string) (*Expr, error) {
	x, err := b.bind(n)
	if err != nil {
		return nil, err
	}
	if x.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	}
	if x, err = b.enumAsText(n, x); err != nil {
		return nil, err
	}
	if x.typ.Kind != gpu.String {
		return nil, b.errorf(n, "%s needs text (VARCHAR), found %v; cast it, as in x::VARCHAR", where, x.typ)
	}
	return x, nil
}
