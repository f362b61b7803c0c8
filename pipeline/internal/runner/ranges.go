package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/materialize"
	"github.com/gstream/gstream/operators/sort"
	"github.com/gstream/gstream/source"
	sourceexchange "github.com/gstream/gstream/source/exchange"
)

// ranges are the ranges of an exchange by ranges of keys. Each sender copies its sample of keys to host memory once it
// holds all its rows. The last one to do so computes the splitters, for which the others wait. The exchange owns the
// samples, because operators that hold the rows may have ended before.
type ranges struct {
	lease *gpu.Lease // of host memory
	held  map[int]*materialized

	mu      sync.Mutex
	samples []*sort.Sample
	known   chan struct{} // closed once the splitters are known
	keys    *gpu.Stride   // the splitters, in host memory
}

func newRanges(l *gpu.Lease) *ranges {
	return &ranges{lease: l, held: map[int]*materialized{}, known: make(chan struct{})}
}

// splitters returns the splitters in memory of the device of a sender, which holds all its rows.
func (r *ranges) splitters(s *sender) (*gpu.Stride, error) {
	q := s.task.Queue
	sample := r.held[s.from].op.op.(*materialize.Rows).Sample
	if err := sample.ToHost(q, r.lease); err != nil {
		return nil, err
	}
	if s.world != nil {
		return r.ofRanks(s, sample)
	}
	r.mu.Lock()
	r.samples = append(r.samples, sample)
	last := len(r.samples) == len(r.held)
	r.mu.Unlock()
	if last {
		keys, err := sort.Splitters(s.task, r.lease, r.samples, len(s.runs))
		if err != nil {
			return nil, err // it ends the run, and so the wait of the others
		}
		for _, each := range r.samples {
			each.Close()
		}
		r.keys = keys
		close(r.known)
	}
	select {
	case <-r.known:
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
	return s.uploaded(r.keys.Retain())
}

// uploaded copies splitters to the device of a sender. It takes them over.
func (s *sender) uploaded(keys *gpu.Stride) (*gpu.Stride, error) {
	up, err := s.task.Queue.Upload(s.op.lease, keys)
	if err != nil {
		keys.Release()
	}
	return up, err
}

// ofRanks returns the splitters of the samples of all ranks, which each rank computes for itself.
func (r *ranges) ofRanks(s *sender, sample *sort.Sample) (*gpu.Stride, error) {
	samples, err := s.world.samples(s, sample.Keys())
	if err != nil {
		return nil, err
	}
	in := s.stage.Inputs[0].Schema
	keys, err := Splitters(in, s.spec.By, samples, len(s.runs))
	if err != nil {
		return nil, err
	}
	out, err := sort.KeyStride(in, s.spec.By, keys)
	if err != nil {
		return nil, err
	}
	return s.uploaded(out)
}

// close releases the samples and the splitters, after the last sender has ended. Nil ranges are closed.
func (r *ranges) close() error {
	if r == nil {
		return nil
	}
	for _, h := range r.held {
		if h.op != nil {
			h.op.op.(*materialize.Rows).Sample.Close()
		}
	}
	if r.keys != nil {
		r.keys.Release()
		r.keys = nil
	}
	return r.lease.Close()
}

// Splitters divides rows of a schema into n ranges of keys with about equal numbers of rows, by samples of the rows. It
// returns the keys of the first row of each range but the first: fewer than n-1 if there are fewer rows.
func Splitters(in *gpu.Schema, by []sort.Key, samples []sourceexchange.Sample, n int) (keys [][]gpu.Scalar, err error) {
	d, err := host.Open(host.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	q, err := d.NewQueue("splitters")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	lease := d.Budget().Lease("splitters")
	defer func() { err = errors.Join(err, lease.Close()) }()
	sample := sort.NewSample(in, by)
	defer sample.Close()
	for _, s := range samples {
		if err := sample.AddKeys(s.Keys, s.Weight); err != nil {
			return nil, fmt.Errorf("%w: %w", source.ErrData, err)
		}
	}
	t := operators.Task{Device: d, Queue: q, Lease: lease, StrideRows: d.StrideRows(in.RowBytes()), Lanes: 1}
	rows, err := sort.Splitters(t, lease, []*sort.Sample{sample}, n)
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	keys = make([][]gpu.Scalar, rows.Rows)
	for i := range keys {
		for _, c := range rows.Cols {
			keys[i] = append(keys[i], c.ScalarAt(i))
		}
	}
	return keys, nil
}
