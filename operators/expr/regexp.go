package expr

import (
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/regex"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// regexpCall has the constant arguments of a call of a regular expression function.
type regexpCall struct {
	pattern gpu.Scalar
	options regex.Options
	global  bool
	groups  int
	// null says that the result is null, because the pattern is.
	null bool
}

// regexp checks the pattern, which is argument at, and the options, which are argument more. The
// pattern in the result includes the options.
func (b *binder) regexp(n *syntax.Call, a []*Expr, at, more int, always regex.Options) (c regexpCall, err error) {
	c.options = always
	if len(a) > more {
		if err := b.regexpOptions(n, n.Args[more], a[more], &c); err != nil {
			return c, err
		}
	}
	if a[at].literal == nullLiteral {
		c.null = true
		return c, nil
	}
	var constant bool
	c.pattern, constant = a[at].Constant()
	switch {
	case !constant:
		return c, b.errorf(n.Args[at], "the pattern of %s must be constant text", n.Name)
	case a[at].typ.Kind != gpu.String:
		return c, b.errorf(n.Args[at], "the pattern of %s must be text (VARCHAR), found %v", n.Name, a[at].typ)
	case !c.pattern.Valid:
		c.null = true
		return c, nil
	}
	automaton, err := regex.Compile(c.pattern.Str, c.options)
	if err != nil {
		return c, b.errorf(n.Args[at], "the pattern '%s' is not possible: %v", syntax.Cut(c.pattern.Str, 60), err)
	}
	c.groups = automaton.Groups
	return c, nil
}

// regexpOptions reads the letters of options. If letters contradict each other, the last one
// counts.
func (b *binder) regexpOptions(n *syntax.Call, at syntax.Node, e *Expr, c *regexpCall) error {
	v, ok := e.Constant()
	if !ok || !v.Valid || e.typ.Kind != gpu.String {
		return b.errorf(at, "the options of %s must be constant text", n.Name)
	}
	for _, letter := range v.Str {
		switch letter {
		case 'c':
			c.options &^= regex.Fold
		case 'i':
			c.options |= regex.Fold
		case 'l':
			c.options |= regex.Literal
		case 'm', 'n', 'p':
			c.options &^= regex.DotAll
		case 's':
			c.options |= regex.DotAll
		case 'g':
			if n.Name != "regexp_replace" {
				return b.errorf(at, "option g is of regexp_replace only")
			}
			c.global = true
		case ' ', '\t', '\n':
		default:
			return b.errorf(at,
				"there is no option %q; the options of %s are c and i (case), l (plain text), s and n (whether . "+
					"matches line ends), and g of regexp_replace", letter, n.Name)
		}
	}
	return nil
}

// bindRegexp binds regexp_matches and regexp_full_match.
func bindRegexp(always regex.Options) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.str(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		c, err := b.regexp(n, a, 1, 2, always)
		if err != nil {
			return nil, err
		}
		if c.null {
			return newConstant(gpu.Null(gpu.Of(gpu.Bool))), nil
		}
		return b.op(n, Expr{op: gpu.OpRegexp, typ: gpu.Of(gpu.Bool), value: c.pattern, n: int(c.options),
			nullable: x.nullable}, x)
	}
}

// bindRegexpExtract binds the text of a group of the first match.
func bindRegexpExtract(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	c, err := b.regexp(n, a, 1, 3, 0)
	if err != nil {
		return nil, err
	}
	if c.null {
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	}
	group := 0
	if len(a) > 2 {
		v, ok := a[2].Constant()
		switch {
		case a[2].literal == nullLiteral:
			group = 9
			c.groups = 0
		case !ok || !a[2].typ.IsInteger() || !v.Valid || v.Int.Less(gpu.Int128From(0)) || gpu.Int128From(9).Less(v.Int):
			return nil, b.errorf(n.Args[2], "the group of %s must be a constant from 0 to 9", n.Name)
		default:
			group = int(v.Int.Int64())
		}
	}
	if group > c.groups {
		return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN '' END", x)
	}
	return b.op(n, Expr{op: gpu.OpRegexpExtract, typ: gpu.Of(gpu.String), value: c.pattern,
		n: int(c.options) | group<<8, nullable: x.nullable}, x)
}

// bindRegexpReplace binds the replacement of the first match, or of all.
func bindRegexpReplace(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	replacement, err := b.str(n, 2, a[2])
	if err != nil {
		return nil, err
	}
	c, err := b.regexp(n, a, 1, 3, 0)
	if err != nil {
		return nil, err
	}
	if c.null {
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	}
	e := Expr{op: gpu.OpRegexpReplace, typ: gpu.Of(gpu.String), value: c.pattern, n: int(c.options),
		nullable: x.nullable || replacement.nullable, fails: true}
	if c.global {
		e.n |= 1 << 8
	}
	replaced, err := b.op(n, e, x, replacement)
	if err != nil {
		return nil, err
	}
	// A backslash is followed by a backslash or the number of a group.
	legal := newConstant(gpu.StringScalar(`(?s:[^\\]|\\[\\0-` + string(rune('0'+min(c.groups, 9))) + `])*`))
	valid, err := b.expand(n, "_2 IS NULL OR regexp_full_match(_1, _3)", replacement, x, legal)
	if err != nil {
		return nil, err
	}
	if v, ok := valid.Constant(); ok && v.Valid && v.Int.Lo != 0 {
		return replaced, nil
	}
	return b.require(n, valid, replaced, `in a replacement \\ is a backslash and \0 to \9 are groups of the pattern`)
}

// writeRegexp writes a call of a regular expression function.
func (e *Expr) writeRegexp(b *strings.Builder, limit int) {
	o := regex.Options(e.n & 0xff)
	name, letters := e.op.Info().SQL, ""
	if o&regex.Full != 0 {
		name = "regexp_full_match"
	}
	for i, option := range []regex.Options{regex.Fold, regex.DotAll, regex.Literal} {
		if o&option != 0 {
			letters += "isl"[i : i+1]
		}
	}
	b.WriteString(name + "(")
	e.args[0].write(b, limit)
	b.WriteString(", ")
	e.writeConstant(b, e.value)
	switch e.op {
	case gpu.OpRegexpExtract:
		b.WriteString(", " + string(rune('0'+e.n>>8)))
	case gpu.OpRegexpReplace:
		b.WriteString(", ")
		e.args[1].write(b, limit)
		if e.n>>8 == 1 {
			letters = "g" + letters
		}
	}
	if letters != "" {
		b.WriteString(", '" + letters + "'")
	}
	b.WriteByte(')')
}
