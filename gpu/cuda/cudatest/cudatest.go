// Package cudatest opens CUDA devices for tests: the machine's GPU, or the emulator if
// there is none.
package cudatest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/emulator"
	"github.com/gstream/gstream/gpu/gputest"
)

// Library returns the driver's library to test with: "" if there is a GPU, else the
// emulator. It skips the test on a machine with neither a GPU nor a C++ compiler.
// GSTREAM_EMULATOR=1 in the environment always takes the emulator. Under the race detector, which does not see
// kernels and makes tests slow, only this one does: other tests skip.
func Library(t testing.TB) string {
	t.Helper()
	if gputest.Race && os.Getenv("GSTREAM_EMULATOR") == "" {
		t.Skip("kernels are not emulated under the race detector, unless GSTREAM_EMULATOR=1")
	}
	if n, err := cuda.Count(""); err == nil && n > 0 && os.Getenv("GSTREAM_EMULATOR") == "" {
		return ""
	}
	return emulator.Build(t)
}

// Open opens a device and closes it at the end of the test.
func Open(t *testing.T, opt cuda.Options) *cuda.Device {
	t.Helper()
	opt.Library = Library(t)
	if opt.HostMemory == 0 {
		opt.HostMemory = 1 << 30
	}
	d, err := cuda.Open(opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}
