package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
)

// Zeros implements gpu.TupleTables.
func (q *queue) Zeros(l *gpu.Lease, t gpu.Type, n int) (gpu.Column, error) {
	if err := q.check(); err != nil {
		return gpu.Column{}, err
	}
	if t.IsVar() || t.Width() == 0 || n < 0 {
		return gpu.Column{}, fmt.Errorf("%d zeros of %v: want a type of fixed width", n, t)
	}
	a, err := memory.Zeros[byte](l, n*t.Width())
	return gpu.Column{Type: t, Len: n, Data: a.Buf}, q.fail(err)
}

// InsertTuples implements gpu.TupleTables.
func (q *queue) InsertTuples(_ *gpu.Lease, t gpu.TupleTable, runs []gpu.TupleRun) error {
	if err := q.check(); err != nil {
		return err
	}
	if err := gpu.CheckTable(t, runs); err != nil {
		return err
	}
	return q.fail(move.InsertTuples(q.dev.cores, t, runs))
}

// ProbeTuples implements gpu.TupleTables.
func (q *queue) ProbeTuples(_ *gpu.Lease, t gpu.TupleTable, runs []gpu.TupleRun, result gpu.Column) error {
	if err := q.check(); err != nil {
		return err
	}
	if err := gpu.CheckTable(t, runs, result); err != nil {
		return err
	}
	return q.fail(move.ProbeTuples(q.dev.cores, t, runs, result))
}

// MarkTuples implements gpu.TupleTables.
func (q *queue) MarkTuples(_ *gpu.Lease, regions, marks []gpu.TupleRun) error {
	if err := q.check(); err != nil {
		return err
	}
	if err := gpu.CheckMarks(regions, marks, true); err != nil {
		return err
	}
	return q.fail(move.MarkTuples(q.dev.cores, regions, marks))
}

// activeJoin implements gpu.ActiveJoin: each Poll takes what has arrived.
type activeJoin struct{ *move.ActiveJoin }

// NewActiveJoin implements gpu.TupleTables.
func (q *queue) NewActiveJoin(_ *gpu.Lease, t gpu.TupleTable, build, probe gpu.ActiveSide) (gpu.ActiveJoin, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if err := gpu.CheckActive(t, build, probe); err != nil {
		return nil, err
	}
	return activeJoin{move.NewActiveJoin(t, build, probe)}, nil
}

// Poll implements gpu.ActiveJoin.
func (j activeJoin) Poll(gq gpu.Queue) (gpu.ActiveState, error) {
	q, ok := gq.(*queue)
	if !ok {
		return gpu.ActiveState{}, fmt.Errorf("active join of the CPU with a queue of %s", gq.Device().Properties().Name)
	}
	if err := q.check(); err != nil {
		return gpu.ActiveState{}, err
	}
	s, err := j.ActiveJoin.Poll(q.dev.cores)
	return s, q.fail(err)
}

// Release implements gpu.ActiveJoin.
func (activeJoin) Release() {}
