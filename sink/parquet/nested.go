package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A nested column is written as the chunks of its leaves. Each entry of a leaf has a definition level, which says up to
// which node on the way to the leaf there is a value, and a repetition level, which says which list on the way the
// entry continues; 0 begins a row. All fields and elements are optional, except the keys of maps, which the format
// requires.

// node is a node of the schema of a nested column.
type node struct {
	element  format.SchemaElement
	kind     gpu.Kind // of a nested value; Invalid for a leaf
	optional bool
	def, rep uint8 // levels of its values, and of the elements of a list
	children []*node
	leaf     int // of a leaf
	first    int // the leaves below are [first, last)
	last     int
}

// nestedNode returns the node of a value, and appends its leaves to those of c. def and rep are the levels of its
// parent.
func (c *column) nestedNode(f gpu.Field, path []string, def, rep uint8) (*node, error) {
	n := &node{optional: f.Nullable, kind: f.Type.Kind, first: len(c.leaves)}
	if f.Nullable {
		def++
	}
	path = append(path[:len(path):len(path)], f.Name)
	group := func(name string, repetition format.FieldRepetitionType, children int) format.SchemaElement {
		return format.SchemaElement{Name: name, RepetitionType: thrift.New(repetition),
			NumChildren: thrift.New(int32(children))}
	}
	repetition := format.Required
	if f.Nullable {
		repetition = format.Optional
	}
	children := slices.Clone(f.Type.Children())
	n.def, n.rep = def, rep
	switch f.Type.Kind {
	case gpu.List, gpu.Map:
		n.def, n.rep = def+1, rep+1
		n.element = group(f.Name, repetition, 1)
		inner := "list"
		if f.Type.Kind == gpu.Map {
			inner = "key_value"
			n.element.LogicalType.Value = new(format.MapType)
			n.element.ConvertedType = thrift.New(deprecated.Map)
			children[0].Nullable = false
		} else {
			n.element.LogicalType.Value = new(format.ListType)
			n.element.ConvertedType = thrift.New(deprecated.List)
			children = []gpu.Field{{Name: "element", Type: children[0].Type, Nullable: true}}
		}
		path = append(path, inner)
	case gpu.Struct:
		n.element = group(f.Name, repetition, len(children))
	default:
		interval := f.Type.Kind == gpu.Interval
		if interval {
			f = gpu.Field{Name: f.Name, Type: gpu.Of(gpu.Binary), Nullable: f.Nullable}
		}
		leaf, err := newColumn(f)
		if err != nil {
			return nil, err
		}
		if interval {
			leaf.physical, leaf.width, leaf.interval = format.FixedLenByteArray, storedInterval, true
		}
		leaf.path, leaf.maxDef, leaf.maxRep = path, def, rep
		n.element, n.kind, n.leaf = leaf.element(), gpu.Invalid, len(c.leaves)
		leaf.field.Nullable = def > 0 // an entry may be null also because of a node around it
		c.leaves = append(c.leaves, leaf)
		n.last = len(c.leaves)
		return n, nil
	}
	if len(children) == 0 {
		return nil, fmt.Errorf("column %q has a STRUCT without fields, which Parquet does not have", c.field.Name)
	}
	for _, child := range children {
		k, err := c.nestedNode(child, path, n.def, n.rep)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, k)
	}
	n.last = len(c.leaves)
	return n, nil
}

// elements returns the schema elements of the node, depth first.
func (n *node) elements() []format.SchemaElement {
	out := []format.SchemaElement{n.element}
	switch n.kind {
	case gpu.List:
		out = append(out, format.SchemaElement{Name: "list", RepetitionType: thrift.New(format.Repeated),
			NumChildren: thrift.New(int32(1))})
	case gpu.Map:
		out = append(out, format.SchemaElement{Name: "key_value", RepetitionType: thrift.New(format.Repeated),
			NumChildren: thrift.New(int32(2))})
	}
	for _, c := range n.children {
		out = append(out, c.elements()...)
	}
	return out
}

// entries are the entries of one leaf, in memory of the lease.
type entries struct {
	lease      *gpu.Lease
	t          gpu.Type
	n          int
	reps, defs growing
	data       growing
	offsets    growing // ends of the values, for types of any length
	valid      growing // a byte for each entry
}

// growing is a buffer that grows.
type growing struct {
	buf *gpu.Buffer
	b   []byte
}

// room makes room for n more bytes.
func (g *growing) room(l *gpu.Lease, n int) error {
	if g.buf != nil && len(g.b)+n <= cap(g.b) {
		return nil
	}
	buf, err := l.Alloc(int64(max(2*len(g.b), len(g.b)+n, 1<<10)))
	if err != nil {
		return err
	}
	fresh := buf.Bytes()[:len(g.b):buf.Size()]
	copy(fresh, g.b)
	g.buf.Release()
	g.buf, g.b = buf, fresh
	return nil
}

