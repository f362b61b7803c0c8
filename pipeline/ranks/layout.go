package ranks

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// layout says which buffers a stride consists of. They follow each other column by column: data, offsets, validity, and
// then those of the dictionary.
type layout struct {
	Rows    int            `json:"rows"`
	Columns []columnLayout `json:"columns"`
}

// columnLayout has the bytes of the buffers of a column, 0 for one that is missing.
type columnLayout struct {
	Length    int           `json:"length"`
	Data      int64         `json:"data,omitempty"`
	Offsets   int64         `json:"offsets,omitempty"`
	Valid     int64         `json:"valid,omitempty"`
	CodeWidth int           `json:"code_width,omitempty"`
	Values    *columnLayout `json:"values,omitempty"`   // of the dictionary
	Distinct  bool          `json:"distinct,omitempty"` // of the dictionary
	// Same says that the dictionary is that of the column in the rows that were sent before, for the same exchange.
	Same bool `json:"same,omitempty"`
}

// dictionaries are those of the columns of the rows that were sent last, by exchange.
type dictionaries map[int][]*gpu.Dictionary

// set remembers a dictionary, with a reference of its own.
func (d dictionaries) set(exchange, column, columns int, to *gpu.Dictionary) {
	if d[exchange] == nil {
		d[exchange] = make([]*gpu.Dictionary, columns)
	}
	if old := d[exchange][column]; old != nil {
		old.Values.Release()
	}
	to.Values.Retain()
	d[exchange][column] = to
}

// of returns the dictionary of a column, nil for none.
func (d dictionaries) of(exchange, column int) *gpu.Dictionary {
	if column < len(d[exchange]) {
		return d[exchange][column]
	}
	return nil
}

// release forgets all.
func (d dictionaries) release() {
	for exchange, columns := range d {
		for _, x := range columns {
			if x != nil {
				x.Values.Release()
			}
		}
		delete(d, exchange)
	}
}

// layoutOf returns the layout of a stride, and its buffers.
func layoutOf(s *gpu.Stride, exchange int, sent dictionaries) (*layout, []gpu.Part, error) {
	out := &layout{Rows: s.Rows}
	var parts []gpu.Part
	for i, c := range s.Cols {
		if c.Pages != nil {
			return nil, nil, fmt.Errorf("column %d is in pages", i)
		}
		l := parted(c, &parts)
		if c.Dict != nil {
			if l.Same = sent.of(exchange, i) == c.Dict; !l.Same {
				values := parted(c.Dict.Values, &parts)
				l.Values, l.Distinct = &values, c.Dict.Distinct
				sent.set(exchange, i, len(s.Cols), c.Dict)
			}
		}
		out.Columns = append(out.Columns, l)
	}
	return out, parts, nil
}

// bytes returns how many bytes follow the layout.
func (l *layout) bytes() (all int64, err error) {
	add := func(c *columnLayout) {
		for _, n := range []int64{c.Data, c.Offsets, c.Valid} {
			if n < 0 || n > maxBuffer {
				err = fmt.Errorf("a buffer of %d bytes arrives", n)
			}
			all += n
		}
	}
	for i := range l.Columns {
		add(&l.Columns[i])
		if l.Columns[i].Values != nil {
			add(l.Columns[i].Values)
		}
	}
	return all, err
}

// parted returns the layout of a column without its dictionary, and adds its buffers.
func parted(c gpu.Column, parts *[]gpu.Part) columnLayout {
	add := func(b *gpu.Buffer, n int64) int64 {
		if n = min(n, b.Size()); n > 0 {
			*parts = append(*parts, gpu.Part{Buffer: b, Bytes: n})
		}
		return n
	}
	data := c.Data.Size()
	switch width := c.DataWidth(); {
	case width > 0:
		data = int64(c.Len) * int64(width)
	case c.Type.Kind == gpu.Bool:
		data = gpu.BitmapBytes(c.Len)
	}
	return columnLayout{Length: c.Len, CodeWidth: c.CodeWidth, Data: add(c.Data, data),
		Offsets: add(c.Offsets, 4*int64(c.Len+1)), Valid: add(c.Valid, gpu.BitmapBytes(c.Len))}
}

// receive makes the stride of a layout, by buffers that alloc returns, and the parts into which its bytes belong. After
// an error there is none.
func (l *layout) receive(schema *gpu.Schema, exchange int, received dictionaries,
	alloc func(int64) (*gpu.Buffer, error)) (s *gpu.Stride, parts []gpu.Part, err error) {
	if len(l.Columns) != schema.Len() || l.Rows < 0 {
		return nil, nil, fmt.Errorf("rows of %d columns arrive, not of %d", len(l.Columns), schema.Len())
	}
	if _, err := l.bytes(); err != nil {
		return nil, nil, err
	}
	out := &gpu.Stride{Schema: schema, Rows: l.Rows}
	defer func() {
		if err != nil {
			out.Release()
		}
	}()
	for i, in := range l.Columns {
		c, err := in.receive(schema.Fields[i].Type, &parts, alloc)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case in.Same:
			if c.Dict = received.of(exchange, i); c.Dict == nil {
				c.Release()
				return nil, nil, fmt.Errorf("column %q has the dictionary of rows that have not arrived",
					schema.Fields[i].Name)
			}
			c.Dict.Values.Retain()
		case in.Values != nil:
			values, err := in.Values.receive(c.Type, &parts, alloc)
			if err != nil {
				c.Release()
				return nil, nil, err
			}
			c.Dict = &gpu.Dictionary{Values: values, Distinct: in.Distinct}
			received.set(exchange, i, len(l.Columns), c.Dict)
		}
		out.Cols = append(out.Cols, c)
	}
	if err := out.Check(); err != nil {
		return nil, nil, err
	}
	return out, parts, nil
}

// receive makes a column without its dictionary.
func (l *columnLayout) receive(t gpu.Type, parts *[]gpu.Part, alloc func(int64) (*gpu.Buffer, error)) (
	c gpu.Column, err error) {
	c = gpu.Column{Type: t, Len: l.Length, CodeWidth: l.CodeWidth}
	if l.Length < 0 || l.CodeWidth < 0 || l.CodeWidth > 4 {
		return c, fmt.Errorf("a column of %d rows and codes of %d bytes arrives", l.Length, l.CodeWidth)
	}
	for _, b := range []struct {
		n  int64
		to **gpu.Buffer
	}{{l.Data, &c.Data}, {l.Offsets, &c.Offsets}, {l.Valid, &c.Valid}} {
		if b.n == 0 {
			continue
		}
		if *b.to, err = alloc(b.n); err != nil {
			c.Release()
			return gpu.Column{}, err
		}
		*parts = append(*parts, gpu.Part{Buffer: *b.to, Bytes: b.n})
	}
	return c, nil
}

// maxBuffer bounds the bytes of a buffer.
const maxBuffer = 1 << 36
