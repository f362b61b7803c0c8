package parallel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheEndOfAContextEndsAPrimitiveAtWork(t *testing.T) {
	for _, threads := range []int{1, 2} {
		t.Run(fmt.Sprint(threads, " threads"), func(t *testing.T) {
			end := errors.New("the run has ended")
			ctx, cancel := context.WithCancelCause(context.Background())
			var tasks atomic.Int64
			err := Cores{threads, ctx}.For(1000, 1, func(int, int) error {
				if tasks.Add(1) == 10 {
					cancel(end)
				}
				return nil
			})
			require.ErrorIs(t, err, end)
			require.LessOrEqual(t, tasks.Load(), int64(10+threads))
		})
	}
}
