package syntax

import (
	"strings"

	"github.com/gstream/gstream/gpu"
)

// listLiteral parses [a, b], which is list_value(a, b).
func (p *parser) listLiteral() (Node, error) {
	t := p.advance()
	if names := p.comprehensionNames(); names != nil {
		return p.comprehension(t.pos, names)
	}
	n := &Call{Name: "list_value"}
	for !p.peek().is("]") {
		x, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		if n.Args = append(n.Args, x); !p.accept(",") {
			break
		}
	}
	n.Base = p.at(t.pos, n.Args...)
	n.tall += len(n.Args)
	return n, p.expect("]")
}

// structLiteral parses {'a': x, b: y}, which is struct_pack(a := x, b := y).
func (p *parser) structLiteral() (Node, error) {
	t := p.advance()
	names, args, err := p.fields("the name of a field")
	if err != nil {
		return nil, err
	}
	n := &Call{Name: "struct_pack", Args: args, Names: names}
	n.Base = p.at(t.pos, n.Args...)
	n.tall += len(n.Args)
	return n, p.expect("}")
}

// mapLiteral parses MAP {k: v, …}, which is map([k, …], [v, …]).
func (p *parser) mapLiteral() (Node, error) {
	t := p.advance()
	p.advance()
	keys, values := &Call{Name: "list_value"}, &Call{Name: "list_value"}
	for !p.peek().is("}") {
		key, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		if err := p.expect(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(bindNone)
		if err != nil {
			return nil, err
		}
		keys.Args, values.Args = append(keys.Args, key), append(values.Args, value)
		if !p.accept(",") {
			break
		}
	}
	keys.Base, values.Base = p.at(t.pos, keys.Args...), p.at(t.pos, values.Args...)
	keys.tall, values.tall = keys.tall+len(keys.Args), values.tall+len(values.Args)
	return &Call{Base: p.at(t.pos, keys, values), Name: "map", Args: []Node{keys, values}}, p.expect("}")
}

// field parses .name after an expression, which is struct_extract(x, 'name').
func (p *parser) field(x Node) (Node, bool, error) {
	t, name := p.peek(), p.ahead(1)
	if _, star := x.(*StarExpr); star || name.kind != tokenIdent && name.kind != tokenQuoted {
		return x, false, nil
	}
	p.next += 2
	args := []Node{x, &StringLiteral{Base: p.at(name.pos), Text: name.text}}
	return &Call{Base: p.at(t.pos, args...), Name: "struct_extract", Args: args}, true, nil
}

// nestedType parses the rest of STRUCT(a T, …) and MAP(K, V), and the [] behind a type.
func (p *parser) nestedType() (t gpu.Type, err error) {
	defer func(sized bool) { p.sized = sized }(p.sized)
	p.sized = false
	name := p.advance()
	if err := p.expect("("); err != nil {
		return t, err
	}
	if name.is("MAP") {
		key, err := p.typeName()
		if err == nil {
			err = p.expect(",")
		}
		if err != nil {
			return t, err
		}
		value, err := p.typeName()
		if err != nil {
			return t, err
		}
		return gpu.MapOf(key, value), p.expect(")")
	}
	var fields []gpu.Field
	for {
		f := p.peek()
		if f.kind != tokenIdent && f.kind != tokenQuoted {
			return t, p.unexpected("the name of a field")
		}
		p.advance()
		typ, err := p.typeName()
		if err != nil {
			return t, err
		}
		for _, other := range fields {
			if strings.EqualFold(other.Name, f.text) {
				return t, NewError(p.src, f.pos, "a STRUCT has two fields %q", Cut(f.text, 60))
			}
		}
		if fields = append(fields, gpu.Field{Name: f.text, Type: typ}); !p.accept(",") {
			return gpu.StructOf(fields...), p.expect(")")
		}
	}
}

// lists parses the [] behind a type. A cast parses a size.
func (p *parser) lists(t gpu.Type) (gpu.Type, error) {
	for p.peek().is("[") {
		n := p.ahead(1)
		if n.kind == tokenNumber && p.sized && p.ahead(2).is("]") && !p.ahead(3).is("[") {
			return t, nil
		}
		if !n.is("]") {
			return t, NewError(p.src, n.pos, "found %s, expected ]: lists have any length, as in %v[], or one size at "+
				"the end of the type of a cast; a character of the text is CAST(x AS %[2]v)[1]", n.describe(), t)
		}
		if p.next += 2; t.Depth() == gpu.MaxNesting {
			return t, NewError(p.src, p.peek().pos, "the type is nested more than %d levels deep", gpu.MaxNesting)
		}
		t = gpu.ListOf(t)
	}
	return t, nil
}
