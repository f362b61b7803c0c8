// Package arrow writes Arrow's IPC format: files, and streams for names that end in .arrows and for standard output. A
// stride becomes a record batch. Buffers may be compressed.
package arrow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/apache/arrow/go/v17/arrow/ipc"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/ordered"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// Options configure an output.
type Options struct {
	// Compression is that of the buffers: lz4, zstd, or none, as "".
	Compression string
	ordered.Options
}

// Check returns an error for options that are wrong whatever the columns.
func (o *Options) Check() error {
	switch o.Compression {
	case "", "none", "lz4", "zstd":
		return nil
	}
	return fmt.Errorf("compression %q is not one of Arrow's: lz4, zstd or none", o.Compression)
}

// Create starts an output.
func Create(path string, schema *gpu.Schema, opt Options) (*ordered.Writer, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	e := &encoder{stream: path == ordered.Standard || strings.EqualFold(filepath.Ext(path), ".arrows")}
	e.options = []ipc.Option{ipc.WithSchema(sourcearrow.Schema(schema))}
	switch opt.Compression {
	case "lz4":
		e.options = append(e.options, ipc.WithLZ4())
	case "zstd":
		e.options = append(e.options, ipc.WithZstd())
	}
	return ordered.Create(path, e, opt.Options)
}

// encoder is an ordered.Encoder. Each stride is a stream of its own, without the schema and the end.
type encoder struct {
	stream  bool
	options []ipc.Option
	schema  []byte // the message
	blocks  []block
}

// block is where a record batch is in a file.
type block struct{ offset, metadata, body int64 }

// magic begins and ends a file; at its begin two more bytes align what follows.
const magic = "ARROW1"

// end is the last message of a stream.
var end = []byte{0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0}

// Begin implements ordered.Encoder.
func (e *encoder) Begin() ([]byte, error) {
	var out bytes.Buffer
	if err := ipc.NewWriter(&out, e.options...).Close(); err != nil {
		return nil, err
	}
	e.schema = bytes.TrimSuffix(out.Bytes(), end)
	if e.stream {
		return e.schema, nil
	}
	return append([]byte(magic+"\x00\x00"), e.schema...), nil
}

// Memory implements ordered.Encoder: for the record, and for its encoding.
func (e *encoder) Memory(s *gpu.Stride) int64 { return 3 * s.Bytes() }

// Encode implements ordered.Encoder.
func (e *encoder) Encode(s *gpu.Stride, size int) ([]byte, error) {
	r := sourcearrow.Record(s)
	defer r.Release()
	out := bytes.NewBuffer(make([]byte, 0, size+len(e.schema)))
	w := ipc.NewWriter(out, e.options...)
	if err := w.Write(r); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes()[len(e.schema) : out.Len()-len(end)], nil
}

// Wrote implements ordered.Encoder.
func (e *encoder) Wrote(offset int64, b []byte) {
	if e.stream || offset == 0 || len(b) == 0 {
		return
	}
	metadata := 8 + int64(binary.LittleEndian.Uint32(b[4:]))
	e.blocks = append(e.blocks, block{offset, metadata, int64(len(b)) - metadata})
}

// End implements ordered.Encoder.
func (e *encoder) End(int64) ([]byte, error) {
	if e.stream {
		return end, nil
	}
	footer := e.footer()
	out := append(bytes.Clone(end), footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, magic...), nil
}

// footer returns the FlatBuffer at the end of a file: a table with the version, the schema and the record batches. The
// schema is that of the message, which follows the table as it is.
func (e *encoder) footer() []byte {
	const (
		layout   = 16 // of the table: its own size, the size of the table, and the positions of four fields
		table    = 32 // the distance to its layout, and the fields
		schema   = table + 4
		batches  = table + 8
		version  = table + 12
		vector   = table + 20 // the number of record batches, which then begin at a multiple of 8
		v5       = 4
		oneBlock = 24
	)
	after := vector + 4 + oneBlock*len(e.blocks)
	out := make([]byte, after, after+len(e.schema))
	put16 := func(at, v int) { binary.LittleEndian.PutUint16(out[at:], uint16(v)) }
	put32 := func(at, v int) { binary.LittleEndian.PutUint32(out[at:], uint32(v)) }
	put32(0, table)
	put16(layout, 12)
	put16(layout+2, 16)
	put16(layout+4, version-table)
	put16(layout+6, schema-table)
	put16(layout+8, 0) // no dictionaries
	put16(layout+10, batches-table)
	put32(table, table-layout)
	message := e.schema[8:] // without its prefix
	at := binary.LittleEndian.Uint32(message)
	put32(schema, after-schema+headerOf(message, int(at)))
	put32(batches, vector-batches)
	put16(version, v5)
	put32(vector, len(e.blocks))
	for i, b := range e.blocks {
		at := vector + 4 + oneBlock*i
		binary.LittleEndian.PutUint64(out[at:], uint64(b.offset))
		put32(at+8, int(b.metadata))
		binary.LittleEndian.PutUint64(out[at+16:], uint64(b.body))
	}
	return append(out, message...)
}

// headerOf returns the position of the header of a message, whose table is at a position: its third field.
func headerOf(message []byte, table int) int {
	layout := table - int(int32(binary.LittleEndian.Uint32(message[table:])))
	field := table + int(binary.LittleEndian.Uint16(message[layout+4+2*2:]))
	return field + int(binary.LittleEndian.Uint32(message[field:]))
}
