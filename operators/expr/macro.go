package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// valueNode is a tree that has been bound, within the tree of a macro.
type valueNode struct {
	base
	e *Expr
}

func (n *valueNode) String() string           { return text(n) }
func (n *valueNode) write(b *strings.Builder) { b.WriteString(n.e.String()) }

// macros has the trees of macros by their text.
var macros sync.Map

// expand binds an expression over arguments: _1 is the first.
func (b *binder) expand(n Node, body string, args ...*Expr) (*Expr, error) {
	tree, ok := macros.Load(body)
	if !ok {
		parsed, err := Parse(body)
		if err != nil {
			panic(fmt.Sprintf("expr: the macro %s: %v", body, err))
		}
		tree, _ = macros.LoadOrStore(body, parsed)
	}
	with, err := replace(tree.(Node), func(n Node) (Node, error) {
		name, ok := n.(*nameNode)
		if !ok {
			return nil, nil
		}
		for i, a := range args {
			if name.parts[0] == fmt.Sprint("_", i+1) {
				return &valueNode{name.base, a}, nil
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	inner := &binder{scope: &Scope{Schema: gpu.NewSchema(), Fold: b.scope.Fold, Now: b.scope.Now}, src: body, lazy: b.lazy}
	e, err := inner.bindAny(with)
	if err == nil {
		return e, nil
	}
	if inner := (*Error)(nil); errors.As(err, &inner) {
		return nil, b.errorf(n, "%s", inner.Msg)
	}
	return nil, b.errorf(n, "%v", err)
}

// macro is a function that is an expression over its arguments. kinds has a letter for what
// each argument must be: s is text, i an integer, n a number, f a number as a DOUBLE, d a
// DATE or a TIMESTAMP, x anything. The last letter is that of all arguments after it.
func macro(kinds, body string) func(*binder, *callNode, []*Expr) (*Expr, error) {
	return func(b *binder, n *callNode, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, kinds, a)
		if err != nil {
			return nil, err
		}
		return b.expand(n, body, args...)
	}
}

// arguments checks the arguments of a call, and converts those that are literals. See macro.
func (b *binder) arguments(n *callNode, kinds string, a []*Expr) ([]*Expr, error) {
	out := make([]*Expr, len(a))
	for i, e := range a {
		var err error
		switch kinds[min(i, len(kinds)-1)] {
		case 's':
			e, err = b.str(n, i, e)
		case 'i':
			e, err = b.count(n, i, e)
		case 'n':
			e, err = b.numeric(n, i, e)
		case 'f':
			if e, err = b.numeric(n, i, e); err == nil {
				e, err = b.convert(n.args[i], e, gpu.Of(gpu.Float64), false)
			}
		case 'd':
			switch {
			case e.literal == nullLiteral:
				e = newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false)))
			case e.isInterval() || e.typ.Kind != gpu.Date && e.typ.Kind != gpu.Timestamp:
				err = b.errorf(n.args[i], "%s needs a date or timestamp, found %v%s", n.name, e.typ, dateHint(e))
			}
		}
		if err != nil {
			return nil, err
		}
		out[i] = e
	}
	return out, nil
}
