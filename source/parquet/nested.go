package parquet

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/gstream/gstream/gpu"
)

// A nested column is read from the chunks of its leaves, in order: which entries of a leaf belong to a row is known
// only when the entries before have been read. The tasks of the strides of a row group therefore take turns.

// nestedChunk is the part of an encodedChunk that has the leaves of a nested column.
type nestedChunk struct {
	root   *nestedNode
	lists  []*nestedNode // the lists around the leaf, if the column has nothing else
	rows   int64
	leaves []*leafCursor

	mu   sync.Mutex
	busy bool          // a task reads
	turn chan struct{} // closed when a task has read its rows; another one takes its place
	left int64         // first wanted row that no stride has got
	next int64         // first row that the cursors have not passed; owned by the task that reads
}

// leafCursor reads the entries of one leaf of a nested column, and their values. The values of a batch of entries are
// decoded together.
type leafCursor struct {
	pages      pageReader
	entries    int64 // of the chunk
	n, pos     int   // entries of the batch
	value      int   // position in values of the next one
	values     gpu.Column
	reps, defs [levelBatch]uint8
	// Of values of any length, offsets and bytes of the values or of their dictionary; else the encodings of the
	// values, of width bytes each.
	offsets []int32
	bytes   []byte
	width   int
}

// levelBatch is the number of entries that are decoded at a time.
const levelBatch = 4096

func newNestedChunk(c *encodedChunk) *nestedChunk {
	n := &nestedChunk{root: c.col.node, lists: listsAround(c.col.node), rows: c.rows, turn: make(chan struct{})}
	if len(c.wanted) > 0 {
		n.left = c.wanted[0].from
	}
	for i, part := range c.col.parts {
		m := &c.meta.parts[i]
		k := &encodedChunk{ctx: c.ctx, lease: c.lease, file: c.file, group: c.group, col: part, meta: m,
			rows: m.values, wanted: []rowRange{{0, m.values}}, off: m.start, end: m.start + m.size,
			left: m.values + 1} // until discard
		cursor := &leafCursor{entries: m.values, pages: pageReader{lease: c.lease, ready: func() {}}}
		cursor.pages.seek(k, 0, m.values)
		n.leaves = append(n.leaves, cursor)
	}
	return n
}

// begin waits for the turn of the task that reads rows from a row on, or returns a busyError.
func (n *nestedChunk) begin(pages *pageReader, from int64) error {
	for {
		n.mu.Lock()
		if !n.busy && n.left >= from {
			n.busy = true
			n.mu.Unlock()
			return nil
		}
		turn := n.turn
		n.mu.Unlock()
		if pages.mayDefer {
			return busyError{turn}
		}
		<-turn
	}
}

// end ends a turn. If the rows up to a row were read, later ones may be.
func (n *nestedChunk) end(pages *pageReader, wanted []rowRange, to int64, ok bool) {
	n.mu.Lock()
	n.busy = false
	if ok {
		n.left = math.MaxInt64
		for _, r := range wanted {
			if r.to > to {
				n.left = max(r.from, to)
				break
			}
		}
	}
	close(n.turn)
	n.turn = make(chan struct{})
	n.mu.Unlock()
	pages.ready()
}

func (n *nestedChunk) discard() {
	for _, c := range n.leaves {
		c.drop()
		c.pages.abandon()
		c.pages.encodedChunk.discard()
		c.pages.free()
	}
}

// decodeNested decodes a nested column of a stride.
func (r *reader) decodeNested(plan *stridePlan, i int, pages *pageReader) (col gpu.Column, err error) {
	b := nestedBuilder{lease: pages.lease, t: r.schema.Fields[i].Type, rows: plan.rows}
	at := location{column: r.schema.Fields[i].Name, rowGroup: -1}
	defer func() {
		if err != nil {
			b.discard()
			err = at.place(err)
		}
	}()
	if err := b.start(plan.nestedBytes(i)); err != nil {
		return col, err
	}
	for _, s := range plan.segments {
		at.path, at.rowGroup = s.file.path, s.group
		c := s.chunks[i]
		if c.col.constant != nil {
			if err := b.constant(*c.col.constant, int(s.to-s.from)); err != nil {
				return col, err
			}
			continue
		}
		if err := c.nested.begin(pages, s.from); err != nil {
			return col, err
		}
		if err := b.read(c, pages, s.from, s.to); err != nil {
			return col, err
		}
		pages.mayDefer = false
	}
	return b.column()
}

