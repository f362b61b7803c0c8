package expr

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// placeholder is a part of a format of format or printf that an argument replaces.
type placeholder struct {
	arg       int
	fill      string
	align     byte // <, >, ^, or 0: numbers to the right, text to the left
	sign      byte // + or space before numbers that are not negative; 0
	zero      bool // zeros between sign and digits
	width     int
	group     byte // , or _ between groups of three digits; 0
	precision int  // code points of text; -1: all
	verb      byte // 0, s, d, x, X, o or b
	unsigned  bool // a negative integer is printed as its 64 bits without a sign
}

// maxWidth bounds the width of a placeholder.
const maxWidth = 1 << 10

// formatter reads the formats of format and printf.
type formatter struct {
	rest     string
	literals []string // one more than there are placeholders
	places   []placeholder
	next     int // the argument of the next placeholder without a number
	numbered bool
}

func (f *formatter) accept(chars string) byte {
	if f.rest != "" && strings.IndexByte(chars, f.rest[0]) >= 0 {
		c := f.rest[0]
		f.rest = f.rest[1:]
		return c
	}
	return 0
}

// number reads a number. It returns -1 if there are no digits.
func (f *formatter) number() (int, error) {
	n := 0
	for n < len(f.rest) && isDecimal(f.rest[n]) {
		n++
	}
	if n == 0 {
		return -1, nil
	}
	v, err := strconv.Atoi(f.rest[:n])
	if err != nil || v > maxWidth {
		return 0, fmt.Errorf("the number %s in the format is more than %d", syntax.Cut(f.rest[:n], 20), maxWidth)
	}
	f.rest = f.rest[n:]
	return v, nil
}

// braces reads a format of format: {} and {:…}, {{ and }}.
func (f *formatter) braces() error {
	literal := ""
	for f.rest != "" {
		i := strings.IndexAny(f.rest, "{}")
		if i < 0 {
			i = len(f.rest)
		}
		literal, f.rest = literal+f.rest[:i], f.rest[i:]
		switch {
		case f.rest == "":
		case strings.HasPrefix(f.rest, "{{") || strings.HasPrefix(f.rest, "}}"):
			literal, f.rest = literal+f.rest[:1], f.rest[2:]
		case f.rest[0] == '}':
			return fmt.Errorf("a } in the format has no {; }} is a }")
		default:
			f.rest = f.rest[1:]
			p := placeholder{precision: -1, fill: " "}
			n, err := f.number()
			if err != nil {
				return err
			}
			if p.arg = n; n < 0 {
				p.arg = f.next
				f.next++
			}
			if f.numbered = f.numbered || n >= 0; f.numbered && f.next > 0 {
				return fmt.Errorf("the format has {} and {n}: use one of them")
			}
			if f.accept(":") != 0 {
				if r, size := utf8.DecodeRuneInString(f.rest); len(f.rest) > size &&
					strings.IndexByte("<>^", f.rest[size]) >= 0 && r != '{' && r != '}' {
					p.fill, f.rest = f.rest[:size], f.rest[size:]
				}
				p.align, p.group = f.accept("<>^"), f.accept(",_")
				if p.group == 0 {
					p.sign = f.accept("+- ")
				}
				if p.sign == '-' {
					p.sign = 0
				}
				if err := f.tail(&p, "sdxXob"); err != nil {
					return err
				}
			}
			if f.accept("}") == 0 {
				return fmt.Errorf("the format does not go on with %q: {} may have fill, alignment, a comma or _ or a "+
					"sign, 0, width, .precision and one of s d x X o b, as in {:>10} or {:,d}", syntax.Cut(f.rest, 10))
			}
			f.literals, f.places, literal = append(f.literals, literal), append(f.places, p), ""
		}
	}
	f.literals = append(f.literals, literal)
	return nil
}

