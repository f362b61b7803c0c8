package expr

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// castNested casts a nested value to text, or what is inside of it. Structs are matched by the names of their fields,
// of which at least one must be in both; a field that is not becomes null.
func castNested(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	if x.untyped && t.Kind == gpu.List {
		return newConstant(gpu.Scalar{Type: t, Valid: true, Str: x.value.Str}), nil
	}
	if len(x.typ.Children()) == 0 && x.typ.Kind != gpu.Struct || t.Kind != gpu.String && t.Kind != x.typ.Kind {
		return nil, fmt.Errorf("cannot cast %v to %v", x.typ, t)
	}
	c := newNestedCast(fold, try)
	out, err := c.cast(x, t)
	return out, c.plain(err)
}

func newNestedCast(fold Fold, try bool) nestedCast {
	return nestedCast{binder: &binder{scope: &Scope{Schema: gpu.NewSchema(), Fold: fold}, lazy: 1},
		at: &syntax.WordLiteral{Word: "NULL"}, try: try}
}

// nestedCast binds the expression that a cast of a nested value is. Its nodes have no position.
type nestedCast struct {
	*binder
	at  syntax.Node
	try bool
	// texts says that the value has texts in place of all values that are not nested, so that keys of a map may fail to
	// be read, or become equal.
	texts bool
}

func (c nestedCast) cast(x *Expr, t gpu.Type) (*Expr, error) {
	var parts []*Expr
	var err error
	switch k := x.typ.Kind; {
	case k == gpu.Interval:
		return c.intervalAsText(c.at, x)
	case t.Kind == gpu.String && k == gpu.Struct:
		return c.structText(x)
	case t.Kind == gpu.String:
		return c.listText(x)
	case k == gpu.List:
		parts, err = c.children(c.newParam(theElement, x.typ.Element()), nil, t.Children())
	case k == gpu.Map:
		entry := c.newParam(theElement, x.typ.Element())
		if parts, err = c.children(entry, x.typ.Children(), t.Children()); err == nil {
			parts[0], err = c.assemble(c.at, t.Element(), parts)
		}
	default:
		if parts, err = c.children(x, x.typ.Children(), t.Children()); err != nil {
			return nil, err
		}
		out, err := c.assemble(c.at, t, parts)
		if err != nil || !x.nullable {
			return out, err
		}
		return c.expand(c.at, "CASE WHEN _1 IS NOT NULL THEN _2 END", x, out)
	}
	if err != nil {
		return nil, err
	}
	body, err := c.nest(c.at, parts[0])
	if err != nil {
		return nil, err
	}
	out, err := c.each(c.at, gpu.OpEachElement, 0, x, t, body)
	if err != nil || t.Kind != gpu.Map {
		return out, err
	}
	if key := t.Children()[0].Type; key.Kind == gpu.String || !c.texts && key == x.typ.Children()[0].Type {
		return out, nil // different keys stay different
	}
	instead := "error('" + gpu.ErrTwice.Error() + "')"
	if c.try {
		instead = "NULL"
	}
	return c.expand(c.at, "CASE WHEN _1 IS NULL OR list_unique(map_keys(_1)) = len(_1) THEN _1 ELSE "+instead+" END",
		out)
}

// children casts the fields of a value to those of another type. Without fields it casts the value to the first one.
func (c nestedCast) children(x *Expr, from, to []gpu.Field) ([]*Expr, error) {
	out, matched := make([]*Expr, len(to)), false
	for i, f := range to {
		value := x
		if from != nil {
			k := len(from) - 1
			for ; k >= 0 && !strings.EqualFold(from[k].Name, f.Name); k-- {
			}
			if k < 0 {
				out[i] = Null(gpu.Field{Type: gpu.Nestable(f.Type)})
				continue
			}
			var err error
			if value, err = c.element(c.at, x, position(int64(k+1)), from[k].Type); err != nil {
				return nil, err
			}
		}
		matched = true
		if v, ok := value.Constant(); ok && !v.Valid {
			out[i] = Null(gpu.Field{Type: gpu.Nestable(f.Type)})
			continue
		}
		var err error
		if c.texts && f.Type.IsComposite() && value.typ != f.Type {
			out[i], err = c.cast(value, f.Type)
		} else {
			out[i], err = newCast(c.scope.Fold, value, gpu.Nestable(f.Type), c.try)
		}
		if err != nil {
			return nil, err
		}
	}
	if !matched {
		return nil, fmt.Errorf("cannot cast %v to %v: they have no field of one name", x.typ, gpu.StructOf(to...))
	}
	return out, nil
}

// quotedElement matches texts that are in quotes inside of the text of a nested value.
const quotedElement = `'^$|^[nN][uU][lL][lL]$|["''(),:=\[\]{}\\]|^[ \t-\r]|[ \t-\r]$'`

// elementText returns the text of a value inside of a nested one.
func (c nestedCast) elementText(x *Expr) (*Expr, error) {
	s, err := newCast(c.scope.Fold, x, text, false)
	if err != nil {
		return nil, err
	}
	if t := x.typ; !t.IsComposite() && !t.IsNumeric() && t.Kind != gpu.Bool {
		s, err = c.expand(c.at,
			"CASE WHEN regexp_matches(_1, "+quotedElement+`) THEN '''' || replace(replace(_1, '\', `+
				`'\\'), '''', '\''') || '''' ELSE _1 END`, s)
		if err != nil {
			return nil, err
		}
	}
	return c.expand(c.at, "CASE WHEN _1 IS NULL THEN 'NULL' ELSE _2 END", x, s)
}

// listText returns the text of a list or map.
func (c nestedCast) listText(x *Expr) (*Expr, error) {
	element := c.newParam(theElement, x.typ.Element())
	one, brackets := element, "[]"
	if x.typ.Kind == gpu.Map {
		brackets = "{}"
		var parts [2]*Expr
		for i, f := range x.typ.Children() {
			part, err := c.element(c.at, element, position(int64(i+1)), f.Type)
			if err == nil {
				parts[i], err = c.elementText(part)
			}
			if err != nil {
				return nil, err
			}
		}
		var err error
		if one, err = c.expand(c.at, "', ' || _1 || '=' || _2", parts[:]...); err != nil {
			return nil, err
		}
	} else {
		s, err := c.elementText(element)
		if err == nil {
			one, err = c.expand(c.at, "', ' || _1", s)
		}
		if err != nil {
			return nil, err
		}
	}
	joined, err := c.op(c.at, Expr{op: gpu.OpEachElement, typ: text, nullable: x.nullable, level: c.level}, x, one)
	if err != nil {
		return nil, err
	}
	return c.expand(c.at, "'"+brackets[:1]+"' || substring(_1, 3) || '"+brackets[1:]+"'", joined)
}

// structText returns the text of a struct.
func (c nestedCast) structText(x *Expr) (*Expr, error) {
	out := newConstant(gpu.StringScalar("{"))
	for i, f := range x.typ.Children() {
		field, err := c.element(c.at, x, position(int64(i+1)), f.Type)
		if err == nil {
			field, err = c.elementText(field)
		}
		name := "'" + strings.ReplaceAll(f.Name, "'", `\'`) + "': "
		if i > 0 {
			name = ", " + name
		}
		if err == nil {
			out, err = c.expand(c.at, "_1 || _2 || _3", out, newConstant(gpu.StringScalar(name)), field)
		}
		if err != nil {
			return nil, err
		}
	}
	return c.expand(c.at, "CASE WHEN _1 IS NOT NULL THEN _2 || '}' END", x, out)
}
