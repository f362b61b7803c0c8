package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// clocked is a device that has done one thing.
type clocked struct {
	gpu.Profiled
	id   string
	open time.Duration // ago
}

func (c clocked) Properties() gpu.Properties { return gpu.Properties{Name: "GPU", ID: c.id} }
func (c clocked) Known() gpu.Properties      { return c.Properties() }
func (c clocked) Clock() time.Duration       { return c.open }
func (c clocked) Spans(...*gpu.Lease) []gpu.Span {
	return []gpu.Span{{Lane: "kernels", Stage: "bench", Name: "work of " + c.id, Start: c.open - time.Second,
		End: c.open}}
}

func TestTimelineOfABenchmarkHasAllDevices(t *testing.T) {
	for _, c := range []struct {
		device gpu.Device
		lanes  []string
	}{
		{clocked{id: "cuda:0", open: 2 * time.Second}, []string{`"kernels"`}},
		{gpu.NewGroup([]gpu.Device{clocked{id: "cuda:0", open: 2 * time.Second}, clocked{id: "cuda:1",
			open: 3 * time.Second}}), []string{`"cuda:0 kernels"`, `"cuda:1 kernels"`}},
	} {
		var page strings.Builder
		require.NoError(t, benchTimeline(&page, c.device, []string{"gpus"}))
		for _, lane := range c.lanes {
			require.Contains(t, page.String(), lane)
		}
		for i := range c.lanes {
			require.Contains(t, page.String(), "work of cuda:"+string(rune('0'+i)))
		}
	}
}