// tail reads the parts that {} and %… have in common: 0, the width, the precision and the verb.
func (f *formatter) tail(p *placeholder, verbs string) error {
	if f.accept("0") != 0 {
		p.zero = true
	}
	n, err := f.number()
	if err != nil {
		return err
	}
	p.width = max(n, 0)
	if f.accept(".") != 0 {
		if p.precision, err = f.number(); err == nil && p.precision < 0 {
			err = fmt.Errorf("the format has no number behind a point")
		}
		if err != nil {
			return err
		}
	}
	p.verb = f.accept(verbs)
	return nil
}

// percents reads a format of printf: %s, %d and so on, %%.
func (f *formatter) percents() error {
	literal := ""
	for f.rest != "" {
		plain, _, found := strings.Cut(f.rest, "%")
		literal, f.rest = literal+plain, f.rest[len(plain):]
		if !found {
			break
		}
		if strings.HasPrefix(f.rest, "%%") {
			literal, f.rest = literal+"%", f.rest[2:]
			continue
		}
		f.rest = f.rest[1:]
		p := placeholder{arg: f.next, precision: -1, fill: " ", align: '>'}
		f.next++
		for flag := f.accept("-+ 0,_"); flag != 0; flag = f.accept("-+ 0,_") {
			switch flag {
			case '-':
				p.align = '<'
			case '0':
				p.zero = true
			case ',', '_':
				p.group = flag
			case '+':
				p.sign = '+'
			default:
				p.sign = max(p.sign, ' ')
			}
		}
		p.zero = p.zero && p.align == '>'
		if err := f.tail(&p, "sdiuxXo"); err != nil {
			return err
		}
		switch p.verb {
		case 0:
			return fmt.Errorf("the format does not go on with %q: behind %% there may be - + 0 and commas, a width, "+
				".precision, and one of s d i u x X o; for floats use round(x, digits) and {} of format",
				syntax.Cut(f.rest, 10))
		case 'i':
			p.verb = 'd'
		case 'u':
			p.verb, p.unsigned = 'd', true
		case 'x', 'X', 'o':
			p.unsigned = true
		}
		f.literals, f.places, literal = append(f.literals, literal), append(f.places, p), ""
	}
	f.literals = append(f.literals, literal)
	return nil
}

// bindFormat binds format and printf as the concatenation of their parts. read reads the format.
func bindFormat(read func(*formatter) error) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		if a[0].literal == nullLiteral {
			return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
		}
		v, ok := a[0].Constant()
		if !ok || a[0].typ.Kind != gpu.String || !v.Valid {
			return nil, b.errorf(n.Args[0], "the format of %s must be a constant text", n.Name)
		}
		f := &formatter{rest: v.Str}
		if err := read(f); err != nil {
			return nil, b.errorf(n.Args[0], "%v", err)
		}
		var parts []*Expr
		used := map[int]bool{}
		literal := func(s string) { parts = append(parts, newConstant(gpu.StringScalar(s))) }
		literal(f.literals[0])
		for i, p := range f.places {
			if p.arg+1 >= len(a) {
				return nil, b.errorf(n, "the format of %s needs %d arguments, found %d", n.Name, p.arg+1, len(a)-1)
			}
			e, err := b.formatted(n, n.Args[p.arg+1], a[p.arg+1], p)
			if err != nil {
				return nil, err
			}
			used[p.arg] = true
			parts = append(parts, e)
			literal(f.literals[i+1])
		}
		nodes := make([]syntax.Node, len(parts))
		for i := range nodes {
			nodes[i] = n
		}
		e := parts[0]
		if len(parts) > 1 {
			var err error
			if e, err = b.concat(n, nodes, parts); err != nil {
				return nil, err
			}
		}
		for i, x := range a[1:] {
			if used[i] || !x.nullable && x.literal != nullLiteral {
				continue
			}
			var err error
			if e, err = b.expand(n, "CASE WHEN _2 IS NOT NULL THEN _1 END", e, x); err != nil {
				return nil, err
			}
		}
		return e, nil
	}
}

