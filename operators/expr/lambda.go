package expr

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// An operation over the elements of a list (gpu.EvalBodies) has the bodies of its lambda as its last arguments. They
// use columns, and the parameters of the lambda: opParam with the level of the operation, which is the number of
// lambdas around it. What takes the place of a column in a body has no free parameters, so that levels stay right.

// opParam is a parameter of a lambda. It is not an instruction. Its n says which one.
const opParam gpu.Op = 252

// The parameters of a lambda.
const (
	theElement = iota
	thePosition
	theResult // so far, of OpReduceElements
)

// parameter identifies a parameter inside of the lambda.
type parameter struct{ level, which int }

// bodies returns the number of bodies of an operation.
func (e *Expr) bodies() int {
	if e.op >= gpu.Ops {
		return 0
	}
	return e.op.Info().Bodies
}

// isBody reports whether argument i is a body.
func (e *Expr) isBody(i int) bool { return i >= len(e.args)-e.bodies() }

// closed reports whether a body uses nothing but the parameters of a level.
func closed(body *Expr, level int) bool {
	return !slices.ContainsFunc(variables(body, map[*Expr][]*Expr{}), func(v *Expr) bool {
		return v.op != opParam || v.level != level
	})
}

// variables returns the columns and the parameters that an expression uses and that it does not have itself. known has
// those of expressions that were asked for.
func variables(e *Expr, known map[*Expr][]*Expr) []*Expr {
	if e.op == opColumn || e.op == opParam {
		return []*Expr{e}
	}
	if len(e.args) == 0 {
		return nil
	}
	if v, ok := known[e]; ok {
		return v
	}
	var all []*Expr
	for i, a := range e.args {
		for _, v := range variables(a, known) {
			own := e.isBody(i) && v.op == opParam && v.level == e.level
			same := func(w *Expr) bool {
				return v.op == w.op && v.column == w.column && v.level == w.level && v.n == w.n
			}
			if !own && !slices.ContainsFunc(all, same) {
				all = append(all, v)
			}
		}
	}
	known[e] = all
	return all
}

// parameter returns the register of a parameter. Inputs 0 and 1 of a body are the element and its position.
func (c *compiler) parameter(e *Expr) int {
	return c.params[parameter{e.level, e.n}]
}

// compileBody compiles the bodies of an operation to a program of their own, and returns it and the registers of its
// list and of the values that it needs of a row.
func (c *compiler) compileBody(e *Expr, mask int) (args []int, body *gpu.Program) {
	first := len(e.args) - e.bodies()
	for _, a := range e.args[:first] {
		args = append(args, c.compile(a, mask))
	}
	in := newCompiler(c.open)
	in.hoisted = map[*Expr]int{}
	list := e.args[0].typ
	in.p.Inputs = []gpu.Type{list, gpu.Of(gpu.Int64)}
	in.params[parameter{e.level, thePosition}] = 1
	if e.op == gpu.OpReduceElements {
		in.params[parameter{e.level, theResult}] = 2
		in.p.Inputs = append(in.p.Inputs, e.args[1].typ)
	}
	fails := false
	for _, body := range e.args[first:] {
		fails = fails || body.fails
		c.capture(in, body, e.level, nil, &args)
	}
	needed := -1
	if fails && mask >= 0 {
		needed = len(in.p.Inputs)
		in.within[needed] = -1
		args = append(args, mask)
		in.p.Inputs = append(in.p.Inputs, gpu.Of(gpu.Bool))
	}
	one := in.emit(gpu.Instr{Op: gpu.OpConst, Type: gpu.Of(gpu.Int64), Mask: -1,
		Value: gpu.IntScalar(gpu.Of(gpu.Int64), 1)})
	in.params[parameter{e.level, theElement}] = in.emit(gpu.Instr{Op: gpu.OpElement, Type: gpu.Nestable(list.Element()),
		Args: []int{0, one}, Mask: -1, Text: "the elements of a list"})
	for _, body := range e.args[first:] {
		in.p.Outputs = append(in.p.Outputs, in.compile(body, needed))
	}
	if last := len(in.p.Outputs) - 1; e.op == gpu.OpEachElement || e.op == gpu.OpSortElements {
		in.p.Outputs[last] = in.plain(in.p.Outputs[last])
	}
	return args, &in.p
}

