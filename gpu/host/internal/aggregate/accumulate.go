// Package aggregate computes aggregates of groups and of ranges of rows on CPU cores.
package aggregate

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// fewGroups is the maximum number of groups for which every core folds into a private copy of the
// state. With more groups the copies cost more than they gain.
const fewGroups = 512

// fold runs f over the rows of some groups. Up to fewGroups groups are folded in parallel into
// private copies of the state, which are merged in any order. More groups are folded into the state
// itself, in parallel only if the ids are sorted.
func fold[S any](cores parallel.Cores, ids []int32, state []S, zero S, f func(st []S, lo, hi int),
	merge func(dst *S, src S)) error {
	n := len(ids)
	if n <= parallel.Grain || cores.Threads == 1 {
		f(state, 0, n)
		return nil
	}
	if len(state) > fewGroups {
		if !slices.IsSorted(ids) {
			f(state, 0, n)
			return nil
		}
		return cores.For(n, parallel.Grain, func(lo, hi int) error {
			f(state, runAt(ids, lo), runAt(ids, hi))
			return nil
		})
	}
	var mu sync.Mutex
	return cores.For(n, parallel.Grain, func(lo, hi int) error {
		own := make([]S, len(state))
		for i := range own {
			own[i] = zero
		}
		f(own, lo, hi)
		mu.Lock()
		defer mu.Unlock()
		for i, s := range own {
			merge(&state[i], s)
		}
		return nil
	})
}

// runAt moves the boundary of a task to the start of the next run of rows of one group. The ids
// ascend.
func runAt(ids []int32, i int) int {
	if i == 0 {
		return 0
	}
	return i + sort.Search(len(ids)-i, func(k int) bool { return ids[i+k] != ids[i-1] })
}

// presence records which groups have had a value that is not null. It is empty until the first
// null: until then all groups have had a value.
type presence struct{ seen memory.Vector[uint8] }

// room makes room for an update to so many groups; before is their previous number.
func (p *presence) room(l *gpu.Lease, c gpu.Column, before, groups int) error {
	if c.Valid == nil && p.seen.V == nil {
		return nil
	}
	if p.seen.V == nil {
		if err := p.seen.Grow(l, before, 1); err != nil {
			return err
		}
	}
	return p.seen.Grow(l, groups, 0)
}

func (p *presence) update(ids []int32, c gpu.Column) {
	if p.seen.V == nil {
		return
	}
	for i, id := range ids {
		if c.IsValid(i) {
			p.seen.V[id] = 1
		}
	}
}

// valid returns the validity of groups [from, to), or nil when all have a value.
func (p *presence) valid(l *gpu.Lease, from, to int) (*gpu.Buffer, error) {
	if p.seen.V == nil || bytes.IndexByte(p.seen.V[from:to], 0) < 0 {
		return nil, nil
	}
	buf, err := l.Alloc(gpu.BitmapBytes(to - from))
	if err != nil {
		return nil, err
	}
	words := gpu.Words(buf, to-from)
	clear(words)
	for i, s := range p.seen.V[from:to] {
		words[i/64] |= uint64(s) << (i % 64)
	}
	return buf, nil
}

// state is the part of an accumulator that differs by aggregate and type.
type state interface {
	// update folds rows into their groups: all rows or, if memory is denied, none.
	update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error
	// write writes the values of groups [from, to) to out, which has to - from rows.
	write(l *gpu.Lease, out *gpu.Column, from, to int) error
	release()
}

// Accumulator keeps an aggregate of the rows of each group: gpu.Accumulator without a queue.
type Accumulator struct {
	lease    *gpu.Lease
	agg      gpu.Aggregate
	presence presence
	state    state
	groups   int // of the last update
}

// New returns an accumulator without groups. The lease pays for its state.
func New(l *gpu.Lease, a gpu.Aggregate) (*Accumulator, error) {
	x := &Accumulator{lease: l, agg: a}
	in := a.Input
	switch a.Kind {
	case gpu.CountAll, gpu.Count:
		x.state = &countState{all: a.Kind == gpu.CountAll}
	case gpu.Sum:
		switch {
		case in.IsFloat():
			x.state = &floatSum{}
		case in.IsInteger() || in.Kind == gpu.Decimal:
			x.state = &intSum{}
		default:
			return nil, fmt.Errorf("sum is not defined on %v", in)
		}
	case gpu.Min, gpu.Max:
		switch {
		case in.IsVar():
			x.state = &extremeBytes{max: a.Kind == gpu.Max}
		case in.Wide:
			x.state = &extremeWide{max: a.Kind == gpu.Max}
		default:
			x.state = &extreme{max: a.Kind == gpu.Max, flip: word.ToOrdered(in)}
		}
	case gpu.BitAnd, gpu.BitOr, gpu.BitXor:
		if !in.IsInteger() {
			return nil, fmt.Errorf("%v is not defined on %v", a.Kind, in)
		}
		x.state = &bitwise{kind: a.Kind}
	case gpu.Product:
		if in.Kind != gpu.Float64 {
			return nil, fmt.Errorf("product is not defined on %v", in)
		}
		x.state = &product{}
	default:
		return nil, fmt.Errorf("%v is not an aggregate of devices", a.Kind)
	}
	return x, nil
}

