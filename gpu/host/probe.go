package host

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

// probeGrain is the rows of a piece of a probe.
const probeGrain = 1 << 13

// pairs are the matches of one piece.
type pairs struct {
	probe, build []int32
	next         int // first row not probed
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
	k, words, dead, err := t.keyWords(d, keys, n, false)
	if err != nil {
		return probe, build, 0, err
	}
	rest := n - from
	found := make([]*scan, (rest+probeGrain-1)/probeGrain)
	defer func() {
		for _, s := range found {
			if s != nil {
				s.t = nil
				scans.Put(s)
			}
		}
	}()
	withBuild := kind == gpu.Inner || kind == gpu.Left
	var stop atomic.Int64 // pieces from here on are not wanted in this call
	stop.Store(math.MaxInt64)
	err = d.parallel(rest, probeGrain, func(lo, hi int) error {
		piece := lo / probeGrain
		if int64(piece) >= stop.Load() {
			return nil
		}
		s := t.newScan(words, kind, limit)
		found[piece] = s
		s.run(k, from+lo, hi-lo, dead)
		if s.out.next < from+hi {
			for {
				old := stop.Load()
				if old <= int64(piece+1) || stop.CompareAndSwap(old, int64(piece+1)) {
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
	wanted := found
	for i, s := range found {
		total += len(s.out.probe)
		end := min(from+(i+1)*probeGrain, n)
		if s.out.next < end || total >= limit {
			next = s.out.next
			wanted = found[:i+1]
			break
		}
	}
	column := func(pick func(p *pairs) []int32) (gpu.Column, error) {
		buf, err := l.Alloc(int64(total) * 4)
		if err != nil {
			return gpu.Column{}, err
		}
		out := gpu.Values[int32](buf, total)
		for _, s := range wanted {
			out = out[copy(out, pick(&s.out)):]
		}
		return gpu.Column{Type: gpu.Of(gpu.Int32), Len: total, Data: buf}, nil
	}
	if probe, err = column(func(p *pairs) []int32 { return p.probe }); err != nil {
		return probe, build, 0, err
	}
	if withBuild {
		if build, err = column(func(p *pairs) []int32 { return p.build }); err != nil {
			probe.Release()
			return gpu.Column{}, build, 0, err
		}
	}
	return probe, build, next, nil
}

// scan probes one piece, block by block: independent loads of a whole block are
// in flight together.
type scan struct {
	t     *table
	kind  gpu.JoinKind
	limit int
	out   pairs
	words [][]uint64
}

const probeBlock = 512

// scans keeps the buffers of pieces for the next probe.
var scans = sync.Pool{New: func() any {
	return &scan{out: pairs{probe: make([]int32, 0, probeGrain), build: make([]int32, 0, probeGrain)}}
}}

func (t *table) newScan(words int, kind gpu.JoinKind, limit int) *scan {
	s := scans.Get().(*scan)
	if len(s.words) != words {
		s.words = blockWords(words)
	}
	*s = scan{t: t, kind: kind, limit: limit, words: s.words, out: pairs{probe: s.out.probe[:0], build: s.out.build[:0]}}
	return s
}

func (s *scan) run(k coded, lo, n int, dead []uint64) {
	t := s.t
	unique := t.ranks != nil && t.start == nil
	var first, last [probeBlock]int32 // entries, or row and row+1 for a unique table
	for at := 0; at < n; at += probeBlock {
		m := min(probeBlock, n-at)
		t.pack(k, lo+at, m, s.words)
		switch {
		case unique:
			for i, key := range s.words[0][:m] {
				first[i] = 0
				if r, ok := rank(t.ranks, key-t.lo); ok {
					first[i] = t.entries[r] + 1
				}
			}
		case t.ranks != nil:
			for i, key := range s.words[0][:m] {
				first[i], last[i] = 0, 0
				if r, ok := rank(t.ranks, key-t.lo); ok {
					first[i], last[i] = t.start[r], t.start[r+1]
				}
			}
		default:
			for i := range m {
				h := hashKey(s.words, i)
				b := t.buckets[h>>(64-t.bits)]
				first[i], last[i] = 0, 0
				if b&bloom(h) != 0 {
					first[i], last[i] = int32(b&bucketMask), int32(t.buckets[h>>(64-t.bits)+1]&bucketMask)
				}
			}
		}
		if dead != nil {
			for i := range m {
				if r := lo + at + i; dead[r/64]>>(r%64)&1 != 0 {
					first[i], last[i] = 0, 0
				}
			}
		}
		if unique {
			s.emitUnique(first[:m], lo+at)
			s.out.next = lo + at + m
			if len(s.out.probe) >= s.limit {
				return
			}
			continue
		}
		for i := range m {
			s.emit(i, lo+at+i, int(first[i]), int(last[i]))
			if len(s.out.probe) >= s.limit {
				s.out.next = lo + at + i + 1
				return
			}
		}
		s.out.next = lo + at + m
	}
}

// emitUnique appends the matches of a block of rows, given as row id + 1.
func (s *scan) emitUnique(rows []int32, at int) {
	probe, build := s.out.probe, s.out.build
	switch s.kind {
	case gpu.Inner:
		p, b := probe[len(probe):len(probe)+len(rows)], build[len(build):len(build)+len(rows)]
		k := 0
		for i, r := range rows {
			p[k], b[k] = int32(at+i), r-1
			if r != 0 {
				k++
			}
		}
		s.out.probe, s.out.build = probe[:len(probe)+k], build[:len(build)+k]
		return
	case gpu.Left:
		for i, r := range rows {
			probe, build = append(probe, int32(at+i)), append(build, r-1)
		}
	case gpu.Semi:
		for i, r := range rows {
			if r != 0 {
				probe = append(probe, int32(at+i))
			}
		}
	case gpu.Anti:
		for i, r := range rows {
			if r == 0 {
				probe = append(probe, int32(at+i))
			}
		}
	}
	s.out.probe, s.out.build = probe, build
}

// emit appends the matches of one row among entries [first, last). i is the
// row's place in the block.
func (s *scan) emit(i, row, first, last int) {
	t, matched := s.t, false
	for e := first; e < last; e++ {
		if t.ranks == nil && !s.equal(i, e) {
			continue
		}
		matched = true
		if s.kind == gpu.Semi || s.kind == gpu.Anti {
			break
		}
		s.out.probe = append(s.out.probe, int32(row))
		s.out.build = append(s.out.build, t.entries[e])
	}
	switch {
	case s.kind == gpu.Semi && matched, s.kind == gpu.Anti && !matched:
		s.out.probe = append(s.out.probe, int32(row))
	case s.kind == gpu.Left && !matched:
		s.out.probe = append(s.out.probe, int32(row))
		s.out.build = append(s.out.build, -1)
	}
}

func (s *scan) equal(i, e int) bool {
	for w, col := range s.t.words {
		if col[e] != s.words[w][i] {
			return false
		}
	}
	return true
}