// read appends rows of a chunk, whose turn has begun. After an error the chunk is read again from its first row.
func (b *nestedBuilder) read(c *encodedChunk, pages *pageReader, from, to int64) (err error) {
	n := c.nested
	defer func() {
		if err != nil {
			n.discard()
			fresh := newNestedChunk(c)
			n.leaves, n.next = fresh.leaves, 0
		}
		n.end(pages, c.wanted, to, err == nil)
	}()
	defer guard(&err)
	b.leaves, b.base = n.leaves, n.root.first
	for ; n.next < from; n.next++ {
		for _, l := range n.leaves {
			if err := l.skipRow(); err != nil {
				return err
			}
		}
	}
	if n.lists != nil {
		if err := b.listRows(n.lists, int(to-n.next)); err != nil {
			return err
		}
		n.next = to
	}
	for ; n.next < to; n.next++ {
		if err := b.row(n.root); err != nil {
			return err
		}
	}
	if to == n.rows {
		for _, l := range n.leaves {
			if err := l.finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// fill decodes the next batch, and returns false at the end of the chunk.
func (l *leafCursor) fill() (bool, error) {
	c := &l.pages
	for c.left == 0 {
		if c.row == c.to {
			return false, nil
		}
		if err := c.nextPage(); err != nil {
			return false, err
		}
	}
	l.drop()
	n := min(c.left, levelBatch)
	top := c.col.maxDef
	if c.col.maxRep > 0 {
		if err := decode(&c.reps, l.reps[:n]); err != nil {
			return false, err
		}
	}
	m := n
	if c.hasLevels {
		if err := decode(&c.levels, l.defs[:n]); err != nil {
			return false, err
		}
		m = 0
		for _, d := range l.defs[:n] {
			if d > top {
				return false, badf("a definition level of %d, at most %d are possible", d, top)
			}
			if d == top {
				m++
			}
		}
	} else {
		for i := range l.defs[:n] {
			l.defs[i] = top
		}
	}
	if m > 0 {
		d := columnDecoder{lease: c.lease, t: c.col.as, rows: m}
		defer d.discard()
		if err := d.append(c, 0, m, m); err != nil {
			return false, err
		}
		values, err := d.column()
		if err != nil {
			return false, err
		}
		l.hold(values)
	}
	at := c.row
	c.taken(n)
	c.encodedChunk.release(at, c.row)
	l.n, l.pos = n, 0
	return true, nil
}

// hold keeps the values of a batch.
func (l *leafCursor) hold(values gpu.Column) {
	l.value = 0
	if values.Type.IsVar() {
		of := values
		if values.Dict != nil {
			of = values.Dict.Values
		}
		l.values, l.offsets, l.bytes = values, gpu.Values[int32](of.Offsets, of.Len+1), of.Data.Bytes()
		return
	}
	defer values.Release()
	l.width = gpu.NestedWidth(values.Type)
	if l.bytes == nil {
		l.bytes = make([]byte, levelBatch*l.width)
	}
	gpu.EncodeNested(l.bytes, values.Type, values.Data, 0, values.Len)
}

// drop releases the values of a batch.
func (l *leafCursor) drop() {
	l.values.Release()
	l.values, l.offsets = gpu.Column{}, nil
	l.n, l.pos, l.value = 0, 0, 0
}

// more makes the next entry available. It returns false at the end of the chunk.
func (l *leafCursor) more() (bool, error) {
	if l.pos < l.n {
		return true, nil
	}
	return l.fill()
}

// entry returns the levels of the next entry, which must be there.
func (l *leafCursor) entry() (rep, def uint8, err error) {
	ok, err := l.more()
	if err == nil && !ok {
		err = badf("the pages of %q end before the rows of the row group", l.pages.col.field.Name)
	}
	if err != nil {
		return 0, 0, err
	}
	return l.reps[l.pos], l.defs[l.pos], nil
}

// following returns the repetition level of the next entry, 0 at the end of the chunk.
func (l *leafCursor) following() (uint8, error) {
	if l.pos < l.n {
		return l.reps[l.pos], nil
	}
	ok, err := l.fill()
	if err != nil || !ok {
		return 0, err
	}
	return l.reps[0], nil
}

func (l *leafCursor) pass() {
	if l.defs[l.pos] == l.pages.col.maxDef {
		l.value++
	}
	l.pos++
}

func (l *leafCursor) skipRow() error {
	rep, _, err := l.entry()
	if err != nil {
		return err
	}
	if rep != 0 {
		return badLevels(l.pages.col.field.Name)
	}
	for {
		l.pass()
		if rep, err := l.following(); err != nil || rep == 0 {
			return err
		}
	}
}

// finish checks that all entries were read.
func (l *leafCursor) finish() error {
	if ok, err := l.more(); err != nil || ok {
		if err == nil {
			err = badf("the pages of %q have more rows than the row group", l.pages.col.field.Name)
		}
		return err
	}
	return l.pages.finish(l.entries)
}

func badLevels(name string) error {
	return badf("the levels of the field %q contradict each other, or those of another field", name)
}

// nestedBuilder puts the rows of a nested column together.
type nestedBuilder struct {
	lease  *gpu.Lease
	t      gpu.Type
	rows   int
	at     int // the next row
	leaves []*leafCursor
	base   int // position of the first leaf

	offsets, valid, data *gpu.Buffer
	out                  []byte // the bytes of data in use
}

// start makes room for the rows, which have about that many bytes.
func (b *nestedBuilder) start(size int64) (err error) {
	if b.offsets, err = b.lease.Alloc(int64(b.rows+1) * 4); err != nil {
		return err
	}
	gpu.Values[int32](b.offsets, 1)[0] = 0
	return b.reserve(int(min(size, maxVarBytes)))
}

// nestedBytes estimates the bytes of a nested column of a stride.
func (s *stridePlan) nestedBytes(column int) (size int64) {
	for _, g := range s.segments {
		group := &g.file.groups[g.group]
		size += int64(float64(group.chunks[column].rawSize) * float64(g.to-g.from) / float64(max(group.rows, 1)))
	}
	return size
}

// reserve makes room for n more bytes.
func (b *nestedBuilder) reserve(n int) error {
	if b.data != nil && len(b.out)+n <= cap(b.out) {
		return nil
	}
	if len(b.out)+n > maxVarBytes {
		return fitsOffsets(len(b.out) + n)
	}
	size := min(max(2*len(b.out), len(b.out)+n, b.rows), maxVarBytes)
	if b.at > 0 { // assume that later rows are like those so far
		size = max(len(b.out)+n, min(size, int(1.1*float64(len(b.out)+n)/float64(b.at)*float64(b.rows))+64))
	}
	buf, err := b.lease.Alloc(int64(size) + slack)
	if err != nil {
		return err
	}
	fresh := buf.Bytes()[:len(b.out):size]
	copy(fresh, b.out)
	b.data.Release()
	b.data, b.out = buf, fresh
	return nil
}

// row appends a row.
func (b *nestedBuilder) row(root *nestedNode) error {
	for _, l := range b.leaves {
		if rep, _, err := l.entry(); err != nil {
			return err
		} else if rep != 0 {
			return badLevels(l.pages.col.field.Name)
		}
	}
	if _, def, _ := b.leaves[0].entry(); root.null > 0 && def < root.null {
		if err := b.absent(root, root.null); err != nil {
			return err
		}
		return b.endRow(false)
	}
	if err := b.value(root); err != nil {
		return err
	}
	return b.endRow(true)
}

// endRow ends a row, which is null unless it is valid.
func (b *nestedBuilder) endRow(valid bool) error {
	if !valid && b.valid == nil {
		buf, err := b.lease.Alloc(gpu.BitmapBytes(b.rows))
		if err != nil {
			return err
		}
		b.valid = buf
		setBits(buf.Bytes(), 0, int(buf.Size())*8, true)
	}
	if !valid {
		putBit(b.valid.Bytes(), b.at, false)
	}
	b.at++
	gpu.Values[int32](b.offsets, b.rows+1)[b.at] = int32(len(b.out))
	return nil
}

// constant appends rows of a column that the file lacks.
func (b *nestedBuilder) constant(v gpu.Scalar, n int) error {
	for range n {
		if v.Valid {
			if err := b.reserve(len(v.Str)); err != nil {
				return err
			}
			b.out = append(b.out, v.Str...)
		}
		if err := b.endRow(v.Valid); err != nil {
			return err
		}
	}
	return nil
}

// absent passes the entries of all leaves of a node, which have no value at the definition level least.
func (b *nestedBuilder) absent(n *nestedNode, least uint8) error {
	for _, l := range b.leaves[n.first-b.base : n.last-b.base] {
		_, def, err := l.entry()
		if err != nil {
			return err
		}
		if def >= least {
			return badLevels(l.pages.col.field.Name)
		}
		l.pass()
	}
	return nil
}

// element appends a field or an element.
func (b *nestedBuilder) element(n *nestedNode) error {
	if n.nullable {
		_, def, err := b.leaves[n.first-b.base].entry()
		if err != nil {
			return err
		}
		if def < n.null {
			if err := b.reserve(1); err != nil {
				return err
			}
			b.out = gpu.AppendNull(b.out)
			return b.absent(n, n.null)
		}
	}
	return b.value(n)
}

// value appends the value of a node, which is not null.
func (b *nestedBuilder) value(n *nestedNode) error {
	switch {
	case n.list:
		return b.list(n)
	case len(n.children) == 0:
		return b.leaf(n)
	}
	if err := b.reserve(1); err != nil {
		return err
	}
	b.out = gpu.OpenNested(b.out)
	for _, c := range n.children {
		if err := b.element(c); err != nil {
			return err
		}
	}
	return b.close()
}

func (b *nestedBuilder) close() error {
	if err := b.reserve(1); err != nil {
		return err
	}
	b.out = gpu.CloseNested(b.out)
	return nil
}

func (b *nestedBuilder) list(n *nestedNode) error {
	lead := b.leaves[n.first-b.base]
	_, def, err := lead.entry()
	if err != nil {
		return err
	}
	if def < n.null {
		return badLevels(lead.pages.col.field.Name)
	}
	if err := b.reserve(1); err != nil {
		return err
	}
	b.out = gpu.OpenNested(b.out)
	if def < n.present {
		if err := b.absent(n, n.present); err != nil {
			return err
		}
		return b.close()
	}
	for {
		if err := b.element(n.children[0]); err != nil {
			return err
		}
		rep, err := lead.following()
		if err != nil {
			return err
		}
		for _, l := range b.leaves[n.first-b.base+1 : n.last-b.base] {
			if other, err := l.following(); err != nil {
				return err
			} else if other != rep {
				return badLevels(l.pages.col.field.Name)
			}
		}
		if rep > n.rep {
			return badLevels(lead.pages.col.field.Name)
		}
		if rep < n.rep {
			return b.close()
		}
		if _, def, err := lead.entry(); err != nil {
			return err
		} else if def < n.present {
			return badLevels(lead.pages.col.field.Name)
		}
	}
}

// leaf appends the value of a leaf.
func (b *nestedBuilder) leaf(n *nestedNode) error {
	l := b.leaves[n.first-b.base]
	if _, def, err := l.entry(); err != nil {
		return err
	} else if def < n.null {
		return badLevels(l.pages.col.field.Name)
	}
	i := l.value
	l.pass()
	if l.width > 0 {
		if err := b.reserve(l.width); err != nil {
			return err
		}
		b.out = append(b.out, l.bytes[i*l.width:(i+1)*l.width]...)
		return nil
	}
	if l.values.Dict != nil {
		i = l.values.Code(i)
	}
	s := l.bytes[l.offsets[i]:l.offsets[i+1]]
	if err := b.reserve(max(2*len(s)+3, gpu.IntervalBytes)); err != nil {
		return err
	}
	if n.t.Kind == gpu.Interval {
		b.out = gpu.AppendInterval(b.out, intervalOf(s))
		return nil
	}
	b.out = gpu.AppendBytes(b.out, s)
	return nil
}

// storedInterval is the bytes of an INTERVAL: months, days and milliseconds, each 32 bits without a sign.
const storedInterval = 12

func intervalOf(b []byte) gpu.IntervalParts {
	part := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	return gpu.IntervalParts{Months: int32(part(0)), Days: int32(part(1)), Micros: int64(part(2)) * 1000}
}

// column returns the column, and empties the builder.
func (b *nestedBuilder) column() (gpu.Column, error) {
	c := gpu.Column{Type: b.t, Len: b.rows, Data: b.data, Offsets: b.offsets, Valid: b.valid}
	*b = nestedBuilder{}
	return c, nil
}

func (b *nestedBuilder) discard() {
	for _, buf := range []*gpu.Buffer{b.offsets, b.valid, b.data} {
		buf.Release()
	}
	*b = nestedBuilder{}
}
