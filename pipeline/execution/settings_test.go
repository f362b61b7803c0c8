package execution_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/job"
)

// TestSettingsAreFieldsOfOptions finds the field of each setting that an error may name.
func TestSettingsAreFieldsOfOptions(t *testing.T) {
	options := map[string]reflect.Type{"RunOptions": reflect.TypeFor[execution.Options](),
		"LoadOptions": reflect.TypeFor[job.LoadOptions]()}
	for s := gpu.DeviceMemory; s <= gpu.Variables; s++ {
		of, name, _ := strings.Cut(s.String(), ".")
		require.Contains(t, options, of, "setting %d", s)
		name, _, _ = strings.Cut(name, ":")
		_, ok := options[of].FieldByName(name)
		require.True(t, ok, "%v", s)
	}
	require.Equal(t, `RunOptions.Use: "host"`, gpu.UseHost.String())
	require.Equal(t, "LoadOptions.Set: day=VALUE", gpu.Variables.To("day=VALUE"))
}
