package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/operators"
)

// newOffer returns the offer of a GPU, and a lane of the CPU.
func newOffer() (*offer, *helper) {
	op := &opRun{account: &account{pace: newPace(priorDevice)}}
	return &offer{crew: newCrew(nil, 1, ""), op: op}, &helper{pace: newPace(priorCore)}
}

func piece(bytes int64) *operators.Piece {
	return &operators.Piece{Items: operators.Items{N: 1, Bytes: bytes}}
}

// TestTheCPUTakesPairsWhenThatIsFaster plays the joining of a queue of pairs by a GPU and cores of given paces, and
// compares the time with that of the GPU alone, and with the least time in which both could share the bytes.
func TestTheCPUTakesPairsWhenThatIsFaster(t *testing.T) {
	const pairs, bytes = 240, int64(64 << 20)
	for name, c := range map[string]struct {
		device, core float64 // seconds a byte
		cores        int
		group        int     // pairs that the device takes at a time
		most         float64 // times the least time
	}{
		"an H200 and 12 cores":            {1 / 47e9, 3e-9, 12, 20, 1.05},
		"a slow link":                     {1 / 5e9, 3e-9, 12, 20, 1.25},
		"a core that is as slow as a GPU": {3e-9, 3e-9, 1, 1, 1.05},
		"cores that are too slow":         {1 / 50e9, 9e-9, 12, 20, 1.1},
		"cores that are far too slow":     {1 / 50e9, 1e-6, 12, 20, 1.1},
	} {
		h, core := newOffer()
		seconds := func(n int, pace float64) time.Duration {
			return time.Duration(float64(n) * float64(bytes) * pace * 1e9)
		}
		left, byCores := pairs, 0
		// when each core took its last pair, and is free
		begun, free := make([]time.Duration, c.cores), make([]time.Duration, c.cores)
		var now, last time.Duration
		for left > 0 {
			group := min(c.group, left)
			left -= group
			end := now + seconds(group, c.device)
			for again := true; again; {
				again = false
				for i := range free {
					if at := max(free[i], now); at < end && left > 0 && h.wants(core, int64(left)*bytes, bytes) {
						left--
						byCores++
						if begun[i] = at; free[i] > 0 {
							core.pace.add(bytes, seconds(1, c.core))
						}
						free[i] = at + seconds(1, c.core)
						again = true
					}
				}
			}
			h.did(operators.Items{N: group, Bytes: int64(group) * bytes}, seconds(group, c.device), 0)
			now = end
		}
		back := 0
		for i, at := range free {
			if at > now && h.sooner(&attempt{Piece: piece(bytes), by: core}, now-begun[i]) {
				back++
			} else {
				last = max(last, at)
			}
		}
		now += seconds(back, c.device)
		took, alone := max(now, last), seconds(pairs, c.device)
		least := time.Duration(float64(alone) / (1 + float64(c.cores)*c.device/c.core))
		t.Log(name, took, "least", least, "alone", alone, byCores, back)
		require.LessOrEqual(t, took, time.Duration(c.most*float64(least)), name)
		require.LessOrEqual(t, took, alone*101/100, name)
	}
}

// TestTheCPUDoesNotHelpWhenTheOutputIsSlower has cores that would finish in time next to a device that waits for the
// output, and then for a smaller share of the time.
func TestTheCPUDoesNotHelpWhenTheOutputIsSlower(t *testing.T) {
	const left, piece = int64(64 << 30), int64(1 << 20)
	h, core := newOffer()
	require.False(t, h.wants(core, left, piece), "before the device has shown its pace")
	h.did(operators.Items{N: 1, Bytes: 1 << 30}, 3*time.Second, time.Second)
	require.False(t, h.wants(core, left, piece))
	h.did(operators.Items{N: 1, Bytes: 1 << 30}, 3*time.Second, 0)
	require.True(t, h.wants(core, left, piece))
	require.InDelta(t, 5, h.op.pace.of(2<<30), 0.2, "the pace counts the time of work")
}