func (e *entries) release() {
	for _, g := range []*growing{&e.reps, &e.defs, &e.data, &e.offsets, &e.valid} {
		g.buf.Release()
	}
}

// add appends an entry, without a value.
func (e *entries) add(rep, def uint8, valid byte) error {
	if e.n == gpu.MaxRows {
		return gpu.Exceeded("a row group has more than %d values in a list; lower row_group_rows", gpu.MaxRows)
	}
	for _, g := range []*growing{&e.reps, &e.defs, &e.valid} {
		if err := g.room(e.lease, 1); err != nil {
			return err
		}
	}
	e.reps.b, e.defs.b, e.valid.b = append(e.reps.b, rep), append(e.defs.b, def), append(e.valid.b, valid)
	e.n++
	if valid == 1 {
		return nil
	}
	if e.t.IsVar() {
		return e.end()
	}
	return e.value(make([]byte, max(e.t.Width(), 1)))
}

func (e *entries) value(b []byte) error {
	if err := e.data.room(e.lease, len(b)); err != nil {
		return err
	}
	e.data.b = append(e.data.b, b...)
	return nil
}

// end ends a value of any length.
func (e *entries) end() error {
	if len(e.data.b) > maxPage {
		return gpu.Exceeded("the values of a row group take more than 2 GiB; lower row_group_rows")
	}
	if err := e.offsets.room(e.lease, 4); err != nil {
		return err
	}
	e.offsets.b = binary.LittleEndian.AppendUint32(e.offsets.b, uint32(len(e.data.b)))
	return nil
}

// scalar appends an entry with a value.
func (e *entries) scalar(rep, def uint8, encoded string) error {
	if err := e.add(rep, def, 1); err != nil {
		return err
	}
	v := gpu.ScalarNested(encoded, e.t)
	if e.t.IsVar() {
		if err := e.data.room(e.lease, len(v.Str)); err != nil {
			return err
		}
		e.data.b = append(e.data.b, v.Str...)
		return e.end()
	}
	if err := e.data.room(e.lease, 16); err != nil {
		return err
	}
	e.data.b = gpu.AppendStored(e.data.b, v)
	return nil
}

// column returns the values as a column, whose bitmaps are new memory of the lease.
func (e *entries) column() (c gpu.Column, err error) {
	c = gpu.Column{Type: e.t, Len: e.n}
	if c.Valid, err = e.bitmap(e.valid.b); err != nil {
		return c, err
	}
	if e.t.Kind == gpu.Bool {
		c.Data, err = e.bitmap(e.data.b)
		return c, err
	}
	if e.data.buf == nil {
		if err := e.data.room(e.lease, 1); err != nil {
			return c, err
		}
	}
	c.Data, c.Offsets = e.data.buf.Retain(), e.offsets.buf.Retain()
	return c, nil
}

func (e *entries) bitmap(b []byte) (*gpu.Buffer, error) {
	buf, err := e.lease.Alloc(gpu.BitmapBytes(len(b)))
	if err != nil {
		return nil, err
	}
	out := buf.Bytes()
	clear(out)
	for i, v := range b {
		out[i/8] |= v & 1 << (i % 8)
	}
	return buf, nil
}

// encodeNested encodes the leaves of a nested column of a row group.
func (e *encoder) encodeNested(c *column, ranges []rowRange) (*encodedChunk, error) {
	out := &encodedChunk{}
	s := shredder{column: c, leaves: make([]entries, len(c.leaves))}
	defer func() {
		for i := range s.leaves {
			s.leaves[i].release()
		}
	}()
	for i := range s.leaves {
		l := &s.leaves[i]
		l.lease, l.t = e.lease, c.leaves[i].field.Type
		if l.t.IsVar() {
			if err := l.end(); err != nil {
				return nil, err
			}
		}
	}
	for _, q := range ranges {
		if err := s.rows(q); err != nil {
			return nil, err
		}
	}
	for i := range s.leaves {
		k, err := e.encodeLeaf(&c.leaves[i], &s.leaves[i])
		if err != nil {
			out.release()
			return nil, err
		}
		out.leaves = append(out.leaves, k)
	}
	return out, nil
}

func (e *encoder) encodeLeaf(c *column, l *entries) (*encodedChunk, error) {
	values, err := l.column()
	defer values.Release()
	if err != nil {
		return nil, err
	}
	e.reps, e.defs = l.reps.b, l.defs.b
	defer func() { e.reps, e.defs = nil, nil }()
	return e.encode(c, []rowRange{{values, 0, l.n}}, l.n)
}

// shredder divides nested values into the entries of their leaves.
type shredder struct {
	*column
	leaves []entries
}