// capture makes inputs of a body of what it needs of a row: columns, parameters of lambdas around it, and the largest
// parts that use nothing else and cannot fail, which are thus evaluated once a row. level is that of the body, and
// inner
// has those of the lambdas in it that are around e.
func (c *compiler) capture(in *compiler, e *Expr, level int, inner []int, args *[]int) {
	if _, ok := in.hoisted[e]; ok {
		return
	}
	all := variables(e, c.open)
	own := slices.ContainsFunc(all, func(v *Expr) bool {
		return v.op == opParam && (v.level >= level || slices.Contains(inner, v.level))
	})
	input := func() int {
		*args = append(*args, c.compile(e, -1))
		in.p.Inputs = append(in.p.Inputs, e.typ)
		return len(in.p.Inputs) - 1
	}
	switch key := (parameter{e.level, e.n}); {
	case len(all) == 0 && e.op == gpu.OpConst:
	case e.op == opColumn:
		if _, ok := in.inputs[e.column]; !ok {
			in.inputs[e.column] = input()
		}
	case e.op == opParam:
		if _, ok := in.params[key]; !ok && !own {
			in.params[key] = input()
		}
	case !own && !e.fails && e.op != opTry:
		in.hoisted[e] = input()
	default:
		for i, a := range e.args {
			if e.isBody(i) {
				c.capture(in, a, level, append(slices.Clip(inner), e.level), args)
			} else {
				c.capture(in, a, level, inner, args)
			}
		}
	}
}

// plain returns strings that depend on the element, so that they have no dictionary.
func (c *compiler) plain(r int) int {
	there := c.emit(gpu.Instr{Op: gpu.OpIsNotNull, Type: gpu.Of(gpu.Bool), Args: []int{0}, Mask: -1})
	t := c.typeOf(r)
	none := c.emit(gpu.Instr{Op: gpu.OpConst, Type: t, Mask: -1, Value: gpu.Scalar{Type: t, Valid: true}})
	return c.emit(gpu.Instr{Op: gpu.OpSelect, Type: t, Args: []int{there, r, none}, Mask: -1})
}

func (c *compiler) typeOf(r int) gpu.Type {
	if r < len(c.p.Inputs) {
		return c.p.Inputs[r]
	}
	return c.p.Code[r-len(c.p.Inputs)].Type
}

// lambdaScope is a parameter of a lambda by its name.
type lambdaScope struct {
	name  string
	value *Expr
}

// param binds a parameter of a lambda.
func (b *binder) param(n *syntax.Param) (*Expr, error) {
	for _, p := range slices.Backward(b.params) {
		if strings.EqualFold(p.name, n.Name) {
			return p.value, nil
		}
	}
	return nil, b.errorf(n, "the parameter %q of a lambda cannot be used here: a query, an aggregate and a window "+
		"function inside of a lambda have the columns only", syntax.Cut(n.Name, 60))
}

// newParam returns a parameter of the lambdas that are bound next.
func (b *binder) newParam(which int, t gpu.Type) *Expr {
	return &Expr{op: opParam, typ: gpu.Nestable(t), n: which, level: b.level, column: -1, name: "x", nullable: which !=
		thePosition, rng: typeRange(t)}
}

// inBody calls f with parameters.
func (b *binder) inBody(names []string, values []*Expr, f func() error) error {
	outer := len(b.params)
	for i, name := range names {
		v := *values[i]
		v.name = name
		b.params = append(b.params, lambdaScope{name, &v})
	}
	b.level++
	b.lazy++
	err := f()
	b.params = b.params[:outer]
	b.level--
	b.lazy--
	return err
}

// lambda binds an argument that is a lambda, with values for its parameters, of which at least least are used.
func (b *binder) lambda(n *syntax.Call, i, least int, values ...*Expr) (out *Expr, err error) {
	fn, ok := n.Args[i].(*syntax.Lambda)
	if !ok {
		if x, ok := n.Args[i].(*syntax.Binary); ok && x.Op == "->" {
			return nil, b.errorf(x, "a lambda of %s is written lambda x: …, as in DuckDB 2.0, not x -> …", n.Name)
		}
		return nil, b.errorf(n.Args[i], "%s takes a lambda here, as in lambda x: x + 1", n.Name)
	}
	if k := len(fn.Params); k < least || k > len(values) {
		return nil, b.errorf(fn, "the lambda of %s has %d to %d parameters, found %d", n.Name, least, len(values), k)
	}
	err = b.inBody(fn.Params, values, func() error {
		out, err = b.bind(fn.X)
		return err
	})
	return out, err
}

// listArgument binds the list that a function with lambdas takes.
func (b *binder) listArgument(n *syntax.Call) (*Expr, error) {
	x, err := b.bind(n.Args[0])
	if err != nil {
		return nil, err
	}
	return b.list(n, 0, x)
}

// each returns the list of the encodings that body makes of each element. body is bound as a body.
func (b *binder) each(n syntax.Node, op gpu.Op, flags int, list *Expr, t gpu.Type, bodies ...*Expr) (*Expr, error) {
	if t.Depth() > gpu.MaxNesting {
		return nil, b.errorf(n, "the value is nested more than %d levels deep", gpu.MaxNesting)
	}
	joined, err := b.op(n, Expr{op: op, n: flags, level: b.level, typ: encoding, nullable: list.nullable},
		append([]*Expr{list}, bodies...)...)
	if err != nil {
		return nil, err
	}
	return b.op(n, Expr{op: gpu.OpConcat, typ: t, nullable: list.nullable}, byteConstant(gpu.OpenNested(nil)), joined,
		byteConstant(gpu.CloseNested(nil)))
}

