package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/jsontext"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// JSON is a String with the annotation gpu.JSON: a text that was checked, or that a function made.

// isJSON reports whether the values are JSON.
func (e *Expr) isJSON() bool { return e.annotation == gpu.JSON && e.typ.Kind == gpu.String }

// asJSON marks an expression as JSON.
func asJSON(e *Expr, err error) (*Expr, error) {
	if err != nil {
		return nil, err
	}
	out := *typed(e)
	out.annotation = gpu.JSON
	return &out, nil
}

func jsonFunctions() []function {
	const json, paths = "JSON", "; a list of those for a list of paths, or a path with wildcards"
	path := func(fn gpu.JSONFunc, aliases, args, result, about, nulls, examples string) function {
		return function{name: nameOfJSON(fn), aliases: aliases, args: args, result: result, about: about,
			nulls: nulls, examples: examples, bind: bindJSONPath(fn)}
	}
	return []function{
		path(gpu.JSONExtract, "json_extract_path", "json, path", json+paths,
			"The value at a path, without white space. A path is the name of a member; the position of an element, "+
				"from 0, or from the end if it is negative; $.a[0].\"b c\", in which * and [*] are all members and "+
				"elements, and .. is any way down; or a JSON pointer as /a/0. Only a constant path has wildcards. "+
				"Also json -> path.",
			"also if there is none",
			"json_extract('{\"a\": [1, 2.50]}', '$.a[1]') → 2.5\n'{\"a\": {\"b\": \"x\"}}' -> 'a' -> 'b' → \"x\"\n"+
				"'[5, 6]' -> -1 → 6\n'[{\"a\": 1}, {\"a\": 2}]' -> '$[*].a' → [1, 2]\n"+
				"json_extract('{\"a\": 1}', ['a', '/b']) → [1, NULL]"),
		path(gpu.JSONText, "json_extract_path_text", "json, path", varchar+paths,
			"The value at a path as json_extract, but the text of a string. Also json ->> path.",
			"also if there is none, or it is null",
			"json_extract_string('{\"a\": \"x\"}', 'a') → x\n'{\"a\": [1, null]}' ->> '$.a[1]' → NULL\n"+
				"'{\"a\": \"x\"}' ->> 'a' = 'x' → true"),
		path(gpu.JSONScalar, "", "json, path", varchar+paths,
			"The value at a path as json_extract, unless it is an object or an array.",
			"also if there is none, or it is null, an object or an array",
			"json_value('{\"a\": \"x\", \"b\": []}', 'a') → \"x\""),
		path(gpu.JSONExists, "", "json, path", boolean+paths, "Whether there is a value at a path.", "",
			"json_exists('{\"a\": null}', 'a') → true"),
		path(gpu.JSONType, "", "json[, path]", varchar+paths,
			"The type of a value: OBJECT, ARRAY, VARCHAR, BOOLEAN, UBIGINT, BIGINT, DOUBLE or NULL.",
			"also without a value", "json_type('[1]') → ARRAY\njson_type('{\"a\": -1}', 'a') → BIGINT"),
		path(gpu.JSONLength, "", "json[, path]", "UBIGINT"+paths,
			"The number of elements of an array, 0 for other values.", "also without a value",
			"json_array_length('[1, 2]') → 2"),
		path(gpu.JSONKeys, "", "json[, path]", "VARCHAR[]"+paths, "The names of the members of an object.",
			"also without a value", "json_keys('{\"a\": 1, \"b\": 2}') → [a, b]"),
		{name: nameOfJSON(gpu.JSONValid), args: "json", bind: bindJSONText(gpu.JSONValid, truth), result: boolean,
			about: "Whether a text is JSON.", examples: "json_valid('[1, 2]') → true\njson_valid('[1') → false"},
		{name: nameOfJSON(gpu.JSONContains), args: "json, part", bind: bindJSONText(gpu.JSONContains, truth),
			result: boolean, about: "Whether the value, or one in it, is a second one, or has all of its members and " +
				"elements.",
			examples: "json_contains('{\"a\": [1, 2]}', '{\"a\": [2]}') → true\njson_contains('[1]', '\"1\"') → false"},
		{name: "json", args: "json", bind: bindMinified, result: json, about: "The value without white space.",
			examples: "json('{\"a\" : [1]}') → {\"a\":[1]}"},
		{name: nameOfJSON(gpu.JSONPretty), args: "json", bind: bindJSONText(gpu.JSONPretty, text), result: varchar,
			about: "The value with a line for each member and element.", examples: "json_pretty('[]') → []"},
		{name: nameOfJSON(gpu.JSONStructure), args: "json", bind: bindJSONText(gpu.JSONStructure, text),
			result: json, about: "The types of the values, in the form that json_transform takes.",
			examples: "json_structure('{\"a\": [1, -2.5]}') → {\"a\":[\"DOUBLE\"]}"},
		{name: "json_merge_patch", args: "json, patch, …", bind: bindMergePatch, result: json,
			about:    "A document with the members of others, of which a null removes a member (RFC 7396).",
			nulls:    "if the last one is; others that are null do nothing",
			examples: "json_merge_patch('{\"a\": 1, \"b\": 2}', '{\"b\": null, \"c\": 3}') → {\"a\":1,\"c\":3}"},
		{name: nameOfJSON(gpu.JSONTransform), aliases: "from_json", args: "json, structure",
			bind: bindTransformJSON(gpu.JSONTransform), result: "the structure",
			about: "The value as a type, which a constant describes: {\"name\": type, …} is a STRUCT, [type] is a " +
				"LIST, and \"DATE\" is a DATE. What does not fit is null.",
			nulls: "also what does not fit",
			examples: "json_transform('{\"a\": \"5\", \"b\": [1, \"x\"]}', '{\"a\": \"INTEGER\", \"b\": " +
				"[\"INTEGER\"]}') → {'a': 5, 'b': [1, NULL]}"},
		{name: nameOfJSON(gpu.JSONTransformStrict), aliases: "from_json_strict", args: "json, structure",
			bind: bindTransformJSON(gpu.JSONTransformStrict), result: "the structure",
			about:    "json_transform that fails where a value does not fit.",
			examples: "json_transform_strict('[1, 2]', '[\"INTEGER\"]') → [1, 2]"},
		{name: "json_object", args: "…", bind: bindJSONObject, result: json, nulls: "never",
			about:    "An object of names and values in turn.",
			examples: "json_object('a', 1, 'b', [true, NULL]) → {\"a\":1,\"b\":[true,null]}"},
		{name: "json_array", args: "…", bind: bindJSONArray, result: json, nulls: "never", about: "An array of values.",
			examples: "json_array(1, 'x', NULL) → [1,\"x\",null]"},
		{name: "to_json", aliases: "array_to_json row_to_json json_quote", args: "x", bind: bindToJSON, result: json,
			about: "The value as JSON: structs and maps as objects; dates, times and BLOBs as texts; numbers as " +
				"their text, decimals as DOUBLEs.",
			examples: "to_json({'a': [1, NULL], 'b': 'x'}) → {\"a\":[1,null],\"b\":\"x\"}\n" +
				"to_json(MAP {1: true}) → {\"1\":true}"},
	}
}

