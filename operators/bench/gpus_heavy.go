package bench

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

const (
	// heavySample is the rows of each device among which heavy keys are looked for, heavyShare the share of them that
	// makes a key heavy: so many rows of one key burden a block that joins their partition.
	heavySample = 1 << 13
	heavyShare  = 1.0 / 5000
)

// heavyKeys is the heavy keys of a join (SKEW-D), found by samples of the probe side on all devices.
type heavyKeys struct {
	s     *distributed
	probe *sending
	// roomForAll says that the regions of the probe side have room for heavy keys too.
	roomForAll bool
	samples    []atomic.Pointer[[]keyCount] // by device
	keys       atomic.Pointer[[]uint64]
	// The rest is by device: the keys and sums in its memory, and the end of the build side's first pass.
	device  []gpu.HeavyKeys
	counted []atomic.Pointer[gpu.Arrival]
}

func (s *distributed) heavyKeys(probe *sending) *heavyKeys {
	n := len(s.members)
	return &heavyKeys{s: s, probe: probe, samples: make([]atomic.Pointer[[]keyCount], n),
		device: make([]gpu.HeavyKeys, n), counted: make([]atomic.Pointer[gpu.Arrival], n)}
}

// fourChunks are the layouts of joins with heavy keys, and of group-bys.
func (s *distributed) fourChunks() []layout {
	sides := s.sides(4, false)
	if len(s.members) == 1 {
		sides = s.sides(1, true)
	}
	return sides[:]
}

// addHeavy adds joins whose foreign keys are not equally frequent.
func (s *distributed) addHeavy(exponent float64) {
	sides := s.fourChunks()
	one := len(s.members) == 1
	c := s.addJoin(fmt.Sprintf("SKEW-D, foreign keys by Zipf %v", exponent), fmt.Sprintf("Zipf %v", exponent),
		spreadJoin{sides: [2]layout(sides), blocking: one, heavy: true})
	c.bound = func(time.Duration) (string, time.Duration) {
		return "equally frequent keys", s.best(countForm)
	}
}

// download returns the values of a column of 64 bits.
func (m *member) download(c gpu.Column) ([]uint64, error) {
	st, err := m.q.Download(m.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
		Cols: []gpu.Column{c.Retain()}, Rows: c.Len})
	if err != nil {
		return nil, err
	}
	defer st.Release()
	return slices.Clone(gpu.Values[uint64](st.Cols[0].Data, c.Len)), nil
}

// upload returns a column of values. It is released at the end of the run.
func (m *member) upload(values []uint64) (gpu.Column, error) {
	t := gpu.Of(gpu.Uint64)
	st, err := m.q.Upload(m.l, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: t}), Rows: len(values),
		Cols: []gpu.Column{{Type: t, Len: len(values), Data: gpu.WrapBytes(gpu.BytesOf(values))}}})
	if err != nil {
		return gpu.Column{}, err
	}
	m.columns = append(m.columns, st.Cols...)
	return st.Cols[0], nil
}

// find finds the keys. Without heavy keys it does nothing.
func (h *heavyKeys) find(m *member) error {
	if h == nil {
		return nil
	}
	keys, err := m.sample(heavySample)
	if err != nil {
		return err
	}
	counts := m.countKeys(keys)
	h.samples[m.at].Store(&counts)
	if m.at == 0 {
		if err := h.merge(); err != nil {
			return err
		}
	}
	list, err := published(h.s, &h.keys)
	if err != nil || len(*list) == 0 {
		return err
	}
	// The keys, the sums of the build side, and the result.
	n := len(*list)
	all, err := m.upload(append(slices.Clone(*list), make([]uint64, 2*n+2)...))
	if err != nil {
		return err
	}
	h.device[m.at] = gpu.HeavyKeys{Keys: m.view(all, 0, n), Own: m.view(all, n, 3*n), Result: m.view(all, 3*n, 3*n+2)}
	return nil
}

// keyCount is a key and the number of its rows.
type keyCount struct {
	key uint64
	n   int
}

// countKeys returns the keys that occur more than once. (A map takes eight times as long, which is a tenth of a join.)
func (m *member) countKeys(keys []uint64) (out []keyCount) {
	bits := bits.Len(uint(2*len(keys))) - 1
	if m.counted == nil {
		m.counted = make([]keyCount, 1<<bits)
	}
	table := m.counted
	clear(table)
	for _, k := range keys {
		at := k * spreadFactor >> (64 - bits)
		for table[at].n > 0 && table[at].key != k {
			at = (at + 1) & (1<<bits - 1)
		}
		table[at].key = k
		table[at].n++
	}
	for _, c := range table {
		if c.n > 1 {
			out = append(out, c)
		}
	}
	return out
}

// merge finds the heavy keys in the samples of all devices, and makes the room of regions that of the other keys.
func (h *heavyKeys) merge() error {
	counts := map[uint64]int{}
	for i := range h.samples {
		keys, err := published(h.s, &h.samples[i])
		if err != nil {
			return err
		}
		for _, k := range *keys {
			counts[k.key] += k.n
		}
	}
	all := float64(min(heavySample, h.s.sizes[probeSide]) * len(h.samples))
	var keys []uint64
	pairs := 0.0 // of equal keys in the sample, over all pairs: the sum of the squares of the shares of keys
	pairsOf := func(n int) float64 { return float64(n) * float64(n-1) / all / all }
	for k, n := range counts {
		pairs += pairsOf(n)
		if n > 2 && float64(n) >= heavyShare*all {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b uint64) int { return counts[b] - counts[a] })
	keys = keys[:min(len(keys), gpu.MostHeavyKeys)]
	others := 1.0
	for _, k := range keys {
		others -= float64(counts[k]) / all
		pairs -= pairsOf(counts[k])
	}
	if !h.roomForAll {
		// Some of the other keys are still more frequent than others: the share of a region has the variance pairs /
		// ways. A sample tells neither well.
		share := 1.5*others + 0.02 + 8*math.Sqrt(max(pairs, 0)*float64(h.probe.ways))
		h.probe.layout = h.s.layoutOf(probeSide, h.probe.chunks, h.probe.ways, h.probe.direct, min(1, share))
	}
	h.keys.Store(&keys)
	return nil
}

// of returns the heavy keys for SendTuples of a side. That of the probe side waits for the sums of all devices.
func (h *heavyKeys) of(m *member, side int) (gpu.HeavyKeys, error) {
	if h == nil {
		return gpu.HeavyKeys{}, nil
	}
	d := h.device[m.at]
	if side == buildSide || d.Keys.Len == 0 {
		return d, nil
	}
	if h.counted[m.at].Load() == nil {
		end, err := m.x.Launched()
		if err != nil {
			return d, err
		}
		m.arrivals = append(m.arrivals, end)
		h.counted[m.at].Store(&end)
		for i := range h.counted {
			end, err := published(h.s, &h.counted[i])
			if err == nil && i != m.at {
				err = (*end).Await(m.q)
			}
			if err != nil {
				return d, err
			}
		}
	}
	for _, other := range h.device { // all have counted
		d.All = append(d.All, other.Own)
	}
	return d, nil
}

// addTo adds the pairs of heavy keys to a result.
func (h *heavyKeys) addTo(m *member, f *found) error {
	d := h.device[m.at]
	if d.Keys.Len == 0 {
		return nil
	}
	sums, err := m.download(d.Result)
	if err == nil {
		f.add(sums[0], sums[1])
	}
	return err
}
