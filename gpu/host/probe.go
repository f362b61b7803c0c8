package host

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// probeGrain is the rows of a task of a probe.
const probeGrain = 1 << 13

// pairs is a list of matches in memory of a lease.
type pairs struct {
	lease        *gpu.Lease
	probe, build array[int32]
	withBuild    bool
}

func newPairs(l *gpu.Lease, kind gpu.JoinKind) pairs {
	return pairs{lease: l, withBuild: kind == gpu.Inner || kind == gpu.Left}
}

// room makes room for n more pairs.
func (p *pairs) room(n int) error {
	if err := p.probe.room(p.lease, n); err != nil || !p.withBuild {
		return err
	}
	return p.build.room(p.lease, n)
}

func (p *pairs) release() {
	p.probe.release()
	p.build.release()
}

// add appends a pair. A build row of -1 means none.
func (p *pairs) add(probe, build int32) {
	p.probe.v, p.build.v = append(p.probe.v, probe), append(p.build.v, build)
}

// addProbe appends a probe row alone.
func (p *pairs) addProbe(row int32) { p.probe.v = append(p.probe.v, row) }

// columns concatenates lists of pairs of one kind into columns.
func columns(l *gpu.Lease, lists []*pairs, kind gpu.JoinKind) (probe, build gpu.Column, err error) {
	column := func(pick func(p *pairs) []int32) (gpu.Column, error) {
		total := 0
		for _, p := range lists {
			total += len(pick(p))
		}
		buf, err := l.Alloc(int64(total) * 4)
		if err != nil {
			return gpu.Column{}, err
		}
		out := gpu.Values[int32](buf, total)
		for _, p := range lists {
			out = out[copy(out, pick(p)):]
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
	}
	if probe, err = column(func(p *pairs) []int32 { return p.probe.v }); err != nil || kind == gpu.Semi || kind == gpu.Anti {
		return probe, build, err
	}
	if build, err = column(func(p *pairs) []int32 { return p.build.v }); err != nil {
		probe.Release()
		return gpu.Column{}, gpu.Column{}, err
	}
	return probe, build, nil
}

// Probe implements gpu.Table.
func (t *table) Probe(gq gpu.Queue, l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (probe, build gpu.Column, next int, err error) {
	q, err := t.dev.queue(gq, keys)
	if err != nil {
		return probe, build, 0, err
	}
	probe, build, next, err = t.probe(q.dev, l, keys, kind, from, limit)
	return probe, build, next, q.fail(err)
}

func (t *table) probe(d *Device, l *gpu.Lease, keys []gpu.Column, kind gpu.JoinKind, from, limit int) (probe, build gpu.Column, next int, err error) {
	if len(keys) != len(t.nullSafe) {
		return probe, build, 0, fmt.Errorf("probe with %d key columns of a table of %d", len(keys), len(t.nullSafe))
	}
	n := keys[0].Len
	if from < 0 || from > n {
		return probe, build, 0, fmt.Errorf("probe from row %d of %d", from, n)
	}
	k, err := t.keyWords(d, l, keys, n, false)
	defer k.release()
	if err != nil {
		return probe, build, 0, err
	}
	rest := n - from
	found := make([]scan, (rest+probeGrain-1)/probeGrain)
	defer func() {
		for i := range found {
			found[i].out.release()
		}
	}()
	var stop atomic.Int64 // tasks from here on are not needed in this call
	stop.Store(math.MaxInt64)
	err = d.parallel(rest, probeGrain, func(lo, hi int) error {
		task := lo / probeGrain
		if int64(task) >= stop.Load() {
			return nil
		}
		s := &found[task]
		*s = scan{t: t, kind: kind, limit: limit, words: blockWords(k.words), out: newPairs(l, kind)}
		if err := s.run(&k, from+lo, hi-lo); err != nil {
			return err
		}
		if s.next < from+hi {
			for {
				old := stop.Load()
				if old <= int64(task+1) || stop.CompareAndSwap(old, int64(task+1)) {
					break
				}
			}
		}
		return nil
	})
	if err != nil {
		return probe, build, 0, err
	}
	next = n
	total := 0
	var wanted []*pairs
	for i := range found {
		s := &found[i]
		wanted = append(wanted, &s.out)
		total += len(s.out.probe.v)
		end := min(from+(i+1)*probeGrain, n)
		if s.next < end || total >= limit {
			next = s.next
			break
		}
	}
	probe, build, err = columns(l, wanted, kind)
	if err != nil {
		next = 0
	}
	return probe, build, next, err
}

// scan probes the rows of one task in blocks, so that the independent loads of a block are
// in flight together.
type scan struct {
	t     *table
	kind  gpu.JoinKind
	limit int
	out   pairs
	next  int // first row not probed
	words [][]uint64
}

const probeBlock = 512

func (s *scan) run(k *batch, lo, n int) error {
	t := s.t
	start, entries, dead := t.start.v, t.entries.v, k.dead.v
	unique := start == nil
	if err := s.out.room(n); err != nil { // most rows have one pair at most
		return err
	}
	var first, last [probeBlock]int32 // range of entries; first is row id + 1 for a unique table
	for at := 0; at < n; at += probeBlock {
		m := min(probeBlock, n-at)
		t.pack(k.coded, lo+at, m, s.words)
		t.find(s.words, first[:m])
		if dead != nil {
			for i := range m {
				if r := lo + at + i; dead[r/64]>>(r%64)&1 != 0 {
					first[i] = -1
				}
			}
		}
		switch {
		case !unique:
			for i, number := range first[:m] {
				first[i], last[i] = 0, 0
				if number >= 0 {
					first[i], last[i] = start[number], start[number+1]
				}
			}
		case t.ranks.v != nil:
			for i, number := range first[:m] {
				first[i] = 0
				if number >= 0 {
					first[i] = entries[number] + 1
				}
			}
		default:
			for i := range first[:m] {
				first[i]++
			}
		}
		if unique {
			s.emitUnique(first[:m], lo+at)
			s.next = lo + at + m
			if len(s.out.probe.v) >= s.limit {
				return nil
			}
			continue
		}
		for i := range m {
			if err := s.emit(i, lo+at+i, int(first[i]), int(last[i])); err != nil {
				return err
			}
			if len(s.out.probe.v) >= s.limit {
				s.next = lo + at + i + 1
				return nil
			}
		}
		s.next = lo + at + m
	}
	return nil
}

// emitUnique appends the matches of a block of rows, given as row id + 1.
func (s *scan) emitUnique(rows []int32, at int) {
	switch s.kind {
	case gpu.Inner:
		probe, build := s.out.probe.v, s.out.build.v
		p, b := probe[len(probe):len(probe)+len(rows)], build[len(build):len(build)+len(rows)]
		k := 0
		for i, r := range rows {
			p[k], b[k] = int32(at+i), r-1
			if r != 0 {
				k++
			}
		}
		s.out.probe.v, s.out.build.v = probe[:len(probe)+k], build[:len(build)+k]
	case gpu.Left:
		for i, r := range rows {
			s.out.add(int32(at+i), r-1)
		}
	case gpu.Semi:
		for i, r := range rows {
			if r != 0 {
				s.out.addProbe(int32(at + i))
			}
		}
	case gpu.Anti:
		for i, r := range rows {
			if r == 0 {
				s.out.addProbe(int32(at + i))
			}
		}
	}
}

// emit appends the matches of one row among entries [first, last). i is the position of
// the row in the block.
func (s *scan) emit(i, row, first, last int) error {
	t, matched := s.t, false
	if err := s.out.room(last - first + 1); err != nil {
		return err
	}
	for e := first; e < last; e++ {
		matched = true
		if s.kind == gpu.Semi || s.kind == gpu.Anti {
			break
		}
		s.out.add(int32(row), t.entries.v[e])
	}
	switch {
	case s.kind == gpu.Semi && matched, s.kind == gpu.Anti && !matched:
		s.out.addProbe(int32(row))
	case s.kind == gpu.Left && !matched:
		s.out.add(int32(row), -1)
	}
	return nil
}