// jsonArgument returns an argument that is a text of JSON. Other values become JSON.
func (b *binder) jsonArgument(n *syntax.Call, i int, x *Expr) (*Expr, error) {
	switch {
	case x.literal == nullLiteral:
		return newConstant(gpu.Null(text)), nil
	case x.typ.IsNested():
		return b.toJSON(n.Args[i], x)
	case x.typ.Kind != gpu.String:
		return nil, b.errorf(n.Args[i], "%s needs JSON, which is text (VARCHAR), found %v; to_json(x) makes it", n.Name,
			x.typ)
	}
	return x, nil
}

// json binds a function of JSON.
func (b *binder) json(n syntax.Node, fn gpu.JSONFunc, value gpu.Scalar, t gpu.Type, args ...*Expr) (*Expr, error) {
	e := Expr{op: gpu.OpJSON, n: int(fn), typ: t, value: value, rng: typeRange(t)}
	e.fails = fn != gpu.JSONValid && fn != gpu.JSONTryCheck && fn != gpu.JSONTryCast
	for _, x := range args {
		e.nullable = e.nullable || x.nullable
	}
	switch fn {
	case gpu.JSONValid, gpu.JSONCheck, gpu.JSONContains, gpu.JSONMerge, gpu.JSONExists:
	default:
		e.nullable = true
	}
	out, err := b.op(n, e, args...)
	if err == nil && (fn == gpu.JSONExtract && t.Kind == gpu.String || fn == gpu.JSONMerge || fn == gpu.JSONStructure ||
		fn == gpu.JSONCheck || fn == gpu.JSONTryCheck) {
		return asJSON(out, nil)
	}
	return out, err
}

