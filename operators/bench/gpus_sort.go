package bench

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

const (
	// splitterBits is the logarithm of the ranges of keys that are found in the sample. Devices have equal shares.
	splitterBits = 7
	// splitterSample is the rows of each device in the sample. The share of one of two devices is then off by 0.4
	// percent (one standard deviation).
	splitterSample = 1 << 13
)

// splitters are the bounds of the ranges of keys.
type splitters struct {
	samples []atomic.Pointer[[]uint64] // by device
	bounds  atomic.Pointer[[]uint64]
}

// addSort adds sorts of the probe side by key. With several devices rows are exchanged by ranges, and each sorts its
// own.
func (s *distributed) addSort() []layout {
	n := len(s.members)
	rows := int64(n) * int64(s.sizes[probeSide])
	name := "sort on one device"
	var layouts []layout
	if n > 1 {
		name = "sort, ranges exchanged, then sorted"
		layouts = append(layouts, s.layoutOf(probeSide, 1, n, true, 1.1))
	}
	s.addCase(spreadCase{name: name, form: "sort", rows: rows, bytes: rows * 16,
		run: func() (time.Duration, error) {
			if n == 1 {
				return s.sort(nil)
			}
			return s.sort(layouts[0].sending())
		}})
	return layouts
}

// sample returns some of the keys of the probe side.
func (m *member) sample(rows int) ([]uint64, error) {
	if m.sampled.Len == 0 {
		n := m.sizes[probeSide]
		ids := make([]int32, min(rows, n))
		for i := range ids {
			ids[i] = int32(i * (n / len(ids)))
		}
		t := gpu.Of(gpu.Int32)
		st, err := m.q.Upload(m.l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "row", Type: t}), Rows: len(ids),
			Cols: []gpu.Column{{Type: t, Len: len(ids), Data: gpu.WrapBytes(gpu.BytesOf(ids))}}})
		if err != nil {
			return nil, err
		}
		m.sampled = st.Cols[0]
	}
	picked, err := m.q.Gather(m.l, m.cols[probeSide][:1], m.sampled, false)
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(picked)
	return m.download(picked[0])
}

// find samples the keys, and returns the splitters in the memory of a device.
func (p *splitters) find(m *member) (gpu.Column, error) {
	keys, err := m.sample(splitterSample)
	if err != nil {
		return gpu.Column{}, err
	}
	p.samples[m.at].Store(&keys)
	if m.at == 0 {
		var all []uint64
		for i := range p.samples {
			keys, err := published(m.distributed, &p.samples[i])
			if err != nil {
				return gpu.Column{}, err
			}
			all = append(all, *keys...)
		}
		slices.Sort(all)
		bounds := make([]uint64, 1<<splitterBits-1)
		for i := range bounds {
			bounds[i] = all[(i+1)*len(all)>>splitterBits]
		}
		p.bounds.Store(&bounds)
	}
	bounds, err := published(m.distributed, &p.bounds)
	if err != nil {
		return gpu.Column{}, err
	}
	return m.upload(*bounds)
}

// sort sorts the probe side by key. x is the exchange, nil for one device.
func (s *distributed) sort(x *sending) (time.Duration, error) {
	defer s.endRun()
	sorted := make([][]gpu.Column, len(s.members))
	defer func() {
		for _, cols := range sorted {
			gpu.ReleaseColumns(cols)
		}
	}()
	bounds := &splitters{samples: make([]atomic.Pointer[[]uint64], len(s.members))}
	took, err := s.all(func(m *member) error {
		cols := []gpu.Column{m.cols[probeSide][0].Retain(), m.cols[probeSide][1].Retain()}
		defer func() { gpu.ReleaseColumns(cols) }()
		if x != nil {
			list, err := bounds.find(m)
			if err != nil {
				return err
			}
			by := gpu.TupleRoute{Digit: gpu.Digit{Bits: splitterBits}, Splitters: list}
			if err := m.sendBy(x, 0, by); err != nil {
				return err
			}
			if err := m.await(x, 0); err != nil {
				return err
			}
			gpu.ReleaseColumns(cols)
			cols = nil
			runs, _ := m.arrived(x, 0)
			keys, values, err := m.x.CollectTuples(m.l, runs)
			if err != nil {
				return err
			}
			cols = []gpu.Column{keys, values}
		}
		ids, err := m.q.Sort(m.l, []gpu.SortKey{{Column: cols[0]}})
		if err != nil {
			return err
		}
		defer ids.Release()
		if sorted[m.at], err = m.q.Gather(m.l, cols, ids, false); err != nil {
			return err
		}
		return m.settle()
	})
	if err != nil {
		return 0, err
	}
	if err := s.complete(); err != nil {
		return 0, err
	}
	if s.warmup {
		err = s.checkSorted(sorted)
	}
	return took, err
}

// checkSorted checks the order of the keys over all devices, and the sums of keys and values.
func (s *distributed) checkSorted(sorted [][]gpu.Column) error {
	var got [2]uint64
	rows, last := 0, uint64(0)
	for i, m := range s.members {
		for c := range got {
			values, err := m.download(sorted[i][c])
			if err != nil {
				return err
			}
			var mu sync.Mutex
			ordered := true
			parallel(len(values), func(a, z int) {
				sum, fine := uint64(0), true
				for at, v := range values[a:z] {
					sum += v
					fine = fine && (a+at == 0 || values[a+at-1] <= v)
				}
				mu.Lock()
				got[c] += sum
				ordered = ordered && fine
				mu.Unlock()
			})
			if c > 0 || len(values) == 0 {
				continue
			}
			if !ordered || values[0] < last {
				return fmt.Errorf("%w: the keys of device %d are not in order", ErrWrong, i)
			}
			rows, last = rows+len(values), values[len(values)-1]
		}
	}
	if want := s.sizes[probeSide] * len(s.members); rows != want || got != s.sums[probeSide] {
		return fmt.Errorf("%w: %d sorted rows, want %d; the sums of keys and values are %d, want %d", ErrWrong, rows,
			want, got, s.sums[probeSide])
	}
	return nil
}
