package job

import "reflect"

// JSONSchema describes job files for editors, as JSON Schema (draft 2020-12). Like the parser, it
// uses the struct tags of Job.
func JSONSchema() map[string]any {
	s := schemaOf(reflect.TypeFor[Job]())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "gstream job"
	return s
}

type object = map[string]any

func schemaOf(t reflect.Type) object {
	text := object{"type": "string"}
	switch t {
	case reflect.TypeFor[Path]():
		return text
	case reflect.TypeFor[Size]():
		return object{"type": []string{"string", "integer"}, "examples": []string{"512MiB", "8GiB"}}
	case reflect.TypeFor[Columns]():
		named := object{"type": "object", "additionalProperties": text}
		return object{"oneOf": []object{text, named, {"type": "boolean"},
			{"type": "array", "items": object{"oneOf": []object{text, named}}}}}
	case reflect.TypeFor[Schema]():
		return object{"oneOf": []object{{"type": "string", "enum": []string{"unify", "strict"}},
			{"type": "object", "additionalProperties": text}}}
	case reflect.TypeFor[ColumnTypes]():
		return object{"type": "object", "additionalProperties": text}
	case reflect.TypeFor[Partitions]():
		return object{"oneOf": []object{{"type": "string", "enum": []string{"auto", "none"}},
			{"type": "object", "additionalProperties": text}}}
	case reflect.TypeFor[Var]():
		return object{"oneOf": []object{{"type": []string{"string", "number", "boolean", "null"}}, structSchema(t)}}
	case reflect.TypeFor[Source]():
		return object{"oneOf": []object{schemaOf(reflect.TypeFor[Paths]()), structSchema(t)}}
	case reflect.TypeFor[Limit]():
		return object{"oneOf": []object{{"type": "integer", "minimum": 0}, structSchema(t)}}
	case reflect.TypeFor[Unnest]():
		return object{"oneOf": []object{text, structSchema(t)}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		return structSchema(t)
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		item := schemaOf(t.Elem())
		list := object{"type": "array", "items": item}
		if t.Elem().Kind() != reflect.String {
			return list
		}
		return object{"oneOf": []object{item, list}}
	case reflect.Bool:
		return scalarSchema("boolean")
	case reflect.Float64:
		return scalarSchema("number")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return scalarSchema("integer")
	}
	return text
}

// scalarSchema also accepts a string, which may be a variable.
func scalarSchema(kind string) object { return object{"type": []string{kind, "string"}} }

func structSchema(t reflect.Type) object {
	props := object{}
	var required []string
	for _, f := range structFields(t) {
		p := schemaOf(f.typ)
		if f.doc != "" {
			p["description"] = f.doc
		}
		if f.enum != nil {
			p["enum"] = f.enum
		}
		if f.def != "" {
			p["default"] = f.def
		}
		props[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	s := object{"type": "object", "properties": props, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	return s
}
