package aggregate

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/move"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
	"github.com/gstream/gstream/gpu/host/internal/word"
)

// ArgMinMax keeps the first or last row of each group in some order: gpu.ArgMinMaxState without a
// queue. It has a copy of the columns of each selected row.
type ArgMinMax struct {
	lease  *gpu.Lease
	spec   gpu.ArgMinMax
	cells  []cells               // by column
	first  memory.Vector[uint64] // word of each selected row's first key, see words; the greatest word for none
	flips  []func([]uint64)      // of the keys of at most 8 bytes
	groups int                   // of the last update
}

// cells has the values of a column, one per group, stored by their width.
type cells struct {
	typ   gpu.Type
	valid memory.Vector[uint8]
	words memory.Vector[uint64]
	wide  memory.Vector[gpu.Int128]
	texts texts
}

// NewArgMinMax returns a state without groups. The lease pays for it.
func NewArgMinMax(l *gpu.Lease, spec gpu.ArgMinMax) (*ArgMinMax, error) {
	if err := gpu.CheckArgMinMax(spec); err != nil {
		return nil, err
	}
	x := &ArgMinMax{lease: l, spec: spec}
	for i, t := range spec.Columns {
		x.cells = append(x.cells, cells{typ: t})
		if i > 0 && i <= len(spec.Order) {
			x.flips = append(x.flips, word.ToOrdered(t))
		}
	}
	return x, nil
}

// Update compares rows with the selected rows of their groups, whose ids are below groups: all rows or, if
// memory is denied, none.
func (x *ArgMinMax) Update(cores parallel.Cores, ids []int32, cols []gpu.Column, groups int) (err error) {
	if err := gpu.CheckArgMinMaxInput(x.spec, cols, len(ids)); err != nil {
		return err
	}
	plain := make([]gpu.Column, len(cols))
	defer func() { gpu.ReleaseColumns(plain) }()
	for i, c := range cols {
		if plain[i] = c.Retain(); c.Dict != nil && !c.Type.IsVar() {
			c.Release()
			if plain[i], err = move.Expand(cores, x.lease, c); err != nil {
				return err
			}
		}
	}
	if err := x.update(ids, plain, groups); err != nil {
		return err
	}
	x.groups = groups
	return nil
}

// update finds the rows that are ahead of the selected ones, makes room for them, and then copies
// those that are still ahead.
func (x *ArgMinMax) update(ids []int32, cols []gpu.Column, groups int) error {
	for i := range x.cells {
		if err := x.cells[i].grow(x.lease, groups); err != nil {
			return err
		}
	}
	if err := x.first.Grow(x.lease, groups, math.MaxUint64); err != nil {
		return err
	}
	words, err := memory.New[uint64](x.lease, len(ids))
	if err != nil {
		return err
	}
	defer words.Release()
	list, err := memory.New[int32](x.lease, len(ids))
	if err != nil {
		return err
	}
	defer list.Release()
	x.words(words.V, cols)
	rows, first := list.V[:0], x.first.V
	for i, id := range ids {
		if w := words.V[i]; w <= first[id] && cols[0].IsValid(i) && (w < first[id] || x.ahead(cols, i, int(id))) {
			rows = append(rows, int32(i))
		}
	}
	for k := range x.cells {
		if err := x.cells[k].room(x.lease, cols[k], ids, rows); err != nil {
			return err
		}
	}
	if x.spec.Last {
		slices.Reverse(rows) // so that fewer rows are copied
	}
	for _, i := range rows {
		id, w := ids[i], words.V[i]
		if w > first[id] || w == first[id] && !x.ahead(cols, int(i), int(id)) {
			continue
		}
		first[id] = w
		for k := range x.cells {
			x.cells[k].put(cols[k], int(i), int(id))
		}
	}
	return nil
}

// words returns words in the order of the first key, or of the position: if a row has a lower word,
// it comes first.
func (x *ArgMinMax) words(words []uint64, cols []gpu.Column) {
	if len(x.spec.Order) == 0 {
		copy(words, gpu.Values[uint64](cols[0].Data, len(words)))
		if x.spec.Last {
			invert(words)
		}
		return
	}
	c, by := cols[1], x.spec.Order[0]
	switch {
	case c.Type.IsVar():
		for i := range words {
			if c.IsValid(i) {
				words[i] = word.Prefix(c.VarValue(i))
			}
		}
	case c.Type.Wide:
		for i, v := range gpu.Values[gpu.Int128](c.Data, len(words)) {
			words[i] = uint64(v.Hi) ^ 1<<63
		}
	default:
		word.Load(words, c, 0)
		x.flips[0](words)
	}
	if by.Descending {
		invert(words)
	}
	if c.Valid == nil {
		return
	}
	null := uint64(math.MaxUint64)
	if by.NullsFirst {
		null = 0
	}
	for i := range words {
		if !c.IsValid(i) {
			words[i] = null
		}
	}
}

func invert(words []uint64) {
	for i := range words {
		words[i] = ^words[i]
	}
}

// ahead reports whether a row comes before the selected row of a group.
func (x *ArgMinMax) ahead(cols []gpu.Column, row, id int) bool {
	if x.cells[0].valid.V[id] == 0 {
		return true
	}
	for k, by := range x.spec.Order {
		c, s := cols[1+k], &x.cells[1+k]
		there, has := c.IsValid(row), s.valid.V[id] != 0
		order := 0
		switch {
		case there != has:
			return there != by.NullsFirst
		case !there:
			continue
		default:
			order = s.compare(c, row, id, x.flips[k])
		}
		if order != 0 {
			return order < 0 != by.Descending
		}
	}
	at, was := gpu.Values[int64](cols[0].Data, cols[0].Len)[row], int64(x.cells[0].words.V[id])
	if x.spec.Last {
		return at > was
	}
	return at < was
}

