package join

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// TestOutOfMemoryLosesNoPair denies memory at every point of Join in turn, and repeats the
// call until it has what it needs.
func TestOutOfMemoryLosesNoPair(t *testing.T) {
	dev, err := host.Open(host.Options{Threads: 1})
	require.NoError(t, err)
	rnd := rand.New(rand.NewPCG(7, 8))
	number := gpu.NewSchema(gpu.Field{Name: "key", Type: gpu.Of(gpu.Int32)},
		gpu.Field{Name: "row", Type: gpu.Of(gpu.Int32)})
	stride := func(n int) *gpu.Stride {
		var keys, rows []gpu.Scalar
		for i := range n {
			keys = append(keys, gpu.IntScalar(number.Fields[0].Type, rnd.Int64N(50)))
			rows = append(rows, gpu.IntScalar(number.Fields[1].Type, int64(i)))
		}
		return &gpu.Stride{Schema: number, Rows: n,
			Cols: []gpu.Column{gpu.ColumnOf(number.Fields[0].Type, keys), gpu.ColumnOf(number.Fields[1].Type, rows)}}
	}
	for _, algorithm := range AlgorithmsOn(dev.Properties()) {
		s := Spec{Probe: number, Build: number, ProbeKeys: []int{0}, BuildKeys: []int{0}, NullSafe: []bool{false},
			ProbeOut: []int{0, 1}, BuildOut: []int{0, 1}}
		l := dev.Budget().Lease("join")
		q, err := dev.NewQueue("join")
		require.NoError(t, err)
		task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: 100, Lanes: 1}
		b, err := s.algorithm(algorithm).build(context.Background(), task, stride(100))
		require.NoError(t, err)
		probe := stride(300)
		pairs := func(deny bool) (out []string) {
			m, err := b.match(task, probe)
			require.NoError(t, err)
			denied := 0
			for more := true; more; {
				for grant := 0; ; grant++ {
					left := grant
					if deny {
						dev.Budget().SetFault(func(bool) error {
							if left--; left < 0 {
								return gpu.ErrBudget
							}
							return nil
						})
					}
					cols, rows, again, err := m.Join(q, l, operators.Pick(m.probe, s.ProbeOut),
						operators.Pick(b.columns(), s.BuildOut), 64)
					dev.Budget().SetFault(nil)
					if err != nil {
						require.ErrorIs(t, err, gpu.ErrBudget)
						denied++
						continue
					}
					for i := range rows {
						var row string
						for _, c := range cols {
							row += fmt.Sprint(gpu.Values[int32](c.Data, rows)[i], " ")
						}
						out = append(out, row)
					}
					gpu.ReleaseColumns(cols)
					more = again
					break
				}
			}
			require.Equal(t, deny, denied > 0)
			m.Release()
			slices.Sort(out)
			return out
		}
		want := pairs(false)
		require.Greater(t, len(want), 200)
		require.Equal(t, want, pairs(true), algorithm)
		b.release()
		require.NoError(t, q.Close())
		require.NoError(t, l.Close())
	}
	require.NoError(t, dev.Close())
}
