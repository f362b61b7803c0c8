package bench

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
)

const (
	// spreadFew is the rows of a device per group from which on devices group their own rows first.
	spreadFew = 16
	// groupsOfTable is the desired number of groups of a partition.
	groupsOfTable = 1 << 12
)

// addGroups adds group-bys of the probe side. For few groups each device groups its own rows with the group-by
// operator, and one merges the results. For many, rows are exchanged first.
func (s *distributed) addGroups(groups uint64) {
	n := len(s.members)
	form := fmt.Sprintf("group-by, 2^%d groups", bits.Len64(groups)-1)
	rows := int64(n) * int64(s.sizes[probeSide])
	add := func(name string, run func() (time.Duration, error)) {
		s.addCase(spreadCase{name: form + ", " + name, form: form, rows: rows, bytes: rows * 16, run: run})
	}
	own := "grouped by the operator"
	if n > 1 {
		own = "rows of each device grouped, then merged"
	}
	few := groups*spreadFew <= uint64(s.sizes[probeSide])
	if few || n == 1 {
		add(own, func() (time.Duration, error) { return s.groupOwn(groups) })
	}
	if !few {
		name := "exchanged, then grouped"
		if n == 1 {
			name = "grouped by partition"
		}
		x := s.fourChunks()[probeSide]
		add(name, func() (time.Duration, error) { return s.groupExchanged(x, groups) })
	}
}

// groupSpec is the greatest value of each key.
func groupSpec(rows int, groups uint64) groupby.Spec {
	return groupby.Spec{In: tupleSchema, Out: tupleSchema, Keys: []int{0},
		Hint:       gpu.GroupHint{Rows: rows, Groups: int(groups)},
		Aggregates: []groupby.Aggregate{{Kind: gpu.Max, Input: 1, Output: gpu.Of(gpu.Uint64)}}}
}

// group groups strides that feed pushes.
func (m *member) group(rows int, groups uint64, feed func(push func(int, *gpu.Stride) error) error,
	emit operators.Emit) error {
	o, err := groupby.New(groupSpec(rows, groups))
	if err != nil {
		return err
	}
	t := operators.Task{Device: m.q.Device(), Queue: m.q, Lease: m.l, StrideRows: gpu.MaxRows, Lanes: 1}
	return errors.Join(m.drive(o, t, emit, feed), o.Close())
}

// groupOwn groups the rows of each device, and merges the results on the first one.
func (s *distributed) groupOwn(groups uint64) (time.Duration, error) {
	parts := make([]atomic.Pointer[[]*gpu.Stride], len(s.members))
	var result []*gpu.Stride
	defer func() {
		for _, st := range result {
			st.Release()
		}
	}()
	took, err := s.all(func(m *member) error {
		own := &gpu.Stride{Schema: tupleSchema, Rows: s.sizes[probeSide],
			Cols: []gpu.Column{m.cols[probeSide][0].Retain(), m.cols[probeSide][1].Retain()}}
		defer own.Release()
		var out []*gpu.Stride
		collect := func(st *gpu.Stride) error {
			out = append(out, st)
			return nil
		}
		err := m.group(own.Rows, groups, func(push func(int, *gpu.Stride) error) error {
			return each([]*gpu.Stride{own}, push)
		}, collect)
		if err != nil {
			for _, st := range out {
				st.Release()
			}
			return err
		}
		if len(s.members) == 1 {
			result = out
			return m.settle()
		}
		for _, st := range out {
			st.SetReady(m.q.Device())
		}
		parts[m.at].Store(&out)
		if m.at != 0 {
			return m.settle()
		}
		err = m.group(len(s.members)*int(groups), groups, func(push func(int, *gpu.Stride) error) error {
			at := 0
			for i := range parts {
				list, err := published(s, &parts[i])
				if err != nil {
					return err
				}
				for _, st := range *list {
					if i > 0 {
						if st, err = m.q.Upload(m.l, st); err != nil {
							return err
						}
					}
					if err := push(at, st); err != nil {
						return err
					}
					at++
				}
			}
			return nil
		}, func(st *gpu.Stride) error {
			result = append(result, st)
			return nil
		})
		return errors.Join(err, m.settle())
	})
	if err != nil {
		return 0, err
	}
	return took, s.checkMost(result)
}

// checkMost checks the number of groups, and when it warms up also the greatest values.
func (s *distributed) checkMost(result []*gpu.Stride) error {
	rows, distinct, want, sum := 0, 0, uint64(0), uint64(0)
	for i := range s.most {
		if v := s.most[i].Load(); v > 0 {
			distinct++
			want += v
		}
	}
	m := s.members[0]
	for _, st := range result {
		rows += st.Rows
		if !s.warmup {
			continue
		}
		values, err := m.download(st.Cols[1])
		if err != nil {
			return err
		}
		for _, v := range values {
			sum += v
		}
	}
	if rows != distinct || s.warmup && sum != want {
		return fmt.Errorf("%w: %d groups, want %d; the sum of the greatest values is %d, want %d", ErrWrong, rows,
			distinct, sum, want)
	}
	return nil
}

// groupExchanged exchanges the rows, partitions what arrives again, and groups each partition.
func (s *distributed) groupExchanged(how layout, groups uint64) (time.Duration, error) {
	defer s.endRun()
	x := how.sending()
	d := s.secondOf(int(groups) / groupsOfTable)
	var all atomic.Uint64
	found := make([]int, len(s.members))
	took, err := s.all(func(m *member) error {
		var parted []gpu.PartitionedRuns
		defer func() {
			for _, p := range parted {
				p.Release()
			}
		}()
		sent := 0
		for c := range x.chunks {
			for ; sent < min(c+passesAhead, x.chunks); sent++ {
				if err := m.send(x, sent); err != nil {
					return err
				}
			}
			if err := m.await(x, c); err != nil {
				return err
			}
			p, err := m.secondPass(x, c, d)
			if err != nil {
				return err
			}
			parted = append(parted, p)
		}
		n, err := m.x.GroupTuples(m.l, parted, len(s.members), d, m.pairs[0], m.pairs[1], m.pairs[2])
		if err == nil && n > m.pairs[0].Len {
			err = fmt.Errorf("%d groups, and there is room for %d", n, m.pairs[0].Len)
		}
		found[m.at] = n
		all.Add(uint64(n))
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := s.complete(); err != nil {
		return 0, err
	}
	return took, s.checkGroups(int(all.Load()), found)
}

// checkGroups checks the number of groups, and when it warms up also the sums of keys, values and rows.
func (s *distributed) checkGroups(groups int, found []int) error {
	distinct, keys := 0, uint64(0)
	for i := range s.most {
		if s.most[i].Load() > 0 {
			distinct++
			keys += spreadKey(uint64(i))
		}
	}
	want := [3]uint64{keys, s.sums[probeSide][1], uint64(s.sizes[probeSide] * len(s.members))}
	got := want
	if s.warmup {
		got = [3]uint64{}
		for i, m := range s.members {
			for c := range got {
				values, err := m.download(m.view(m.pairs[c], 0, found[i]))
				if err != nil {
					return err
				}
				for _, v := range values {
					got[c] += v
				}
			}
		}
	}
	if groups != distinct || got != want {
		return fmt.Errorf("%w: %d groups, want %d; the sums of keys, values and rows are %d, want %d", ErrWrong, groups,
			distinct, got, want)
	}
	return nil
}
