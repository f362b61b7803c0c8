package expr

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// bindToJSON binds to_json(x): the value as JSON.
func bindToJSON(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if k := a[0].typ.Kind; n.Name == "row_to_json" && k != gpu.Struct || n.Name == "array_to_json" && k != gpu.List {
		return nil, b.errorf(n.Args[0], "%s needs a STRUCT or a LIST, as its name says, found %v; to_json takes any "+
			"value", n.Name, a[0].typ)
	}
	if a[0].literal == nullLiteral {
		return asJSON(newConstant(gpu.Null(text)), nil)
	}
	x := typed(a[0])
	s, err := b.jsonOf(n, x)
	if err != nil || !x.nullable {
		return asJSON(s, err)
	}
	return asJSON(b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", x, s))
}

// jsonOf returns a value as JSON, for a null the text null.
func (b *binder) jsonOf(n *syntax.Call, x *Expr) (s *Expr, err error) {
	switch t := x.typ; {
	case t.Kind == gpu.Struct:
		s, err = b.jsonOfStruct(n, x)
	case t.IsComposite():
		s, err = b.jsonOfList(n, x)
	case x.isJSON():
		s, err = b.minified(n, x)
	case t.Kind == gpu.Decimal:
		s, err = b.expand(n, "CAST(CAST(_1 AS DOUBLE) AS VARCHAR)", x)
	case t.IsNumeric() || t.Kind == gpu.Bool:
		s, err = b.convert(n, x, text, false)
	default:
		if s, err = b.convert(n, x, text, false); err == nil {
			s, err = b.expand(n, jsonQuoted, s)
		}
	}
	if err != nil || !x.nullable {
		return s, err
	}
	return b.expand(n, "CASE WHEN _1 IS NULL THEN 'null' ELSE _2 END", x, s)
}

// jsonQuoted is the expression of a text in quotes.
var jsonQuoted = func() string {
	s := `replace(replace(_1, '\', '\\'), '"', '\"')`
	all := s
	for c := range ' ' {
		escaped, _ := json.Marshal(string(c))
		all = fmt.Sprintf("replace(%s, chr(%d), '%s')", all, c, strings.Trim(string(escaped), `"`))
	}
	return `'"' || CASE WHEN regexp_matches(_1, '[\x00-\x1f]') THEN ` + all + " ELSE " + s + ` END || '"'`
}()

// jsonOfList returns a list or map as JSON.
func (b *binder) jsonOfList(n *syntax.Call, x *Expr) (*Expr, error) {
	element := b.newParam(theElement, x.typ.Element())
	b.level++
	one, err := b.jsonElement(n, x.typ, element)
	b.level--
	if err != nil {
		return nil, err
	}
	joined, err := b.op(n, Expr{op: gpu.OpEachElement, typ: text, nullable: x.nullable, level: b.level}, x, one)
	if err != nil {
		return nil, err
	}
	if x.typ.Kind == gpu.Map {
		return b.expand(n, "'{' || substring(_1, 2) || '}'", joined)
	}
	return b.expand(n, "'[' || substring(_1, 2) || ']'", joined)
}

func (b *binder) jsonElement(n *syntax.Call, list gpu.Type, element *Expr) (*Expr, error) {
	if list.Kind == gpu.List {
		s, err := b.jsonOf(n, element)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "',' || _1", s)
	}
	var parts [2]*Expr
	for i, f := range list.Children() {
		part, err := b.element(n, element, position(int64(i+1)), f.Type)
		switch {
		case err == nil && i == 0: // names are texts
			if part, err = b.convert(n, part, text, false); err == nil {
				parts[i], err = b.expand(n, jsonQuoted, part)
			}
		case err == nil:
			parts[i], err = b.jsonOf(n, part)
		}
		if err != nil {
			return nil, err
		}
	}
	return b.expand(n, "',' || _1 || ':' || _2", parts[:]...)
}

// jsonOfStruct returns a struct as JSON.
func (b *binder) jsonOfStruct(n *syntax.Call, x *Expr) (*Expr, error) {
	out := newConstant(gpu.StringScalar("{"))
	for i, f := range x.typ.Children() {
		field, err := b.element(n, x, position(int64(i+1)), f.Type)
		if err == nil {
			field, err = b.jsonOf(n, field)
		}
		if err != nil {
			return nil, err
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		label := string(name) + ":"
		if i > 0 {
			label = "," + label
		}
		if out, err = b.expand(n, "_1 || _2 || _3", out, newConstant(gpu.StringScalar(label)), field); err != nil {
			return nil, err
		}
	}
	return b.expand(n, "_1 || '}'", out)
}
