package cuda

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
)

// TestPiecesArriveInOrder copies strides up that consist of many pieces of odd sizes, as those of spilled partitions
// do, on several goroutines. Kernels that are launched before a copy has ended must wait for all of it.
// GSTREAM_STRIDES is the number of strides.
func TestPiecesArriveInOrder(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	const pieces, goroutines, sets = 256, 3, 8
	room := func(piece int) int { // bytes
		if piece < 2*mostBatched+16 { // more than one call of the driver takes
			return batchedPiece + 704
		}
		return 16<<10 + 352
	}
	d, err := Open(Options{Library: library(t), Memory: 256 << 20, HostMemory: 512 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	strides := 30
	if library(t) == "" {
		strides = 3000
	}
	if n, err := strconv.Atoi(os.Getenv("GSTREAM_STRIDES")); err == nil {
		strides = n
	}
	device, host := d.Budget().Lease("pieces"), d.HostBudget().Lease("pieces, host")

	// Word w of column c of a set is c << 56 | set << 48 | w. The pieces of a set lie far from each other.
	var sizes [sets][pieces]int // in words
	var rows [sets]int
	for set := range sets {
		rnd := rand.New(rand.NewPCG(1, uint64(set)))
		for i := range pieces {
			sizes[set][i] = room(i)/8 - rnd.IntN(88)
			rows[set] += sizes[set][i]
		}
	}
	var blocks [2][pieces]*gpu.Buffer // piece i of all sets
	word := func(c, set, at int) uint64 { return uint64(c)<<56 | uint64(set)<<48 | uint64(at) }
	for c := range 2 {
		var at [sets]int
		for i := range pieces {
			b, err := host.Alloc(int64(room(i)) * sets)
			require.NoError(t, err)
			defer b.Release()
			words := gpu.Values[uint64](b, room(i)/8*sets)
			for set := range sets {
				for k := range sizes[set][i] {
					words[set*room(i)/8+k] = word(c, set, at[set]+k)
				}
				at[set] += sizes[set][i]
			}
			blocks[c][i] = b
		}
	}
	schema := gpu.NewSchema(gpu.Field{Name: "a", Type: gpu.Of(gpu.Int64)},
		gpu.Field{Name: "b", Type: gpu.Of(gpu.Int64)})
	stride := func(set int) *gpu.Stride {
		s := &gpu.Stride{Schema: schema, Rows: rows[set]}
		for c := range 2 {
			var parts []*gpu.Buffer
			for i := range pieces {
				parts = append(parts, blocks[c][i].View(int64(set*room(i)), int64(sizes[set][i])*8))
			}
			s.Cols = append(s.Cols, gpu.Column{Type: gpu.Of(gpu.Int64), Len: s.Rows, Data: gpu.Joined(parts)})
		}
		return s
	}

	type copied struct {
		*gpu.Stride
		set int
	}
	up, down := make(chan copied, goroutines), make(chan copied, goroutines)
	var senders, checkers sync.WaitGroup
	var left, wrong atomic.Int64
	left.Store(int64(strides))
	queue := func() *queue {
		q, err := d.NewQueue("pieces")
		require.NoError(t, err)
		return q.(*queue)
	}
	for range goroutines {
		q, back := queue(), queue()
		senders.Go(func() {
			defer q.Close()
			for left.Add(-1) >= 0 {
				set := rand.IntN(sets)
				s, err := q.UploadAhead(device, stride(set))
				if err != nil {
					t.Errorf("copy up: %v", err)
					return
				}
				up <- copied{s, set}
			}
		})
		checkers.Go(func() {
			defer back.Close()
			for s := range down {
				got, err := back.Download(host, s.Stride)
				if err != nil {
					t.Errorf("copy down: %v", err)
					continue
				}
				for c, col := range got.Cols {
					for w, v := range gpu.Values[uint64](col.Data, got.Rows) {
						if v != word(c, s.set, w) {
							wrong.Add(1)
							break
						}
					}
				}
				got.Release()
			}
		})
	}
	go func() { senders.Wait(); close(up) }()
	q := queue()
	defer q.Close()
	for s := range up {
		err := q.Wait(s.Stride)
		var parts [][]gpu.Column
		if err == nil { // the kernel reads all rows at once
			parts, err = q.Cut(device, s.Cols, []int{0, s.Rows - 1, s.Rows})
		}
		s.Release()
		if err != nil {
			t.Errorf("cut: %v", err)
			continue
		}
		gpu.ReleaseColumns(parts[1])
		out := &gpu.Stride{Schema: schema, Rows: rows[s.set] - 1, Cols: parts[0]}
		out.SetReady(d)
		down <- copied{out, s.set}
	}
	close(down)
	checkers.Wait()
	require.Zero(t, wrong.Load(), "of %d columns rows differ", 2*strides)
}
