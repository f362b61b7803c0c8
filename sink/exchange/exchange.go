// Package exchange writes the files by which tasks exchange rows. Package source/exchange reads them, and has their
// format.
package exchange

import (
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/ordered"
	sourceexchange "github.com/gstream/gstream/source/exchange"
	"github.com/gstream/gstream/spill"
)

// Options configure a file.
type Options struct {
	// Partitions is the number of partitions. If there are several, the last column of the rows, an INTEGER, is the
	// partition of each row. The rows are sorted by it, and the file does not have it.
	Partitions int
	// Sample are columns of which a sample of the rows is kept in the index.
	Sample []int
	ordered.Options
}

// Writer is a sink.Sink.
type Writer struct {
	*ordered.Writer
	encoder *encoder
}

// Create starts a file of rows of a schema.
func Create(path string, schema *gpu.Schema, opt Options) (*Writer, error) {
	e := &encoder{opt: opt}
	fields := schema.Fields
	if opt.Partitions > 1 {
		fields = fields[:len(fields)-1]
	}
	e.index = sourceexchange.Index{Schema: gpu.NewSchema(fields...), Partitions: opt.Partitions}
	e.pages.New = func() any { return &spill.Pages{} }
	w, err := ordered.Create(path, e, opt.Options)
	if err != nil {
		return nil, err
	}
	return &Writer{w, e}, nil
}

// Index returns the index of the file, after Commit.
func (w *Writer) Index() *sourceexchange.Index { return &w.encoder.index }

// encoder is an ordered.Encoder.
type encoder struct {
	opt   Options
	index sourceexchange.Index
	pages sync.Pool // of *spill.Pages
	// encoded has what Encode knows of strides that are not written, by the first byte of their pages.
	encoded sync.Map
}

// stride is the pages of a stride and rows of the sample.
type stride struct {
	pages  []sourceexchange.Page
	sample [][]gpu.Scalar
	weight int64
}

// Begin implements ordered.Encoder.
func (e *encoder) Begin() ([]byte, error) { return []byte(sourceexchange.Magic), nil }

// Memory implements ordered.Encoder.
func (e *encoder) Memory(s *gpu.Stride) int64 { return 2*s.Bytes() + int64(s.Rows) }

// Encode implements ordered.Encoder.
func (e *encoder) Encode(s *gpu.Stride, size int) ([]byte, error) {
	if s.Rows == 0 {
		return nil, nil
	}
	out := make([]byte, 0, size/2)
	rows := &gpu.Stride{Schema: e.index.Schema, Cols: s.Cols[:e.index.Schema.Len()], Rows: s.Rows}
	pages := e.pages.Get().(*spill.Pages)
	defer e.pages.Put(pages)
	step := spill.PageRows(rows.Bytes() / int64(s.Rows))
	var x stride
	for from := 0; from < s.Rows; {
		partition, end := e.partition(s, from)
		if partition < 0 || partition >= e.opt.Partitions {
			return nil, fmt.Errorf("a row goes to partition %d of %d", partition, e.opt.Partitions)
		}
		for ; from < end; from += step {
			var page spill.Page
			var err error
			if out, page, err = pages.Append(out, rows, from, min(from+step, end), true); err != nil {
				return nil, err
			}
			x.pages = append(x.pages, sourceexchange.Page{Partition: partition, Page: page})
		}
		from = end
	}
	x.pick(rows, e.opt.Sample)
	e.encoded.Store(&out[0], x)
	return out, nil
}

// partition returns the partition of a row, and the end of its rows.
func (e *encoder) partition(s *gpu.Stride, row int) (partition, end int) {
	if e.opt.Partitions == 1 {
		return 0, s.Rows
	}
	of := gpu.Values[int32](s.Cols[len(s.Cols)-1].Data, s.Rows)
	first := of[row]
	for end = row; end < s.Rows && of[end] == first; end++ {
	}
	return int(first), end
}

// strideSample and fileSample are the most rows of a sample, of a stride and of a file.
const (
	strideSample = 1 << 10
	fileSample   = 1 << 13
)

// pick picks rows of a sample, each at a position that looks random among as many as it stands for.
func (x *stride) pick(s *gpu.Stride, columns []int) {
	if columns == nil {
		return
	}
	x.weight = int64((s.Rows-1)/strideSample + 1)
	for begin := int64(0); begin < int64(s.Rows); begin += x.weight {
		at := begin + int64(uint64(uint32(begin)*0x9e3779b9)*uint64(x.weight)>>32)
		if at >= int64(s.Rows) {
			break
		}
		var key []gpu.Scalar
		for _, c := range columns {
			key = append(key, s.Cols[c].ScalarAt(int(at)))
		}
		x.sample = append(x.sample, key)
	}
}

// Wrote implements ordered.Encoder.
func (e *encoder) Wrote(offset int64, b []byte) {
	if len(b) == 0 {
		return
	}
	known, ok := e.encoded.LoadAndDelete(&b[0])
	if !ok {
		return // the magic
	}
	x := known.(stride)
	for _, p := range x.pages {
		p.Offset = offset
		offset += p.Stored
		e.index.Pages = append(e.index.Pages, p)
	}
	e.sample(x)
}

// sample adds the sample of a stride. Whenever the file has too many rows, each stands for twice as many.
func (e *encoder) sample(x stride) {
	if x.weight == 0 {
		return
	}
	s := &e.index.Sample
	s.Weight = max(s.Weight, x.weight, 1)
	for i := 0; i < len(x.sample); i += int(max(s.Weight/x.weight, 1)) {
		s.Keys = append(s.Keys, x.sample[i])
	}
	if len(s.Keys) > fileSample {
		kept := s.Keys[:0]
		for i := 0; i < len(s.Keys); i += 2 {
			kept = append(kept, s.Keys[i])
		}
		s.Keys, s.Weight = kept, 2*s.Weight
	}
}

// End implements ordered.Encoder.
func (e *encoder) End(int64) ([]byte, error) { return e.index.Encode() }
