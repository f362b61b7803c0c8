package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

func TestEvalConformance(t *testing.T) {
	for _, threads := range []int{1, 3} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			gputest.Eval(t, func(t *testing.T, memory int64) gpu.Device {
				d, err := Open(Options{Threads: threads, Memory: memory})
				require.NoError(t, err)
				return d
			})
		})
	}
}
