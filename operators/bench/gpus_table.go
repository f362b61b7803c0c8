package bench

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/gstream/gstream/gpu"
)

// tableForm is a join by a hash table in device memory.
const tableForm = "join by a table"

// addTables adds GPJ in the form of the paper: each device inserts the build rows that arrive into a hash table in its
// memory, and probes it with each chunk of the probe side while the next one travels.
func (s *distributed) addTables() (layouts []layout) {
	for _, chunks := range s.chunks() {
		if chunks != 1 && chunks != 4 && chunks != mostChunks {
			continue
		}
		name := fmt.Sprintf("GPJ, hash table, %d chunks", chunks)
		if chunks == 1 {
			name = "GPJ-B, hash table"
		}
		f := spreadStream{sides: s.sides(chunks, len(s.members) == 1), table: true}
		layouts = append(layouts, f.sides[:]...)
		s.addTable(name, func() (time.Duration, error) { return s.stream(f) })
	}
	if !s.hasLink() {
		return layouts
	}
	f := s.fromHost()
	f.table = true
	probe := int64(s.sizes[probeSide] * len(s.members))
	s.addCase(spreadCase{name: "GPJ, hash table, probe side in host memory", form: tableForm + " from host",
		rows: probe, bytes: probe * 16, run: func() (time.Duration, error) { return s.stream(f) }})
	return append(layouts, f.sides[:]...)
}

// addTable adds a join by a table of rows in device memory.
func (s *distributed) addTable(name string, run func() (time.Duration, error)) {
	all := int64(s.sizes[buildSide]+s.sizes[probeSide]) * int64(len(s.members))
	s.addCase(spreadCase{name: name, form: tableForm, rows: all, bytes: all * 16, run: run})
}

// tableRows are the build rows that a device has room for in a table.
func (s *distributed) tableRows() int {
	n, ways := len(s.members), 1<<s.bits
	return s.roomOf(s.sizes[buildSide] * n * s.mostWays() / ways)
}

// mostWays is the most bins of a device.
func (s *distributed) mostWays() int { return (1<<s.bits + len(s.members) - 1) / len(s.members) }

// slots is the digit of the slot of a table. Tuples arrive in the order of bins, which are consecutive slots: the part
// of a table that is in use is small.
func (s *distributed) slots() gpu.Digit {
	bins := uint(bits.Len(uint(s.mostWays() - 1)))
	d := gpu.Digit{Bits: max(bins+1, uint(bits.Len(uint(s.tableRows()-1)))), Factor: spreadFactor}
	d.Shift = 64 - s.bits - (d.Bits - bins)
	return d
}

// newTable returns an empty table. It is released at the end of the run, but for its entries.
func (m *member) newTable() (gpu.TupleTable, error) {
	if rows := 2 * m.tableRows(); m.entries.Len == 0 {
		buf, err := m.l.Alloc(int64(rows) * 16)
		if err != nil {
			return gpu.TupleTable{}, err
		}
		m.entries = gpu.Column{Type: gpu.TupleType(8), Len: rows, Data: buf}
	}
	t, err := gpu.NewTupleTable(m.x, m.l, m.entries, m.slots())
	if err == nil {
		m.columns = append(m.columns, t.Heads, t.Used)
	}
	return t, err
}

// tableChunks inserts the build side into a table, and probes it with chunks.
type tableChunks struct {
	m                    *member
	buildSide, probeSide *sending
	table                gpu.TupleTable
	found                gpu.Column
	result               *found
}

func (t *tableChunks) build() (err error) {
	m := t.m
	if t.table, err = m.newTable(); err != nil {
		return err
	}
	if t.found, err = m.x.Zeros(m.l, gpu.Of(gpu.Uint64), 2); err != nil {
		return err
	}
	m.columns = append(m.columns, t.found)
	runs, _ := m.arrived(t.buildSide, 0)
	return m.x.InsertTuples(m.l, t.table, runs)
}

func (t *tableChunks) probe(chunk int) error {
	runs, _ := t.m.arrived(t.probeSide, chunk)
	return t.m.x.ProbeTuples(t.m.l, t.table, runs, t.found)
}

func (t *tableChunks) end() error {
	sums, err := t.m.download(t.found)
	if err != nil {
		return err
	}
	t.result.add(sums[0], sums[1])
	return t.m.fits(t.table)
}

func (t *tableChunks) release() {}

// fits returns an error if a table had too little room.
func (m *member) fits(t gpu.TupleTable) error {
	used, err := m.download(t.Used)
	if room := t.Entries.Len / 2; err == nil && int(used[0]) > room {
		err = fmt.Errorf("%d build rows, and the hash table has room for %d", used[0], room)
	}
	return err
}