var noBytes = byteConstant("")

// onlyIf returns an encoding where a condition is true, and nothing elsewhere.
func (b *binder) onlyIf(n syntax.Node, condition, x *Expr) (*Expr, error) {
	return b.choose(n, condition, x, noBytes)
}

// bindTransform binds list_transform(list, lambda).
func bindTransform(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	list, err := b.listArgument(n)
	if err != nil {
		return nil, err
	}
	return b.comprehension(n, list)
}

// comprehension binds a lambda over the elements of a list, and the condition of a second one.
func (b *binder) comprehension(n *syntax.Call, list *Expr) (*Expr, error) {
	element, at := b.newParam(theElement, list.typ.Element()), b.newParam(thePosition, gpu.Of(gpu.Int64))
	x, err := b.lambda(n, 1, 1, element, at)
	if err != nil {
		return nil, err
	}
	x = known(x)
	body, err := b.nest(n, x)
	if err == nil && len(n.Args) > 2 {
		body, err = b.where(n, 2, element, at, body)
	}
	if err != nil {
		return nil, err
	}
	return b.each(n, gpu.OpEachElement, 0, list, gpu.ListOf(gpu.Nestable(x.typ)), body)
}

// where returns a body where the condition of a lambda is true.
func (b *binder) where(n *syntax.Call, i int, element, at, body *Expr) (*Expr, error) {
	condition, err := b.lambda(n, i, 1, element, at)
	if err != nil {
		return nil, err
	}
	if condition, err = b.boolean(n.Args[i], condition, n.Name); err != nil {
		return nil, err
	}
	return b.onlyIf(n, condition, body)
}

// bindFilter binds list_filter(list, lambda).
func bindFilter(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	list, err := b.listArgument(n)
	if err != nil {
		return nil, err
	}
	element, at := b.newParam(theElement, list.typ.Element()), b.newParam(thePosition, gpu.Of(gpu.Int64))
	body, err := b.nest(n, element)
	if err == nil {
		body, err = b.where(n, 1, element, at, body)
	}
	if err != nil {
		return nil, err
	}
	return b.each(n, gpu.OpEachElement, 0, list, list.typ, body)
}

// bindReduce binds list_reduce(list, lambda[, start]).
func bindReduce(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
	list, err := b.listArgument(n)
	if err != nil {
		return nil, err
	}
	e := Expr{op: gpu.OpReduceElements, level: b.level, nullable: true}
	element := b.newParam(theElement, list.typ.Element())
	var start *Expr
	t := element.typ
	if len(n.Args) > 2 {
		if start, err = b.bind(n.Args[2]); err != nil {
			return nil, err
		}
		if start.literal == nullLiteral {
			start = newConstant(gpu.Null(t))
		}
		start = typed(start)
		t = start.typ
	}
	// The type of the result so far becomes one that also has the values of the lambda.
	var next *Expr
	for range 2 {
		if next, err = b.lambda(n, 1, 2, b.newParam(theResult, t), element, b.newParam(thePosition, long)); err != nil {
			return nil, err
		}
		next = known(next)
		both, ok := gpu.CommonType(t, next.typ)
		if !ok {
			return nil, b.errorf(n.Args[1], "the lambda of %s returns %v, and the result so far is %v", n.Name,
				next.typ, t)
		}
		if both.SameSQL(t) {
			break
		}
		t = both
	}
	e.typ = gpu.Nestable(t)
	if next, err = newCast(b.scope.Fold, next, e.typ, false); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	if start == nil {
		if start, err = b.firstOf(n, list); err != nil {
			return nil, err
		}
		e.n = 1
	}
	if start, err = newCast(b.scope.Fold, start, e.typ, false); err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	out, err := b.op(n, e, list, start, next)
	if err != nil || !list.nullable {
		return out, err
	}
	return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", list, out)
}

// firstOf returns the first element of a list, which must have one.
func (b *binder) firstOf(n *syntax.Call, list *Expr) (*Expr, error) {
	first, err := b.element(n, list, position(1), list.typ.Element())
	if err != nil {
		return nil, err
	}
	count, err := bindCount(b, n, []*Expr{list})
	if err != nil {
		return nil, err
	}
	return b.expand(n, "CASE WHEN _1 = 0 THEN error('"+n.Name+" of an empty list has no result; give it a start as "+
		"its third argument') ELSE _2 END", count, first)
}
