package join

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// npj is the non-partitioned hash join: one table over the whole build side (NPJ of Wu et
// al., SIGMOD 2025, §3.1.3).
type npj struct{ *Spec }

func (a npj) build(_ context.Context, t operators.Task, side *gpu.Stride) (built, error) {
	table, err := t.Queue.BuildTable(t.Lease, operators.Pick(side.Cols, a.BuildKeys), a.NullSafe,
		spread*uint64(side.Rows)+leastRanks)
	if err != nil {
		side.Release()
		return nil, err
	}
	a.drop(side) // the table has copies of the keys
	return &npjTable{a.Spec, table, side}, nil
}

// npjTable is the table over a build side, and the columns of the build side.
type npjTable struct {
	*Spec
	table gpu.Table
	side  *gpu.Stride
}

func (b *npjTable) columns() []gpu.Column { return b.side.Cols }
func (b *npjTable) least() int            { return 0 }

func (b *npjTable) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	m, err := b.table.Match(t.Queue, t.Lease, operators.Pick(probe.Cols, b.ProbeKeys))
	return matching{m, probe.Cols, true}, err
}

func (b *npjTable) release() {
	b.table.Release()
	b.side.Release()
}
