package expr

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// macros caches the trees of macros by their text.
var macros sync.Map

// expand binds an expression over arguments: _1 is the first.
func (b *binder) expand(n syntax.Node, body string, args ...*Expr) (*Expr, error) {
	tree, ok := macros.Load(body)
	if !ok {
		parsed, err := syntax.Parse(body)
		if err != nil {
			panic(fmt.Sprintf("expr: the macro %s: %v", body, err))
		}
		tree, _ = macros.LoadOrStore(body, parsed)
	}
	with, err := syntax.Replace(tree.(syntax.Node), func(n syntax.Node) (syntax.Node, error) {
		name, ok := n.(*syntax.Name)
		if !ok {
			return nil, nil
		}
		for i, a := range args {
			if name.Parts[0] == fmt.Sprint("_", i+1) {
				return &syntax.Resolved{Base: name.Base, Value: a}, nil
			}
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	inner := &binder{scope: &Scope{Schema: gpu.NewSchema(), Fold: b.scope.Fold, Now: b.scope.Now}, src: body,
		lazy: b.lazy, level: b.level}
	e, err := inner.bindAny(with)
	if err == nil {
		return e, nil
	}
	if inner := (*syntax.Error)(nil); errors.As(err, &inner) {
		return nil, b.errorf(n, "%s", inner.Msg)
	}
	return nil, b.errorf(n, "%v", err)
}

// between binds a function that is an operator between its arguments, of any types.
func between(body string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) { return b.expand(n, body, a...) }
}

// macro binds a function that is an expression over its arguments. kinds has a letter for each
// argument; the last letter applies to all further arguments. s is text, i an integer, n a number,
// f a number as a DOUBLE, d a DATE or a TIMESTAMP, v text or a BLOB, x anything.
func macro(kinds, body string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, kinds, a)
		if err != nil {
			return nil, err
		}
		return b.expand(n, body, args...)
	}
}

// arguments checks the arguments of a call, and converts those that are literals. See macro.
func (b *binder) arguments(n *syntax.Call, kinds string, a []*Expr) ([]*Expr, error) {
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
				e, err = b.convert(n.Args[i], e, gpu.Of(gpu.Float64), false)
			}
		case 'v':
			if e.literal == nullLiteral {
				e = newConstant(gpu.Null(text))
			} else if !e.typ.IsVar() || e.typ.IsNested() {
				err = b.errorf(n.Args[i], "%s needs text or a BLOB, found %v", n.Name, e.typ)
			}
		case 'd':
			switch {
			case e.literal == nullLiteral:
				e = newConstant(gpu.Null(gpu.TimestampOf(gpu.Microsecond, false)))
			case e.isInterval() || e.typ.Kind != gpu.Date && e.typ.Kind != gpu.Timestamp:
				err = b.errorf(n.Args[i], "%s needs a date or timestamp, found %v%s", n.Name, e.typ, dateHint(e))
			}
		}
		if err != nil {
			return nil, err
		}
		out[i] = e
	}
	return out, nil
}