func (s *shredder) rows(q rowRange) error {
	v := q.col
	for i := q.from; i < q.to; i++ {
		if !v.IsValid(i) {
			if !s.node.optional {
				return fmt.Errorf("column %q has nulls, but its schema says that it has none", s.field.Name)
			}
			if err := s.absent(s.node, 0, 0); err != nil {
				return err
			}
			continue
		}
		b := v.VarValue(i)
		if err := s.value(s.node, unsafe.String(unsafe.SliceData(b), len(b)), 0); err != nil {
			return err
		}
	}
	return nil
}

// absent appends an entry without a value to all leaves of a node.
func (s *shredder) absent(n *node, rep, def uint8) error {
	for i := n.first; i < n.last; i++ {
		if err := s.leaves[i].add(rep, def, 0); err != nil {
			return err
		}
	}
	return nil
}

// child appends a field or an element, which may be null. parent is the definition level of what it is in.
func (s *shredder) child(n *node, encoded string, rep, parent uint8) error {
	if !gpu.IsNullNested(encoded) {
		return s.value(n, encoded, rep)
	}
	if !n.optional {
		return fmt.Errorf("column %q has a map with a NULL as a key, which a file cannot have", s.field.Name)
	}
	return s.absent(n, rep, parent)
}

// value appends a value.
func (s *shredder) value(n *node, encoded string, rep uint8) error {
	if n.kind == gpu.Invalid {
		if s.column.leaves[n.leaf].interval {
			value, err := s.storeInterval(gpu.PartsOfInterval(encoded))
			if err != nil {
				return err
			}
			encoded = value
		}
		return s.leaves[n.leaf].scalar(rep, n.def, encoded)
	}
	rest := gpu.ElementsNested(encoded)
	if n.kind == gpu.Struct {
		return s.fields(n, rest, rep)
	}
	empty := true
	for {
		element, more, ok := gpu.NextNested(rest)
		if !ok {
			break
		}
		var err error
		if n.kind == gpu.Map {
			err = s.fields(n, gpu.ElementsNested(element), rep)
		} else {
			err = s.child(n.children[0], element, rep, n.def)
		}
		if err != nil {
			return err
		}
		rest, rep, empty = more, n.rep, false
	}
	if empty {
		return s.absent(n, rep, n.def-1)
	}
	return nil
}

// storedInterval is the bytes of an INTERVAL: months, days and milliseconds, each 32 bits without a sign.
const storedInterval = 12

// storeInterval returns the encoding of the bytes of an interval. Milliseconds that do not fit become days.
func (s *shredder) storeInterval(v gpu.IntervalParts) (string, error) {
	const perDay = 24 * 60 * 60 * 1000
	days, millis := int64(v.Days), v.Micros/1000
	if millis > math.MaxUint32 {
		days, millis = days+millis/perDay, millis%perDay
	}
	reason := ""
	switch {
	case v.Months < 0 || days < 0 || millis < 0:
		reason = "the format has no negative ones; write epoch(x), or x::VARCHAR"
	case days > math.MaxInt32:
		reason = "it is too long for the format"
	case v.Micros%1000 != 0:
		reason = "the format has milliseconds, and this one has microseconds; write epoch_us(x) or x::VARCHAR, or " +
			"round it before"
	default:
		b := binary.LittleEndian.AppendUint32(make([]byte, 0, storedInterval), uint32(v.Months))
		b = binary.LittleEndian.AppendUint32(b, uint32(days))
		return string(gpu.AppendBytes(nil, binary.LittleEndian.AppendUint32(b, uint32(millis)))), nil
	}
	return "", fmt.Errorf("column %q has the interval %v, which Parquet cannot store: %s", s.field.Name, v, reason)
}

func (s *shredder) fields(n *node, rest string, rep uint8) error {
	for _, c := range n.children {
		field, more, ok := gpu.NextNested(rest)
		if !ok {
			return fmt.Errorf("internal error: a value of column %q has too few fields; please report it", s.field.Name)
		}
		if err := s.child(c, field, rep, n.def); err != nil {
			return err
		}
		rest = more
	}
	return nil
}

// appendLevels appends levels with their size in front.
func appendLevels(dst, levels []byte, most uint8, scratch *[]byte) ([]byte, error) {
	packed, err := (&rle.Encoding{BitWidth: bits.Len8(most)}).EncodeLevels((*scratch)[:0], levels)
	*scratch = packed
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(packed)))
	return append(dst, packed...), err
}

// flat returns the chunks of the leaves of all columns.
func flat(chunks []*encodedChunk) (out []*encodedChunk) {
	for _, k := range chunks {
		if k.leaves != nil {
			out = append(out, k.leaves...)
		} else {
			out = append(out, k)
		}
	}
	return out
}

func (k *encodedChunk) release() {
	k.pages.release()
	for _, l := range k.leaves {
		l.release()
	}
}
