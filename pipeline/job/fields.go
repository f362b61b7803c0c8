package job

import (
	"reflect"
	"strings"
	"sync"
)

// field is one key of a structure of the job, as the struct tags describe it.
type field struct {
	name, doc, def string
	enum           []string
	required       bool
	sql            bool // expressions, in which variables are values
	index          []int
	typ            reflect.Type
}

type fieldList []field

// known caches the results of structFields.
var known sync.Map

// structFields lists the keys of a struct in order, including those of inlined structs. Fields
// without a yaml tag, or with "-", are not part of a job. The caller must not change the list.
func structFields(t reflect.Type) fieldList {
	if list, ok := known.Load(t); ok {
		return list.(fieldList)
	}
	var out fieldList
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("yaml")
		name, opts, _ := strings.Cut(tag, ",")
		switch {
		case !ok || name == "-":
			continue
		case strings.Contains(opts, "inline"):
			for _, in := range structFields(f.Type) {
				in.index = append([]int{i}, in.index...)
				out = append(out, in)
			}
			continue
		}
		fd := field{name: name, doc: f.Tag.Get("doc"), def: f.Tag.Get("default"),
			required: f.Tag.Get("required") == "true", sql: f.Tag.Get("sql") == "true", index: []int{i}, typ: f.Type}
		if enum := f.Tag.Get("enum"); enum != "" {
			fd.enum = strings.Split(enum, ",")
		}
		out = append(out, fd)
	}
	known.Store(t, out)
	return out
}

func (fs fieldList) find(name string) (field, bool) {
	for _, f := range fs {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

func (fs fieldList) names() []string {
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = f.name
	}
	return out
}
