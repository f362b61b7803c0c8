package gpu_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

func TestWhoAwaitsMemoryGoesOnWhenMoreIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
		other, l := b.Lease("other"), b.Lease("scan")
		require.NoError(t, other.Reserve(900))
		more := make(chan bool)
		await := func(left int64) { go func() { more <- l.AwaitMore(context.Background(), left) }() }
		await(100)
		await(300)
		begin := time.Now()
		move := func(n int64) {
			time.Sleep(800 * time.Millisecond) // memory moves, so nobody gives up
			if n > 0 {
				require.NoError(t, other.Reserve(n))
			} else {
				other.Unreserve(-n)
			}
			synctest.Wait()
		}
		waits := func() {
			t.Helper()
			select {
			case <-more:
				require.Fail(t, "it does not wait")
			default:
			}
		}
		move(60)
		move(-60) // back to the original amount
		waits()
		move(-1)
		require.True(t, <-more)
		move(-199)
		waits()
		b.SetLimit(1001)
		require.True(t, <-more)
		require.Equal(t, 3200*time.Millisecond, time.Since(begin))
		require.True(t, l.AwaitMore(context.Background(), 300), "there is more already")
		other.Unreserve(700)
	})
}

func TestWhoAwaitsMemoryGivesUpWhenNobodyMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
		other, l := b.Lease("other"), b.Lease("scan")
		time.AfterFunc(2500*time.Millisecond, func() { require.NoError(t, other.Reserve(1)) })
		begin := time.Now()
		require.False(t, l.AwaitMore(context.Background(), 1000))
		require.Equal(t, time.Second, time.Since(begin))
		b.SetPatience(2 * time.Second)
		require.False(t, l.AwaitMore(context.Background(), 1000))
		require.Equal(t, 5*time.Second, time.Since(begin), "from the last time that somebody moved")
		other.Unreserve(1)
	})
}

func TestWhoAwaitsMemoryEndsWithAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		begin := time.Now()
		require.False(t, b.Lease("scan").AwaitMore(ctx, 1000))
		require.Equal(t, time.Millisecond, time.Since(begin))
	})
}
