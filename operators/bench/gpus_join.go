package bench

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
)

// passesAhead is the batches that a pipelined join sends before it partitions the first of them again.
const passesAhead = 3

// spreadJoin is a form of the join.
type spreadJoin struct {
	sides    [2]layout
	blocking bool // the exchange ends before the second pass begins
	pairs    bool // the result is the pairs, not only their number and sum
	heavy    bool // heavy keys are found, and joined where they are
	// roomForAll says that regions have room for heavy keys too.
	roomForAll bool
}

// The forms of joins that one device has too.
const (
	countForm = "join"
	pairsForm = "join with pairs"
)

// addJoins adds the joins of rows in device memory.
func (s *distributed) addJoins() (layouts []layout) {
	add := func(name string, chunks int, direct, blocking, pairs bool) {
		j := spreadJoin{sides: s.sides(chunks, direct), blocking: blocking, pairs: pairs}
		layouts = append(layouts, j.sides[:]...)
		form := countForm
		if pairs {
			form, name = pairsForm, name+", pairs in device memory"
		}
		s.addJoin(name, form, j)
	}
	if len(s.members) == 1 {
		add("join on one device", 1, true, true, false)
		add("join on one device", 1, true, true, true)
		return layouts
	}
	add("GPJ-B, blocking, stores", 1, true, true, false)
	add("GPJ-B, blocking, copies", 1, false, true, false)
	for _, chunks := range s.chunks() {
		if chunks > 1 && chunks <= mostChunks {
			add(fmt.Sprintf("GPJ, pipelined, %d chunks, copies", chunks), chunks, false, false, false)
		}
	}
	add("GPJ, pipelined, 4 chunks, stores", 4, true, false, false)
	add("GPJ, pipelined, 4 chunks, copies", 4, false, false, true)
	return layouts
}

// sides returns the layouts of a join with chunks of the probe side.
func (s *distributed) sides(chunks int, direct bool) [2]layout {
	return [2]layout{s.layout(buildSide, 1, 1<<s.bits, direct), s.layout(probeSide, chunks, 1<<s.bits, direct)}
}

// addJoin adds a join.
func (s *distributed) addJoin(name, form string, j spreadJoin) *spreadCase {
	rows := s.sizes[buildSide] + s.sizes[probeSide]
	all := int64(rows) * int64(len(s.members))
	return s.addCase(spreadCase{name: name, form: form, rows: all, bytes: all * 16,
		bound: func(own time.Duration) (string, time.Duration) {
			if link := s.link(rows); link > own {
				return "copy engines", link
			}
			return "one device", own
		},
		run: func() (time.Duration, error) { return s.join(j) }})
}

// found is the result of a join: the number of pairs, and the sum of the values of both sides.
type found struct{ pairs, sum atomic.Uint64 }

func (f *found) add(pairs, sum uint64) {
	f.pairs.Add(pairs)
	f.sum.Add(sum)
}

// check checks the result of a join of all rows.
func (s *distributed) check(f *found) error {
	if err := s.complete(); err != nil {
		return err
	}
	pairs, sum := f.pairs.Load(), f.sum.Load()
	if want := uint64(s.sizes[probeSide] * len(s.members)); pairs != want || sum != s.matches {
		return fmt.Errorf("%w: %d pairs, want %d; their sum is %d, want %d", ErrWrong, pairs, want, sum, s.matches)
	}
	return nil
}

// join joins both sides. If a sample promised that most rows stay where they are, and more rows come, it begins again
// with room for all.
func (s *distributed) join(f spreadJoin) (time.Duration, error) {
	took, err := s.joinWith(f)
	if f.heavy && !f.roomForAll && errors.Is(err, errNoRoom) {
		f.roomForAll = true
		again, err := s.joinWith(f)
		return took + again, err
	}
	return took, err
}

// joinWith exchanges both sides, partitions what arrives again, and counts the pairs. In the pipelined form a device
// partitions a chunk, receives the one before, and makes the second pass of the one before that.
func (s *distributed) joinWith(f spreadJoin) (time.Duration, error) {
	defer s.endRun()
	type part struct {
		*sending
		chunk int
	}
	build, probe := f.sides[buildSide].sending(), f.sides[probeSide].sending()
	if f.heavy {
		h := s.heavyKeys(probe)
		h.roomForAll = f.roomForAll || len(s.members) == 1 // which copies no room
		build.heavy, probe.heavy = h, h
	}
	list := []part{{build, 0}}
	for c := range probe.chunks {
		list = append(list, part{probe, c})
	}
	ahead := passesAhead
	if f.blocking {
		ahead = len(list)
	}
	var result found
	took, err := s.all(func(m *member) error {
		var parted []gpu.PartitionedRuns
		defer func() {
			for _, p := range parted {
				p.Release()
			}
		}()
		if err := build.heavy.find(m); err != nil {
			return err
		}
		sent := 0
		for i, x := range list {
			for ; sent < min(i+ahead, len(list)); sent++ {
				if err := m.send(list[sent].sending, list[sent].chunk); err != nil {
					return err
				}
			}
			arriving := list[i : i+1]
			if f.blocking && i == 0 {
				arriving = list
			}
			for _, x := range arriving {
				if err := m.await(x.sending, x.chunk); err != nil {
					return err
				}
			}
			p, err := m.secondPass(x.sending, x.chunk, s.second())
			if err != nil {
				return err
			}
			parted = append(parted, p)
		}
		var out []gpu.Column
		if f.pairs {
			out = m.pairs
		}
		pairs, sum, err := m.x.CountMatches(m.l, parted[:1], parted[1:], len(s.members), s.second(), out...)
		if f.pairs && err == nil && int(pairs) > out[0].Len {
			err = fmt.Errorf("%d pairs, and there is room for %d", pairs, out[0].Len)
		}
		result.add(pairs, sum)
		if err == nil && f.heavy {
			err = build.heavy.addTo(m, &result)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return took, s.check(&result)
}

// secondPass partitions the tuples of a chunk again.
func (m *member) secondPass(x *sending, chunk int, d gpu.Digit) (gpu.PartitionedRuns, error) {
	runs, _ := m.arrived(x, chunk)
	room, slot := x.resulting(d), chunk%x.slots
	return m.x.PartitionRuns(m.l, m.viewTuples(m.parted[x.side], slot*room, (slot+1)*room), runs, d)
}
