package syntax

import (
	"slices"
	"strings"
)

// ListComprehension is the name of the function that [x + 1 FOR x IN list IF x > 2] calls. Its arguments are the list
// and one or two lambdas: the element of the result, and the condition. No text can call it.
const ListComprehension = "$comprehension"

type (
	// Lambda is lambda Params: X. It is an argument of a function, which says what its parameters are.
	Lambda struct {
		Base
		Params []string
		X      Node
	}
	// Param is a parameter of a lambda in its body.
	Param struct {
		Base
		Name string
	}
)

func (n *Lambda) String() string { return text(n) }
func (n *Param) String() string  { return text(n) }

func (n *Param) write(b *strings.Builder) { writeIdent(b, n.Name) }

func (n *Lambda) write(b *strings.Builder) {
	b.WriteString("lambda ")
	writeParameters(b, n.Params)
	b.WriteString(": ")
	n.X.write(b)
}

func writeParameters(b *strings.Builder, names []string) {
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		writeIdent(b, name)
	}
}

// writeComprehension writes a call of ListComprehension.
func writeComprehension(b *strings.Builder, n *Call) {
	element := n.Args[1].(*Lambda)
	b.WriteByte('[')
	element.X.write(b)
	b.WriteString(" FOR ")
	writeParameters(b, element.Params)
	b.WriteString(" IN ")
	n.Args[0].write(b)
	if len(n.Args) > 2 {
		b.WriteString(" IF ")
		n.Args[2].(*Lambda).X.write(b)
	}
	b.WriteByte(']')
}

// startsLambda reports whether the next tokens are lambda, a name, and a comma or a colon.
func (p *parser) startsLambda() bool {
	end := p.ahead(2)
	return p.peek().is("LAMBDA") && named(p.ahead(1)) && (end.is(",") || end.is(":"))
}

// named reports whether a token is a name.
func named(t token) bool { return t.kind == tokenIdent || t.kind == tokenQuoted }

// parameterNames parses names that are separated by commas.
func (p *parser) parameterNames() (names []string, err error) {
	for {
		t := p.peek()
		if !named(t) {
			return nil, p.unexpected("the name of a parameter")
		}
		for _, other := range names {
			if strings.EqualFold(other, t.text) {
				return nil, NewError(p.src, t.pos, "two parameters have the name %q", Cut(t.text, 60))
			}
		}
		p.advance()
		if names = append(names, t.text); !p.accept(",") {
			return names, nil
		}
	}
}

// lambda parses lambda a, b: x.
func (p *parser) lambda() (Node, error) {
	t := p.advance()
	names, err := p.parameterNames()
	if err == nil {
		err = p.expect(":")
	}
	if err != nil {
		return nil, err
	}
	return p.bodyOf(t.pos, names)
}

// bodyOf parses an expression in which names are parameters.
func (p *parser) bodyOf(pos int, names []string) (*Lambda, error) {
	outer := len(p.params)
	p.params = append(p.params, names...)
	x, err := p.expression(bindNone)
	p.params = p.params[:outer]
	if err != nil {
		return nil, err
	}
	n := &Lambda{Params: names, X: x}
	n.Base = p.at(pos, x)
	n.tall++
	return n, nil
}

// parameterOf returns the parameter that a name is, and its fields; nil for a column.
func (p *parser) parameterOf(n *Name) Node {
	if !slices.ContainsFunc(p.params, func(name string) bool { return strings.EqualFold(name, n.Parts[0]) }) {
		return nil
	}
	var x Node = &Param{n.Base, n.Parts[0]}
	for _, field := range n.Parts[1:] {
		args := []Node{x, &StringLiteral{Base: n.Base, Text: field}}
		x = &Call{Base: p.at(n.at, args...), Name: "struct_extract", Args: args}
	}
	return x
}

// comprehensionNames returns the names after the FOR of a list comprehension whose bracket has been parsed, nil if the
// list is a literal.
func (p *parser) comprehensionNames() []string {
	depth := 0
	for k := 0; ; k++ {
		switch t := p.ahead(k); {
		case p.next+k >= len(p.tokens)-1:
			return nil
		case t.is("(") || t.is("[") || t.is("{"):
			depth++
		case t.is(")") || t.is("]") || t.is("}"):
			if depth--; depth < 0 {
				return nil
			}
		case depth == 0 && t.is("FOR"):
			at := p.next
			p.next += k + 1
			names, err := p.parameterNames()
			if err != nil || !p.peek().is("IN") {
				names = nil
			}
			p.next = at
			return names
		}
	}
}

// comprehension parses the rest of [x FOR names IN list IF condition].
func (p *parser) comprehension(pos int, names []string) (Node, error) {
	element, err := p.bodyOf(p.peek().pos, names)
	if err == nil {
		err = p.expect("FOR")
	}
	if err == nil {
		_, err = p.parameterNames()
	}
	if err == nil {
		err = p.expect("IN")
	}
	if err != nil {
		return nil, err
	}
	list, err := p.expression(bindNone)
	if err != nil {
		return nil, err
	}
	args := []Node{list, element}
	if t := p.peek(); p.accept("IF") {
		condition, err := p.bodyOf(t.pos, names)
		if err != nil {
			return nil, err
		}
		args = append(args, condition)
	}
	return &Call{Base: p.at(pos, args...), Name: ListComprehension, Args: args}, p.expect("]")
}