// bindJSONText binds a function of documents.
func bindJSONText(fn gpu.JSONFunc, t gpu.Type) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		for i, x := range a {
			var err error
			if a[i], err = b.jsonArgument(n, i, x); err != nil {
				return nil, err
			}
		}
		return b.json(n, fn, gpu.Scalar{}, t, a...)
	}
}

func bindMinified(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.jsonArgument(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	return b.minified(n, x)
}

// minified returns JSON without white space.
func (b *binder) minified(n syntax.Node, x *Expr) (*Expr, error) {
	return b.json(n, gpu.JSONExtract, gpu.StringScalar("$"), text, x)
}

// jsonTypes are the types of the functions with a path. Others have texts.
var jsonTypes = map[gpu.JSONFunc]gpu.Type{gpu.JSONExists: truth, gpu.JSONLength: gpu.Of(gpu.Uint64),
	gpu.JSONKeys: gpu.ListOf(text)}

// bindJSONPath binds a function of the value at a path.
func bindJSONPath(fn gpu.JSONFunc) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.jsonArgument(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		if len(a) == 1 {
			return b.jsonPath(n, n, fn, x, nil)
		}
		list, ok := n.Args[1].(*syntax.Call)
		if !ok || list.Name != "list_value" {
			return b.jsonPath(n, n.Args[1], fn, x, a[1])
		}
		values := make([]*Expr, len(list.Args))
		for i, node := range list.Args {
			path, err := b.bind(node)
			if err != nil {
				return nil, err
			}
			if v, ok := path.Constant(); !ok || !v.Valid || path.typ.Kind != gpu.String {
				return nil, b.errorf(node, "a path in a list is a constant text")
			}
			if values[i], err = b.jsonPath(n, node, fn, x, path); err != nil {
				return nil, err
			}
			if p, err := jsontext.ParsePath(path.value.Str); err == nil && p.Many() {
				return nil, b.errorf(node, "a path in a list of paths cannot have wildcards")
			}
		}
		t, ok := jsonTypes[fn]
		if !ok {
			t = text
		}
		out, err := b.assemble(n, gpu.ListOf(t), values)
		if err != nil || !x.nullable {
			return out, err
		}
		return b.expand(n, "CASE WHEN _1 IS NOT NULL THEN _2 END", x, out)
	}
}

// jsonPath binds a function of the value at one path, whose node is at.
func (b *binder) jsonPath(n, at syntax.Node, fn gpu.JSONFunc, x, path *Expr) (*Expr, error) {
	t, ok := jsonTypes[fn]
	if !ok {
		t = text
	}
	if path == nil {
		return b.json(n, fn, gpu.StringScalar("$"), t, x)
	}
	if path.literal == nullLiteral {
		path = newConstant(gpu.Null(text))
	}
	v, constant := path.Constant()
	switch {
	case constant && !v.Valid:
		return asJSONIf(fn, newConstant(gpu.Null(t)))
	case path.typ.IsInteger() && fn != gpu.JSONExtract && fn != gpu.JSONText && fn != gpu.JSONScalar:
		return nil, b.errorf(at, "the path is a text here, as in '$[0]'")
	case path.typ.IsInteger() && constant:
		v = gpu.StringScalar(jsontext.IndexPath(v.Int.Int64()))
	case path.typ.IsInteger():
		var err error
		if path, err = b.expand(at, "'$[' || CAST(_1 AS BIGINT) || ']'", path); err != nil {
			return nil, err
		}
	case path.typ.Kind == gpu.Bool:
		return nil, b.errorf(at, "a path is a text or an integer, found BOOLEAN: all that follows -> is its right "+
			"side, so write parentheses, as in (d -> 'a') = '\"x\"', or d ->> 'a' = 'x'")
	case path.typ.Kind != gpu.String:
		return nil, b.errorf(at, "a path is a text, an integer, or a list of constant texts, found %v", path.typ)
	}
	if !constant {
		return b.json(n, fn, gpu.Scalar{}, t, x, path)
	}
	p, err := jsontext.ParsePath(v.Str)
	if err != nil {
		return nil, b.errorf(at, "%v", err)
	}
	if p.Many() {
		t = gpu.ListOf(t)
	}
	return b.json(n, fn, gpu.StringScalar(v.Str), t, x)
}