// formatted returns an argument as its placeholder formats it.
func (b *binder) formatted(n *syntax.Call, at syntax.Node, x *Expr, p placeholder) (*Expr, error) {
	body := "_1::VARCHAR"
	number := x.typ.IsInteger() && x.literal != nullLiteral
	wrong := func(what string) error {
		return b.errorf(at, "%s cannot write %v %s; cast it, as in x::VARCHAR", n.Name, x.typ, what)
	}
	switch {
	case number && (p.precision >= 0 || p.group != 0 && p.verb != 0 && p.verb != 'd'):
		return nil, wrong("in this form")
	case number && (p.verb == 's' || x.typ.Kind == gpu.HugeInt && (p.unsigned || p.verb != 0 && p.verb != 'd')):
		return nil, wrong("as " + string(p.verb))
	case number && p.unsigned:
		body := "CASE WHEN _1 < 0 THEN (_1::HUGEINT + 18446744073709551616)::UBIGINT ELSE _1::UBIGINT END"
		if x.typ.IsUnsigned() {
			body = "_1::UBIGINT"
		}
		var err error
		if x, err = b.expand(n, body, x); err != nil {
			return nil, err
		}
	case number:
	case x.typ.IsNumeric() && (p.verb != 0 || p.precision >= 0 || p.group != 0 || p.zero || p.sign != 0):
		return nil, wrong("in this form: round(x, digits) has so many digits")
	case x.typ.IsNumeric():
		body = "_1::DOUBLE::VARCHAR"
		if p.align == 0 {
			p.align = '>'
		}
	case p.verb != 0 && p.verb != 's' || p.group != 0 || p.zero || p.sign != 0:
		return nil, wrong("as a number")
	}
	if number {
		if p.align == 0 {
			p.align = '>'
		}
		base := map[byte]string{'x': "lower(hex(%s))", 'X': "hex(%s)", 'b': "bin(%s)", 'o': "to_base(%s, 8)"}[p.verb]
		body = "ltrim(_1::VARCHAR, '-')"
		if base != "" {
			body = fmt.Sprintf(base, "abs(_1::HUGEINT)")
			if p.verb == 'o' {
				body = "to_base(abs(_1), 8)"
			}
		}
		if p.group != 0 {
			body = fmt.Sprintf("ltrim(reverse(regexp_replace(reverse(%s), '(...)', '\\1%c', 'g')), '%c')", body,
				p.group, p.group)
		}
		sign := ""
		if p.sign != 0 {
			sign = string(p.sign)
		}
		digits, err := b.expand(n, body, x)
		if p.unsigned && p.verb == 'o' { // to_base takes a BIGINT
			digits, err = b.op(n, Expr{op: gpu.OpDigits, typ: gpu.Of(gpu.String), n: 8, nullable: x.nullable}, x)
		}
		if err != nil {
			return nil, err
		}
		signs, err := b.expand(n, "CASE WHEN _1 < 0 THEN '-' ELSE '"+sign+"' END", x)
		if err != nil {
			return nil, err
		}
		body = "_2 || _1"
		if p.zero {
			body = fmt.Sprintf("_2 || repeat('0', %d - length(_1) - length(_2)) || _1", p.width)
			p.width = 0
		}
		if x, err = b.expand(n, body, digits, signs); err != nil {
			return nil, err
		}
		body = "_1"
	}
	if p.precision >= 0 {
		body = fmt.Sprintf("substring(%s, 1, %d)", body, p.precision)
	}
	e, err := b.expand(n, body, x)
	if err != nil || p.width == 0 {
		return e, err
	}
	left, right := "0", fmt.Sprintf("%d - length(_1)", p.width)
	switch p.align {
	case '>':
		left, right = right, left
	case '^':
		left = fmt.Sprintf("greatest(%s, 0) // 2", right)
		right = fmt.Sprintf("%s - %s", right, left)
	}
	return b.expand(n, fmt.Sprintf("repeat(_2, %s) || _1 || repeat(_2, %s)", left, right), e,
		newConstant(gpu.StringScalar(p.fill)))
}

func isDecimal(c byte) bool { return c >= '0' && c <= '9' }
