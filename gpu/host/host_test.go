package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

func TestConformance(t *testing.T) {
	all := []int{1, 3}
	gputest.Thin = gputest.ThinOr(t, 121)
	if gputest.Thin > 7 {
		all = all[1:] // the checks of a commit also run one thread, with more cases
	}
	for _, threads := range all {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			open := func(threads int) gputest.Open {
				return func(t *testing.T, memory int64) gpu.Device {
					d, err := Open(Options{Threads: threads, Memory: memory})
					require.NoError(t, err)
					return d
				}
			}
			gputest.Run(t, open(threads), open(1))
		})
	}
}

func TestLoopsOfAQueueEndWithItsContext(t *testing.T) {
	d, err := Open(Options{Threads: 2})
	require.NoError(t, err)
	ctx := t.Context()
	for _, open := range []func(string) (gpu.Queue, error){d.NewQueue, d.NewLaneQueue} {
		q, err := open("test")
		require.NoError(t, err)
		q.Until(ctx)
		require.Equal(t, ctx, q.(*queue).dev.cores.Context)
		require.Nil(t, d.cores.Context, "the context is the queue's alone")
		require.NoError(t, q.Close())
	}
	require.NoError(t, d.Close())
}

func TestDevicesExchangeTuples(t *testing.T) {
	var devices []gpu.Device
	for range 3 {
		d, err := Open(Options{Threads: 2})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		devices = append(devices, d)
	}
	gputest.Exchange(t, devices)
}
