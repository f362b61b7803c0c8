package parquet

import (
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

type schemaNode = format.SchemaElement

// node returns a schemaNode with children, whose elements follow it.
func node(name string, children int, options ...func(*schemaNode)) schemaNode {
	e := schemaNode{Name: name}
	if children > 0 {
		e.NumChildren = thrift.New(int32(children))
	}
	for _, o := range options {
		o(&e)
	}
	return e
}

func physical(t format.Type) func(*schemaNode) { return func(e *schemaNode) { e.Type = thrift.New(t) } }
func repeated(e *schemaNode)                   { e.RepetitionType = thrift.New(format.Repeated) }
func converted(c deprecated.ConvertedType) func(*schemaNode) {
	return func(e *schemaNode) { e.ConvertedType = thrift.New(c) }
}
func logical(l format.LogicalTypeValue) func(*schemaNode) {
	return func(e *schemaNode) { e.LogicalType.Value = l }
}

func TestTypesOfColumnsAreNamedAsInDuckDB(t *testing.T) {
	integer, text := physical(format.Int32), []func(*schemaNode){physical(format.ByteArray), converted(deprecated.UTF8)}
	deep := []schemaNode{}
	for range 60 {
		deep = append(deep, node("a_long_name", 1))
	}
	for want, elements := range map[string][]schemaNode{
		"INTERVAL": {node("x", 0, physical(format.FixedLenByteArray), converted(deprecated.Interval))},
		"INTEGER[]": {
			node("x", 1, logical(new(format.ListType))), node("list", 1, repeated), node("element", 0, integer)},
		"VARCHAR[]": {node("x", 1, converted(deprecated.List)), node("array", 0, append(text, repeated)...)},
		"INTEGER[][]": {node("x", 1, converted(deprecated.List)), node("list", 1, repeated),
			node("element", 1, converted(deprecated.List)), node("list", 1, repeated), node("element", 0, integer)},
		"STRUCT(a INTEGER, b VARCHAR)[]": {
			node("x", 1, converted(deprecated.List)), node("array", 2, repeated), node("a", 0, integer),
			node("b", 0, text...)},
		"INTEGER[] ": {node("x", 0, integer, repeated)},
		"MAP(VARCHAR, STRUCT(a INTEGER))": {
			node("x", 1, logical(new(format.MapType))), node("key_value", 2, repeated), node("key", 0, text...),
			node("value", 1), node("a", 0, integer)},
		"STRUCT(variant VARIANT)": {node("x", 1),
			node("variant", 0, physical(format.ByteArray), logical(new(format.VariantType)))},
		strings.Repeat("STRUCT(a_long_name ", 6): append(deep,
			node("leaf", 0, physical(format.ByteArray), logical(new(format.VariantType)))),
	} {
		root := []schemaNode{node("schema", 1)}
		columns, refused, _, err := readSchema(append(root, elements...))
		require.NoError(t, err, want)
		if len(refused) == 0 {
			require.Equal(t, strings.TrimSpace(want), columns[0].field.Type.String())
			continue
		}
		require.Len(t, refused, 1, want)
		require.Equal(t, "x", strings.Replace(refused[0].Name, "a_long_name", "x", 1))
		if got, cut := strings.CutSuffix(refused[0].Type, "…"); cut {
			require.Len(t, got, maxTypeName)
			require.True(t, strings.HasPrefix(want, got[:80]) || strings.HasPrefix(got, want[:80]), got)
			continue
		}
		require.Equal(t, strings.TrimSpace(want), refused[0].Type)
	}
}