// asJSONIf marks the result of a function that returns JSON.
func asJSONIf(fn gpu.JSONFunc, e *Expr) (*Expr, error) {
	if fn == gpu.JSONExtract {
		return asJSON(e, nil)
	}
	return e, nil
}

// bindArrow binds json -> path and json ->> path.
func bindArrow(fn gpu.JSONFunc) func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Binary, x, y *Expr) (*Expr, error) {
		call := &syntax.Call{Base: n.Base, Name: nameOfJSON(fn), Args: []syntax.Node{n.L, n.R}}
		return bindJSONPath(fn)(b, call, []*Expr{x, y})
	}
}

// nameOfJSON returns the name of a function.
func nameOfJSON(fn gpu.JSONFunc) string { return gpu.OpJSON.Info().Name(int(fn)) }

func bindMergePatch(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	out, err := b.jsonArgument(n, 0, a[0])
	for i := 1; err == nil && i < len(a); i++ {
		var patch *Expr
		if patch, err = b.jsonArgument(n, i, a[i]); err != nil {
			break
		}
		merged := out
		if merged, err = b.json(n, gpu.JSONMerge, gpu.Scalar{}, text, out, patch); err == nil {
			if patch, err = b.minified(n, patch); err == nil {
				out, err = b.expand(n, "CASE WHEN _1 IS NULL THEN _3 ELSE _2 END", out, merged, patch)
			}
		}
	}
	return asJSON(out, err)
}

// toJSON returns a value as JSON. A text is one that is checked.
func (b *binder) toJSON(n syntax.Node, x *Expr) (*Expr, error) {
	switch {
	case x.literal == nullLiteral:
		return asJSON(newConstant(gpu.Null(text)), nil)
	case x.isJSON():
		return typed(x), nil
	case x.typ.Kind == gpu.String:
		return b.json(n, gpu.JSONCheck, gpu.Scalar{}, text, typed(x))
	}
	return bindToJSON(b, &syntax.Call{Base: syntax.At(n, n), Name: "to_json", Args: []syntax.Node{n}}, []*Expr{x})
}

// castToJSON binds CAST(x AS JSON).
func (b *binder) castToJSON(n *syntax.Cast, x *Expr) (*Expr, error) {
	if n.Try && x.typ.Kind == gpu.String && !x.isJSON() && x.literal != nullLiteral {
		return b.json(n, gpu.JSONTryCheck, gpu.Scalar{}, text, typed(x))
	}
	return b.toJSON(n.X, x)
}

// allJSON turns values into JSON if one of them is. It reports whether it did.
func (b *binder) allJSON(nodes []syntax.Node, values []*Expr) (bool, error) {
	some := false
	for _, v := range values {
		some = some || v.isJSON()
	}
	for i := 0; some && i < len(values); i++ {
		var err error
		if values[i], err = b.toJSON(nodes[i], values[i]); err != nil {
			return false, err
		}
	}
	return some, nil
}

// comparedJSON returns the operands of a comparison one of which is JSON: both as JSON if the other one is text, else
// both in the type of the other one.
func (b *binder) comparedJSON(nx syntax.Node, x *Expr, ny syntax.Node, y *Expr) (*Expr, *Expr, error) {
	if y.isJSON() && !x.isJSON() {
		y, x, err := b.comparedJSON(ny, y, nx, x)
		return x, y, err
	}
	if !x.isJSON() || y.isJSON() || y.literal == nullLiteral || y.literal == errorLiteral {
		return x, y, nil
	}
	if y.typ.Kind != gpu.String && !y.typ.IsNested() {
		x, err := b.convert(nx, x, readAs(y.typ), false)
		return x, y, err
	}
	checked, err := b.toJSON(ny, y)
	if err != nil && y.literal == stringLiteral {
		err = b.errorf(ny, "a text that is compared with JSON is JSON too: write '\"%s\"' with its quotes, or take "+
			"the text with ->>", strings.ReplaceAll(syntax.Cut(y.value.Str, 60), "'", "''"))
	}
	return x, checked, err
}

