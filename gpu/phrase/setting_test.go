package phrase

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsAreNamedAsTheCallerSetsThem(t *testing.T) {
	text := "raise --device-memory or --host-memory, or run with --device host"
	require.Equal(t, `raise RunOptions.DeviceMemory or RunOptions.HostMemory, or run with RunOptions.Use: "host"`,
		Setting(text))
	UseFlags()
	defer flags.Store(false)
	require.Equal(t, text, Setting(text))
}
