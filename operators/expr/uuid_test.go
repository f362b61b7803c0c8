package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
)

var uuidScope = &expr.Scope{Schema: gpu.NewSchema(
	gpu.Field{Name: "u", Type: gpu.Of(gpu.Binary), Annotation: gpu.UUID, Nullable: true},
	gpu.Field{Name: "v", Type: gpu.Of(gpu.Binary), Annotation: gpu.UUID, Nullable: true},
	gpu.Field{Name: "b", Type: gpu.Of(gpu.Binary)},
	gpu.Field{Name: "s", Type: gpu.Of(gpu.String)},
	gpu.Field{Name: "j", Type: gpu.Of(gpu.String), Annotation: gpu.JSON},
)}

func TestTextBesideAUUIDIsOne(t *testing.T) {
	const id, bytes = "53696465-7761-7973-2074-6f2074686520", `'Sideways to the '::BLOB`
	for src, same := range map[string]string{
		"u = '" + id + "'":  "u = " + bytes,
		"'" + id + "' <> u": "u <> " + bytes,
		"u is not distinct from '{53696465776179732074-6f2074686520}'":    "u is not distinct from " + bytes,
		"u between '" + id + "' and v":                                    "u between " + bytes + " and v",
		"u in ('" + id + "', v)":                                          "u in (" + bytes + ", v)",
		"u not in ('" + id + "', '53696465-7761-7973-2074-6F2074686520')": "u not in (" + bytes + ", " + bytes + ")",
		"'" + id + "' in (v, u)":                                          bytes + " in (v, u)",
		"coalesce(u, '" + id + "')":                                       "coalesce(u, " + bytes + ")",
		"case when s = '' then u else '" + id + "' end": "case when s = '' then u else " + bytes +
			" end",
	} {
		got, err := bind(src, uuidScope)
		require.NoError(t, err, src)
		want, err := bind(same, uuidScope)
		require.NoError(t, err, same)
		require.Equal(t, want.String(), got.String(), src)
		require.Equal(t, gpu.NoAnnotation, got.Annotation())
	}
	for src, want := range map[string]string{
		"u = 'abc'":                    "'abc' is not a UUID",
		"u in ('" + id + "', '')":      "'' is not a UUID",
		"s = '' or u = '" + id + "0'":  "is not a UUID",
		"u = s":                        "cannot compare BLOB with VARCHAR",
		"u::varchar":                   "a UUID cannot be cast to VARCHAR",
		"try_cast(u as varchar) = 'x'": "a UUID cannot be cast to VARCHAR",
		"'" + id + "'::uuid":           "there is no cast to UUID",
	} {
		_, err := bind(src, uuidScope)
		require.ErrorContains(t, err, want, src)
	}
}

func TestAnnotationsAreOfBareColumns(t *testing.T) {
	for src, want := range map[string]gpu.Annotation{
		"u": gpu.UUID, "j": gpu.JSON, "b": gpu.NoAnnotation, "u::blob": gpu.NoAnnotation,
		"j::varchar": gpu.NoAnnotation, "j || ''": gpu.NoAnnotation,
	} {
		e, err := bind(src, uuidScope)
		require.NoError(t, err, src)
		require.Equal(t, want, e.Annotation(), src)
	}
	e, err := bind("u::blob::varchar", uuidScope)
	require.NoError(t, err)
	require.Equal(t, gpu.Of(gpu.String), e.Type())
}