// castJSON casts JSON to another type than text.
func castJSON(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	fn := gpu.JSONCast
	if try {
		fn = gpu.JSONTryCast
	}
	return transformJSON(fold, x, t, fn)
}

func transformJSON(fold Fold, x *Expr, t gpu.Type, fn gpu.JSONFunc) (*Expr, error) {
	c := newNestedCast(fold, fn == gpu.JSONTransform || fn == gpu.JSONTryCast)
	texts, err := c.json(c.at, fn, gpu.Null(t), t.OfTexts(), x)
	if err != nil {
		return nil, c.plain(err)
	}
	return c.ofTexts(texts, t)
}

// parseNested casts a text to a nested type.
func parseNested(fold Fold, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	c := newNestedCast(fold, try)
	e := Expr{op: gpu.OpParseNested, typ: t.OfTexts(), value: gpu.Null(t), nullable: x.nullable || try, fails: !try}
	if try {
		e.n = 1
	}
	texts, err := c.op(c.at, e, typed(x))
	if err != nil {
		return nil, c.plain(err)
	}
	return c.ofTexts(texts, t)
}

// ofTexts casts a value with texts in it to a type.
func (c nestedCast) ofTexts(x *Expr, t gpu.Type) (*Expr, error) {
	if x.typ == t {
		return x, nil
	}
	if !t.IsComposite() {
		out, err := newCast(c.scope.Fold, x, stored(t, x), c.try)
		if err != nil && castable(x.typ, t) {
			return lazyCast(x, stored(t, x)), nil
		}
		return out, err
	}
	if v, ok := x.Constant(); ok && !v.Valid {
		return newConstant(gpu.Null(t)), nil
	}
	c.texts = true
	out, err := c.cast(x, t)
	return out, c.plain(err)
}

// plain returns an error without its position.
func (c nestedCast) plain(err error) error {
	if inner := (*syntax.Error)(nil); errors.As(err, &inner) {
		return errors.New(inner.Msg)
	}
	return err
}

// bindTransformJSON binds json_transform(json, structure).
func bindTransformJSON(fn gpu.JSONFunc) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.jsonArgument(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		v, ok := a[1].Constant()
		switch {
		case a[1].literal == nullLiteral || ok && !v.Valid:
			return nullOfAnyType(), nil
		case !ok || v.Type.Kind != gpu.String:
			return nil, b.errorf(n.Args[1], "the structure is constant JSON, such as '{\"a\": \"INTEGER\"}'")
		}
		var f jsontext.Finder
		value, _, err := f.Find(v.Str, &jsontext.Path{})
		if err == nil {
			var t gpu.Type
			if t, err = typeOfStructure(value); err == nil {
				out, err := transformJSON(b.scope.Fold, x, t, fn)
				if err != nil {
					err = b.errorf(n, "%v", err)
				}
				return out, err
			}
		}
		return nil, b.errorf(n.Args[1], "the structure: %v", err)
	}
}

// typeOfStructure returns the type that a structure describes.
func typeOfStructure(value string) (gpu.Type, error) {
	var fields []gpu.Field
	for key, v := range jsontext.Children(value) {
		t, err := typeOfStructure(v)
		if err != nil {
			return t, err
		}
		f := gpu.Field{Type: t}
		if key != "" {
			f.Name = jsontext.TextOf(key)
		}
		for _, other := range fields {
			if key != "" && strings.EqualFold(other.Name, f.Name) {
				return t, fmt.Errorf("it has the member %q twice", f.Name)
			}
		}
		fields = append(fields, f)
	}
	switch {
	case value[0] == '{' && len(fields) > 0:
		return checkDepth(gpu.StructOf(fields...))
	case value[0] == '[' && len(fields) == 1:
		return checkDepth(gpu.ListOf(fields[0].Type))
	case value[0] == '"':
		t, err := syntax.ParseType(jsontext.TextOf(value))
		if inner := (*syntax.Error)(nil); errors.As(err, &inner) {
			err = errors.New(inner.Msg)
		}
		return t, err
	}
	return gpu.Type{}, fmt.Errorf("%s is no type: an object has a member for each field, an array has one type, and "+
		"another type is a text", syntax.Cut(value, 60))
}

