package spill

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// Page describes a block in a file that another process reads (Pages). It is data.
type Page struct {
	Rows   int     `json:"rows"`
	Stored int64   `json:"stored"`          // bytes in the file, with the header
	Size   int64   `json:"size"`            // bytes of the rows when expanded
	Valid  []int   `json:"valid,omitempty"` // the columns with validity
	Texts  []int64 `json:"texts,omitempty"` // bytes of the values of each column of variable width
	Sum    uint32  `json:"sum"`             // checksum, which is also in the header
}

// MaxPage is the maximum number of bytes of a Page, in a file and expanded.
const MaxPage = math.MaxInt32

// PageRows returns the rows of a page of the usual size, of rows of a number of bytes.
func PageRows(rowBytes int64) int { return int(max(1, blockBytes/max(rowBytes, 1))) }

// Pages encodes rows as blocks. It has the scratch memory of one goroutine.
type Pages struct{ block block }

// Append appends the block of rows [from, to) of a stride in host memory. Columns in dictionaries become plain.
func (p *Pages) Append(out []byte, s *gpu.Stride, from, to int, compress bool) ([]byte, Page, error) {
	page := Page{Rows: to - from}
	lay := plainLayout(s.Schema)
	for i, c := range s.Cols {
		if lay.valid[i] = c.Valid != nil; lay.valid[i] {
			page.Valid = append(page.Valid, i)
		}
		if c.Type.IsVar() {
			page.Texts = append(page.Texts, stringBytes(c, from, to))
		}
	}
	b, err := p.block.encode(lay, s, 0, from, to, compress)
	if err != nil {
		return nil, page, err
	}
	page.Stored, page.Size, page.Sum = int64(len(b)), int64(len(p.block.raw)-headerBytes), sumIn(b)
	return append(out, b...), page, nil
}

// plainLayout returns the layout of columns that have neither dictionaries nor validity.
func plainLayout(schema *gpu.Schema) *layout {
	lay := &layout{schema: schema, dicts: make([]*gpu.Dictionary, schema.Len()),
		codes: make([]map[*gpu.Dictionary][]int32, schema.Len()), valid: make([]bool, schema.Len())}
	for i, f := range schema.Fields {
		if f.Type.IsVar() {
			lay.texts = append(lay.texts, i)
		}
	}
	return lay
}

// Check returns an error for a page that cannot be one of rows of a schema.
func (p *Page) Check(schema *gpu.Schema) error {
	texts := int64(0)
	for _, n := range p.Texts {
		if n < 0 || n > p.Size-texts {
			return errors.New("a page has less than its strings")
		}
		texts += n
	}
	vars := 0
	least := texts
	for _, f := range schema.Fields {
		switch {
		case f.Type.IsVar():
			vars++
			least += 4 * int64(p.Rows)
		case f.Type.Kind != gpu.Bool:
			least += int64(f.Type.Width()) * int64(p.Rows)
		}
	}
	const ratio = 256 // more than LZ4 can expand
	switch {
	case p.Rows < 1 || p.Rows > gpu.MaxRows || p.Size < 0 || p.Size > MaxPage || p.Stored < headerBytes ||
		p.Stored > MaxPage+headerBytes || p.Size/ratio > p.Stored:
		return fmt.Errorf("a page of %d rows has %d bytes, expanded %d", p.Rows, p.Stored, p.Size)
	case len(p.Texts) != vars || p.Size < least:
		return fmt.Errorf("a page of %d rows has %d bytes, which is too little for its columns", p.Rows, p.Size)
	case slices.ContainsFunc(p.Valid, func(i int) bool { return i < 0 || i >= schema.Len() }):
		return errors.New("a page has validity of a column that is missing")
	}
	return nil
}

// Joins reports whether the rows of two pages have the same columns with validity, as those that Read reads together.
func (p *Page) Joins(q *Page) bool { return slices.Equal(p.Valid, q.Valid) }

// Read reads pages that follow each other in data, as one stride in host memory for which a lease pays. They have
// passed Check, and join each other.
func (p *Pages) Read(l *gpu.Lease, schema *gpu.Schema, pages []Page, data []byte) (*gpu.Stride, error) {
	lay := plainLayout(schema)
	for _, i := range pages[0].Valid {
		lay.valid[i] = true
	}
	all := extent{bytes: make([]int64, len(lay.texts))}
	for i := range pages {
		all.rows += int64(pages[i].Rows)
		for k, n := range pages[i].Texts {
			all.bytes[k] += n
		}
	}
	if !all.fits() {
		return nil, errTooLarge
	}
	a, err := newAssembly(l, lay, all, nil)
	if err != nil {
		return nil, err
	}
	a.skip = func(int) bool { return false }
	from := bytes.NewReader(data)
	for i := range pages {
		before := a.rows
		_, err := p.block.decode(from, pages[i].Stored, lay, a)
		if err == nil && (a.rows-before != pages[i].Rows || sumIn(p.block.stored) != pages[i].Sum) {
			err = errDamaged
		}
		if err != nil {
			a.stride.Release()
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = errDamaged
			}
			return nil, err
		}
	}
	return a.done(), nil
}