// Update folds rows into their groups, whose ids are below groups: all rows or, if memory is denied,
// none.
func (x *Accumulator) Update(cores parallel.Cores, ids []int32, values gpu.Column, groups int) error {
	counting := x.agg.Kind == gpu.CountAll || x.agg.Kind == gpu.Count
	if !x.agg.Takes(values.Type) || x.agg.Kind != gpu.CountAll && values.Len != len(ids) {
		return fmt.Errorf("%v of %d rows of %v, planned for %v over %d rows", x.agg.Kind, values.Len, values.Type,
			x.agg.Input, len(ids))
	}
	if !counting && values.Dict != nil && !values.Type.IsVar() {
		plain, err := move.Expand(cores, x.lease, values)
		if err != nil {
			return err
		}
		defer plain.Release()
		values = plain
	}
	if !counting {
		if err := x.presence.room(x.lease, values, x.groups, groups); err != nil {
			return err
		}
	}
	if err := x.state.update(cores, x.lease, ids, values, groups); err != nil {
		return err
	}
	if !counting {
		x.presence.update(ids, values)
	}
	x.groups = groups
	return nil
}

// Result returns the aggregates of groups [from, to).
func (x *Accumulator) Result(l *gpu.Lease, from, to int) (gpu.Column, error) {
	if err := gpu.CheckGroups(x.agg.Kind.String(), from, to, x.groups); err != nil {
		return gpu.Column{}, err
	}
	out := gpu.Column{Type: x.agg.Output, Len: to - from}
	err := func() (err error) {
		if out.Valid, err = x.presence.valid(l, from, to); err != nil {
			return err
		}
		return x.state.write(l, &out, from, to)
	}()
	if err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return out, nil
}

// allocValues allocates the values of a column of fixed width.
func allocValues(l *gpu.Lease, out *gpu.Column) (err error) {
	size := int64(out.Len) * int64(out.Type.Width())
	if out.Type.Kind == gpu.Bool {
		size = gpu.BitmapBytes(out.Len)
	}
	out.Data, err = l.Alloc(size)
	return err
}

// Release releases the state.
func (x *Accumulator) Release() {
	x.presence.seen.Release()
	x.state.release()
}

// countState counts rows, or values that are not null.
type countState struct {
	all bool
	n   memory.Vector[int64]
}

func (s *countState) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.n.Grow(l, groups, 0); err != nil {
		return err
	}
	return fold(cores, ids, s.n.V, 0, func(st []int64, lo, hi int) {
		if s.all || c.Valid == nil {
			if len(st) == 1 {
				st[0] += int64(hi - lo)
				return
			}
			for _, id := range ids[lo:hi] {
				st[id]++
			}
			return
		}
		valid := gpu.Words(c.Valid, c.Len)
		for i := lo; i < hi; i++ {
			st[ids[i]] += int64(valid[i/64] >> (i % 64) & 1)
		}
	}, func(dst *int64, src int64) { *dst += src })
}

func (s *countState) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	copy(gpu.Values[int64](out.Data, out.Len), s.n.V[from:to])
	return nil
}

func (s *countState) release() { s.n.Release() }

// product multiplies floats.
type product struct{ values memory.Vector[float64] }

func (s *product) update(cores parallel.Cores, l *gpu.Lease, ids []int32, c gpu.Column, groups int) error {
	if err := s.values.Grow(l, groups, 1); err != nil {
		return err
	}
	factors := gpu.Values[float64](c.Data, c.Len)
	return fold(cores, ids, s.values.V, 1, func(st []float64, lo, hi int) {
		for i, f := range factors[lo:hi] {
			if c.Valid == nil || c.IsValid(lo+i) {
				st[ids[lo+i]] *= f
			}
		}
	}, func(dst *float64, src float64) { *dst *= src })
}

func (s *product) write(l *gpu.Lease, out *gpu.Column, from, to int) error {
	if err := allocValues(l, out); err != nil {
		return err
	}
	copy(gpu.Values[float64](out.Data, out.Len), s.values.V[from:to])
	return nil
}

func (s *product) release() { s.values.Release() }
