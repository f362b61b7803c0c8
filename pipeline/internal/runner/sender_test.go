package runner

import (
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/pipeline/internal/physical"
)

// TestFewRowsAreSentTogether packs rows until there are enough of them for a receiver, with and without memory for it.
func TestFewRowsAreSentTogether(t *testing.T) {
	d, err := host.Open(host.Options{Threads: 1, Memory: 1 << 20})
	require.NoError(t, err)
	l := d.Budget().Lease("rows")
	q, err := d.NewQueue("rows")
	require.NoError(t, err)
	one := gpu.IntScalar(oneColumn.Fields[0].Type, 1)
	for _, full := range []bool{false, true} {
		in := newInbox(1)
		x := &exchange{stage: &physical.Stage{Schema: oneColumn}, spec: &physical.Exchange{Kind: physical.Hash},
			runs: []*run{{device: d}}, inboxes: []outlet{in}, ctx: t.Context()}
		o := &opRun{Stage: x.stage, account: &account{lease: l}}
		s := &sender{exchange: x, run: x.runs[0], op: o, packs: make([]pack, 1),
			task: operators.Task{Device: d, Queue: q, Lease: l, StrideRows: 40}}
		s.meter = s.run.newMeter()
		var got []int
		received := make(chan error)
		go func() {
			for {
				s, err := in.receive(t.Context())
				if err != nil {
					received <- err
					return
				}
				got = append(got, s.Rows)
				s.Release()
			}
		}()
		want := []int{21, 30, 3}
		if full {
			d.Budget().SetFault(func(bool) error { return io.ErrShortBuffer })
			want = []int{4, 5, 12, 30, 1, 2}
		}
		for _, rows := range []int{4, 5, 12, 30, 1, 2} {
			c := gpu.ColumnOf(oneColumn.Fields[0].Type, slices.Repeat([]gpu.Scalar{one}, rows))
			require.NoError(t, s.put(0, []*gpu.Stride{{Schema: oneColumn, Cols: []gpu.Column{c}, Rows: rows}}))
		}
		require.NoError(t, s.unpack())
		in.end(0)
		require.Equal(t, io.EOF, <-received)
		require.Equal(t, want, got)
		d.Budget().SetFault(nil)
	}
	require.NoError(t, q.Close())
	require.NoError(t, l.Close())
	require.NoError(t, d.Close())
}
