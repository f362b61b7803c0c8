package jsontext

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// transformer makes values of a type of JSON, with texts in place of all values that are not nested.
type transformer struct {
	strict  bool // strings are numbers and truth values only in their usual form
	fails   bool // what does not fit is an error, instead of a null
	unknown bool // members that the type does not have are an error, if fails is set
}

// transformers are the functions of OpJSON that transform.
var transformers = map[gpu.JSONFunc]transformer{
	gpu.JSONTransform:       {},
	gpu.JSONTransformStrict: {strict: true, fails: true},
	gpu.JSONCast:            {strict: true, fails: true, unknown: true},
	gpu.JSONTryCast:         {strict: true},
}

// root appends the value of a document: an encoding if the type is nested, else a text. ok is false for null.
func (t transformer) root(out []byte, value string, typ gpu.Type) (_ []byte, ok bool, err error) {
	from := len(out)
	if typ.IsComposite() {
		out, err = t.nested(out, value, typ)
		return out, err == nil && out[from] != gpu.TagNull, err
	}
	if value == "null" {
		return out, false, nil
	}
	out, ok = t.leaf(out, value, typ)
	if !ok && t.fails {
		return out, false, t.unfit(value, typ)
	}
	return out, ok, nil
}

func (t transformer) unfit(value string, typ gpu.Type) error {
	return fmt.Errorf("the JSON %.60s is no %v", value, typ)
}

// nested appends the encoding of a value.
func (t transformer) nested(out []byte, value string, typ gpu.Type) (_ []byte, err error) {
	if value == "null" {
		return gpu.AppendNull(out), nil
	}
	from := len(out)
	ok := true
	switch c := typ.Children(); {
	case typ.Kind == gpu.List && value[0] == '[':
		out = gpu.OpenNested(out)
		for _, v := range children(value) {
			if out, err = t.nested(out, v, c[0].Type); err != nil {
				return out, err
			}
		}
		return gpu.CloseNested(out), nil
	case typ.Kind == gpu.Struct && value[0] == '{':
		return t.fields(out, value, c)
	case typ.Kind == gpu.Map && value[0] == '{':
		if out, err = t.entries(out, value, c); err == gpu.ErrTwice && !t.fails {
			return gpu.AppendNull(out[:from]), nil
		}
		return out, err
	case typ.Kind == gpu.Struct && !t.fails:
		return t.fields(out, "{}", c)
	case typ.IsComposite():
		ok = false
	case strings.IndexByte(value, '\\') < 0 && value[0] == '"' && typ.Kind == gpu.String:
		return gpu.AppendBytes(out, value[1:len(value)-1]), nil
	default:
		var text []byte
		if text, ok = t.leaf(nil, value, typ); ok {
			return gpu.AppendBytes(out, text), nil
		}
	}
	if t.fails {
		return out, t.unfit(value, typ)
	}
	return gpu.AppendNull(out[:from]), nil
}

func (t transformer) fields(out []byte, value string, c []gpu.Field) (_ []byte, err error) {
	values := make([]string, len(c))
	for key, v := range children(value) {
		name, k := TextOf(key), 0
		for k < len(c) && c[k].Name != name {
			k++
		}
		switch {
		case k == len(c):
			if t.fails && t.unknown {
				return out, fmt.Errorf("the JSON object %.60s has the member %q, which the STRUCT does not have", value,
					name)
			}
		case values[k] != "":
			if t.fails {
				return out, fmt.Errorf("the JSON object %.60s has the member %q twice", value, name)
			}
		default:
			values[k] = v
		}
	}
	out = gpu.OpenNested(out)
	for k, v := range values {
		if v == "" {
			if t.fails {
				return out, fmt.Errorf("the JSON object %.60s does not have the member %q of the STRUCT", value,
					c[k].Name)
			}
			v = "null"
		}
		if out, err = t.nested(out, v, c[k].Type); err != nil {
			return out, err
		}
	}
	return gpu.CloseNested(out), nil
}

func (t transformer) entries(out []byte, value string, c []gpu.Field) (_ []byte, err error) {
	seen := map[string]bool{}
	out = gpu.OpenNested(out)
	for key, v := range children(value) {
		name := TextOf(key)
		if seen[name] {
			return out, gpu.ErrTwice
		}
		seen[name] = true
		if out, err = t.nested(gpu.OpenNested(out), key, c[0].Type); err == nil {
			out, err = t.nested(out, v, c[1].Type)
		}
		if err != nil {
			return out, err
		}
		out = gpu.CloseNested(out)
	}
	return gpu.CloseNested(out), nil
}

// leaf appends the text of a value of a type that is not nested. A cast makes the value of it.
func (t transformer) leaf(out []byte, value string, typ gpu.Type) (_ []byte, ok bool) {
	b := value[0]
	switch {
	case typ.Kind == gpu.String || typ.Kind == gpu.Binary:
		if b == '"' {
			return AppendText(out, value), true
		}
		return AppendJSON(out, value), true
	case b == '"':
		from := len(out)
		out = AppendText(out, value)
		return out, !t.strict || isStrict(string(out[from:]), typ)
	case b == '{' || b == '[':
		return out, false
	case typ.Kind == gpu.Bool && (b == 't' || b == 'f'):
		return append(out, value...), true
	case typ.Kind == gpu.Bool:
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || !isReal(value) && isLarge(value) {
			return out, false
		}
		return strconv.AppendBool(out, v != 0), true
	case !typ.IsNumeric():
		return out, false
	case b == 't':
		return append(out, '1'), true
	case b == 'f':
		return append(out, '0'), true
	case value == "-0":
		return append(out, '0'), true
	case typ.IsInteger() && isReal(value):
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return out, false
		}
		return strconv.AppendFloat(out, math.RoundToEven(v)+0, 'f', 0, 64), true
	case typ.IsFloat() && isReal(value):
		if v, err := strconv.ParseFloat(value, 64); err != nil && math.IsInf(v, 0) {
			return strconv.AppendFloat(out, v, 'f', -1, 64), true
		}
	}
	return append(out, value...), true
}

// isStrict reports whether a string is a number or truth value in its usual form.
func isStrict(text string, typ gpu.Type) bool {
	switch {
	case typ.Kind == gpu.Bool:
		return text != "0" && text != "1"
	case typ.IsInteger():
		return !strings.ContainsAny(text, ".+_") && (!strings.ContainsAny(text, "eE") || strings.Contains(text, "x"))
	case typ.IsFloat():
		return text != "" && !isSpace(text[len(text)-1])
	}
	return true
}