// compare compares a value with that of a group; neither is null.
func (s *cells) compare(c gpu.Column, row, id int, flip func([]uint64)) int {
	switch {
	case s.typ.IsVar():
		return bytes.Compare(c.VarValue(row), s.texts.value(id))
	case s.typ.Wide:
		v, w := gpu.Values[gpu.Int128](c.Data, c.Len)[row], s.wide.V[id]
		switch {
		case v.Less(w):
			return -1
		case w.Less(v):
			return 1
		}
		return 0
	}
	w := [2]uint64{orderedBits(s.typ, rawWord(c, row)), orderedBits(s.typ, s.words.V[id])}
	flip(w[:])
	switch {
	case w[0] < w[1]:
		return -1
	case w[0] > w[1]:
		return 1
	}
	return 0
}

// rawWord returns the bits of a value of at most 8 bytes.
func rawWord(c gpu.Column, i int) uint64 {
	n := c.Len
	switch c.Type.Width() {
	case 1:
		return uint64(gpu.Values[uint8](c.Data, n)[i])
	case 2:
		return uint64(gpu.Values[uint16](c.Data, n)[i])
	case 4:
		return uint64(gpu.Values[uint32](c.Data, n)[i])
	case 8:
		return gpu.Values[uint64](c.Data, n)[i]
	}
	return gpu.Words(c.Data, n)[i/64] >> (i % 64) & 1
}

// orderedBits turns the bits of a value into a word, as word.Load does.
func orderedBits(t gpu.Type, w uint64) uint64 {
	switch {
	case t.Kind == gpu.Float32:
		return uint64(math.Float32bits(word.Canonical(math.Float32frombits(uint32(w)))))
	case t.Kind == gpu.Float64:
		return math.Float64bits(word.Canonical(math.Float64frombits(w)))
	case t.Kind == gpu.Bool || t.IsUnsigned():
		return w
	}
	shift := 64 - 8*t.Width()
	return uint64(int64(w<<shift) >> shift)
}

func (s *cells) grow(l *gpu.Lease, groups int) error {
	if err := s.valid.Grow(l, groups, 0); err != nil {
		return err
	}
	switch {
	case s.typ.IsVar():
		return s.texts.grow(l, groups)
	case s.typ.Wide:
		return s.wide.Grow(l, groups, gpu.Int128{})
	}
	return s.words.Grow(l, groups, 0)
}

// room makes room for the values of some rows.
func (s *cells) room(l *gpu.Lease, c gpu.Column, ids, rows []int32) error {
	if !s.typ.IsVar() {
		return nil
	}
	need := 0
	for _, i := range rows {
		if c.IsValid(int(i)) {
			need += s.texts.need(int(ids[i]), len(c.VarValue(int(i))))
		}
	}
	return s.texts.room(l, need)
}

// put sets the value of a group to that of a row.
func (s *cells) put(c gpu.Column, row, id int) {
	if !c.IsValid(row) {
		s.valid.V[id] = 0
		return
	}
	s.valid.V[id] = 1
	switch {
	case s.typ.IsVar():
		s.texts.put(id, c.VarValue(row))
	case s.typ.Wide:
		s.wide.V[id] = gpu.Values[gpu.Int128](c.Data, c.Len)[row]
	default:
		s.words.V[id] = rawWord(c, row)
	}
}

// Result returns a column of the selected rows of groups [from, to).
func (x *ArgMinMax) Result(l *gpu.Lease, column, from, to int) (gpu.Column, error) {
	if err := gpu.CheckGroups("arg_min", from, to, x.groups); err != nil {
		return gpu.Column{}, err
	}
	if column < 0 || column >= len(x.cells) {
		return gpu.Column{}, fmt.Errorf("column %d of an arg_min with %d", column, len(x.cells))
	}
	out := gpu.Column{Type: x.spec.Columns[column], Len: to - from}
	if err := x.cells[column].write(l, &out, from, to); err != nil {
		out.Release()
		return gpu.Column{}, err
	}
	return out, nil
}

func (s *cells) write(l *gpu.Lease, out *gpu.Column, from, to int) (err error) {
	there := presence{seen: s.valid}
	if out.Valid, err = there.valid(l, from, to); err != nil {
		return err
	}
	if s.typ.IsVar() {
		return s.texts.write(l, out, from, to, func(i int) bool { return s.valid.V[i] != 0 })
	}
	if err := allocValues(l, out); err != nil {
		return err
	}
	switch {
	case s.typ.Wide:
		copy(gpu.Values[gpu.Int128](out.Data, out.Len), s.wide.V[from:to])
	case s.typ.Kind == gpu.Bool:
		words := gpu.Words(out.Data, out.Len)
		clear(words)
		for i, v := range s.words.V[from:to] {
			words[i/64] |= v & 1 << (i % 64)
		}
	default:
		for i, v := range s.words.V[from:to] {
			word.Store(*out, i, v)
		}
	}
	return nil
}

// Release releases the copies.
func (x *ArgMinMax) Release() {
	x.first.Release()
	for i := range x.cells {
		s := &x.cells[i]
		s.valid.Release()
		s.words.Release()
		s.wide.Release()
		s.texts.release()
	}
}
