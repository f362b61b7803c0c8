package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gstream/gstream/pipeline"
)

func TestKeysOfJSONAreSnakeCase(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.PkgPath() == "time" {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "-" || !f.IsExported() {
				continue
			}
			if !f.Anonymous || key != "" {
				assert.Regexp(t, snake, key, "%v.%s", typ, f.Name)
			}
			visit(f.Type)
		}
	}
	for _, root := range []any{deviceList{}, benchReport{}, fileInfo{}, pipeline.Report{}, pipeline.Explanation{},
		pipeline.Check{}} {
		visit(reflect.TypeOf(root))
	}
	assert.Greater(t, len(seen), 12)
}
