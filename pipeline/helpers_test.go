package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
)

// device is a host device whose budget must be empty at the end of the test.
func device(t *testing.T) gpu.Device {
	d, err := host.Open(host.Options{Threads: 2, Memory: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.Empty(t, d.Budget().Leaks())
		used, _ := d.Budget().Used()
		assert.Zero(t, used)
		assert.NoError(t, d.Close())
	})
	return d
}
