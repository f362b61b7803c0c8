package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// TestSettingsAreCalledAsWhoeverTalksCallsThem names settings in a text, and in the error of a budget, which
// is worded when it is read.
func TestSettingsAreCalledAsWhoeverTalksCallsThem(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	l := b.Lease("sort")
	err := l.Reserve(2000)
	defer func() { require.NoError(t, l.Close()) }()
	text := func() string { return fmt.Sprintf("lower %v, or use %s", gpu.DeviceMemory, gpu.Variables.To("a=1")) }
	require.Equal(t, "lower DeviceMemory, or use Variables: a=1", text())
	require.ErrorContains(t, err, "raise it with HostMemory")
	gpu.NameSettings(func(s gpu.Setting, value string) string {
		switch s {
		case gpu.DeviceMemory:
			return "--device-memory"
		case gpu.HostMemory:
			return "--host-memory"
		}
		return "--set " + value
	})
	defer gpu.NameSettings(nil)
	require.Equal(t, "lower --device-memory, or use --set a=1", text())
	require.ErrorContains(t, err, "raise it with --host-memory")
	var refused *gpu.BudgetError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, gpu.HostMemory, refused.Setting)
}