func checkDepth(t gpu.Type) (gpu.Type, error) {
	if t.Depth() > gpu.MaxNesting {
		return t, fmt.Errorf("the type is nested more than %d levels deep", gpu.MaxNesting)
	}
	return t, nil
}

func bindJSONObject(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if len(a)%2 != 0 {
		return nil, b.errorf(n, "json_object takes names and values in turn, found %d arguments", len(a))
	}
	parts := make([]*Expr, 0, len(a)/2)
	for i := 0; i < len(a); i += 2 {
		if a[i].literal == nullLiteral || a[i].typ.Kind != gpu.String {
			return nil, b.errorf(n.Args[i], "a name of json_object is a text, found %s", n.Args[i])
		}
		name, err := b.required(n.Args[i], typed(a[i]), "a name of json_object is NULL")
		if err == nil {
			name, err = b.expand(n, jsonQuoted, name)
		}
		if err != nil {
			return nil, err
		}
		value, err := b.jsonOrNull(n, a[i+1])
		if err == nil {
			value, err = b.expand(n, "_1 || ':' || _2", name, value)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, value)
	}
	return b.bracketed(n, "{}", parts)
}

func bindJSONArray(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	for i := range a {
		var err error
		if a[i], err = b.jsonOrNull(n, a[i]); err != nil {
			return nil, err
		}
	}
	return b.bracketed(n, "[]", a)
}

// jsonOrNull returns a value as JSON text, null for a null.
func (b *binder) jsonOrNull(n *syntax.Call, x *Expr) (*Expr, error) {
	if x.literal == nullLiteral {
		return newConstant(gpu.StringScalar("null")), nil
	}
	return b.jsonOf(n, typed(x))
}

// bracketed joins parts with commas between brackets.
func (b *binder) bracketed(n syntax.Node, brackets string, parts []*Expr) (*Expr, error) {
	all := []*Expr{newConstant(gpu.StringScalar(brackets[:1]))}
	for i, p := range parts {
		if i > 0 {
			all = append(all, newConstant(gpu.StringScalar(",")))
		}
		all = append(all, p)
	}
	all = append(all, newConstant(gpu.StringScalar(brackets[1:])))
	return asJSON(b.op(n, Expr{op: gpu.OpConcat, typ: text}, all...))
}

// required returns a value, or fails where it is null.
func (b *binder) required(n syntax.Node, x *Expr, message string) (*Expr, error) {
	if !x.nullable {
		return x, nil
	}
	there, err := b.isNull(n, x, true)
	if err != nil {
		return nil, err
	}
	return b.require(n, there, x, message)
}

// writeJSON writes a call of a function of JSON.
func (e *Expr) writeJSON(b *strings.Builder, limit int) {
	switch fn := gpu.JSONFunc(e.n); fn {
	case gpu.JSONCast, gpu.JSONTryCast, gpu.JSONCheck, gpu.JSONTryCheck:
		if fn == gpu.JSONTryCast || fn == gpu.JSONTryCheck {
			b.WriteString("TRY_")
		}
		b.WriteString("CAST(")
		e.args[0].write(b, limit)
		if fn == gpu.JSONCheck || fn == gpu.JSONTryCheck {
			b.WriteString(" AS JSON)")
		} else {
			b.WriteString(" AS " + e.value.Type.String() + ")")
		}
		return
	}
	b.WriteString(e.op.Info().Name(e.n) + "(")
	e.args[0].write(b, limit)
	switch {
	case len(e.args) > 1:
		b.WriteString(", ")
		e.args[1].write(b, limit)
	case e.value.Valid:
		b.WriteString(", ")
		e.writeConstant(b, e.value)
	case e.value.Type.Kind != gpu.Invalid:
		b.WriteString(", " + syntax.Quote(`"`+e.value.Type.String()+`"`))
	}
	b.WriteByte(')')
}
