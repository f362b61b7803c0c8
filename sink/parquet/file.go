package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const magic = "PAR1"

// fileWriter writes one file: magic number, row groups, page indexes, footer.
type fileWriter struct {
	path    string
	to      *destination
	file    outFile
	sync    bool // sync to the disk at the end
	size    int64
	columns []column
	pairs   map[string]string // key-value metadata
	groups  []encodedGroup
	rows    int64

	// These belong to the Writer, under its lock: the chunks that have offsets and that no worker has
	// begun to write, whether a worker writes chunks or will soon, the number of row groups with
	// chunks that are not written, and whether there will be no more row groups.
	waiting   []chunk
	writing   bool
	unwritten int
	full      bool
}

// encodedGroup has the metadata of a row group for the end of the file. It is encoded, because an
// open file of a partition may have thousands of row groups.
type encodedGroup struct {
	meta          []byte // a format.RowGroup without the positions of page indexes
	columnIndexes []byte // of all chunks, one after another
	offsetIndexes []byte
	sizes         []indexSizes // by chunk
}

// indexSizes are the sizes in bytes of the page indexes of a chunk. A chunk may have no column
// index.
type indexSizes struct{ column, offset int32 }

func newFile(f outFile, path string, sync bool, columns []column, pairs map[string]string) (*fileWriter, error) {
	w := &fileWriter{path: path, file: f, sync: sync, columns: columns, pairs: pairs}
	if err := w.write([]byte(magic)); err != nil {
		w.abandon()
		return nil, err
	}
	return w, nil
}

func (w *fileWriter) write(p []byte) error {
	n, err := w.file.WriteAt(p, w.size)
	w.size += int64(n)
	return err
}

// layOut assigns offsets after the earlier row groups to the chunks of a row group, and returns
// them. The chunks may be written in any order.
func (w *fileWriter) layOut(rows int, chunks []*encodedChunk) (starts []int64, err error) {
	var out encodedGroup
	g := format.RowGroup{NumRows: int64(rows), Ordinal: int16(len(w.groups)), FileOffset: w.size}
	for _, k := range chunks {
		starts = append(starts, w.size)
		k.moveTo(w.size)
		w.size += k.pages.size
		g.Columns = append(g.Columns, format.ColumnChunk{MetaData: k.meta})
		g.TotalByteSize += k.meta.TotalUncompressedSize
		g.TotalCompressedSize += k.meta.TotalCompressedSize
		before := indexSizes{int32(len(out.columnIndexes)), int32(len(out.offsetIndexes))}
		if k.columnIndex != nil {
			if out.columnIndexes, err = appendThrift(out.columnIndexes, k.columnIndex); err != nil {
				return nil, err
			}
		}
		if out.offsetIndexes, err = appendThrift(out.offsetIndexes, &k.offsetIndex); err != nil {
			return nil, err
		}
		out.sizes = append(out.sizes, indexSizes{int32(len(out.columnIndexes)) - before.column,
			int32(len(out.offsetIndexes)) - before.offset})
		k.forgetIndexes()
	}
	if out.meta, err = appendThrift(nil, &g); err != nil {
		return nil, err
	}
	w.groups = append(w.groups, out)
	w.rows += int64(rows)
	return starts, nil
}

// appendThrift appends a structure in the encoding of footers and page indexes.
func appendThrift(to []byte, v any) ([]byte, error) {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		return nil, err
	}
	if to == nil {
		return bytes.Clone(b), nil // without spare capacity
	}
	return append(to, b...), nil
}

// writeChunk writes a chunk at its offset and releases its pages.
func (w *fileWriter) writeChunk(k *encodedChunk, start int64) error {
	at := start
	err := k.pages.each(func(p []byte) error {
		n, err := w.file.WriteAt(p, at)
		at += int64(n)
		return err
	})
	if err != nil {
		return err
	}
	if at-start != k.pages.size {
		return fmt.Errorf("internal error: a column chunk of %d bytes was placed as %d; please report it", at-start,
			k.pages.size)
	}
	k.pages.release()
	if w.sync {
		w.file.startWriteback(start, at-start)
	}
	return nil
}

// end writes the page indexes and the footer, and closes the file.
func (w *fileWriter) end() error {
	err := w.finish()
	if err == nil && w.sync {
		err = w.file.Sync()
	}
	return errors.Join(err, w.file.Close())
}

func (w *fileWriter) finish() error {
	columnIndexes := w.size
	for _, g := range w.groups {
		if err := w.write(g.columnIndexes); err != nil {
			return err
		}
	}
	offsetIndexes := w.size
	for _, g := range w.groups {
		if err := w.write(g.offsetIndexes); err != nil {
			return err
		}
	}
	footer, err := w.footer(columnIndexes, offsetIndexes)
	if err != nil {
		return err
	}
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
	return w.write(append(footer, magic...))
}

// The first and the last fields of format.FileMetaData. The row groups are between them.
type (
	footerHead struct {
		Version int32                              `thrift:"1,required"`
		Schema  thrift.Slice[format.SchemaElement] `thrift:"2,required"`
		NumRows int64                              `thrift:"3,required"`
	}
	footerTail struct {
		KeyValueMetadata thrift.Slice[format.KeyValue]    `thrift:"5,optional"`
		CreatedBy        string                           `thrift:"6,optional"`
		ColumnOrders     thrift.Slice[format.ColumnOrder] `thrift:"7,optional"`
	}
)

// footer encodes the format.FileMetaData of the file. columnIndexes and offsetIndexes are the
// positions of the page indexes. The row groups are decoded and encoded again one by one, because
// all decoded row groups would take ten times the memory of their encoding.
func (w *fileWriter) footer(columnIndexes, offsetIndexes int64) ([]byte, error) {
	out, err := appendThrift(nil, &footerHead{Version: 2, Schema: schemaElements(w.columns), NumRows: w.rows})
	if err != nil {
		return nil, err
	}
	// The end of the head becomes the header of field 4, a list of structures.
	out[len(out)-1] = 1<<4 | 9
	if n := len(w.groups); n < 15 {
		out = append(out, byte(n)<<4|12)
	} else {
		out = binary.AppendUvarint(append(out, 15<<4|12), uint64(n))
	}
	for _, g := range w.groups {
		var meta format.RowGroup
		if err := thrift.Unmarshal(new(thrift.CompactProtocol), g.meta, &meta); err != nil {
			return nil, err
		}
		for i, size := range g.sizes {
			c := &meta.Columns[i]
			if size.column > 0 {
				c.ColumnIndexOffset, c.ColumnIndexLength = columnIndexes, size.column
			}
			c.OffsetIndexOffset, c.OffsetIndexLength = offsetIndexes, size.offset
			columnIndexes, offsetIndexes = columnIndexes+int64(size.column), offsetIndexes+int64(size.offset)
		}
		if out, err = appendThrift(out, &meta); err != nil {
			return nil, err
		}
	}
	tail := footerTail{CreatedBy: createdBy()}
	for _, key := range slices.Sorted(maps.Keys(w.pairs)) {
		tail.KeyValueMetadata = append(tail.KeyValueMetadata, format.KeyValue{Key: key, Value: w.pairs[key]})
	}
	for _, c := range w.columns {
		for range max(len(c.leaves), 1) {
			tail.ColumnOrders = append(tail.ColumnOrders, format.ColumnOrder{Value: new(format.TypeDefinedOrder)})
		}
	}
	rest := len(out)
	if out, err = appendThrift(out, &tail); err != nil {
		return nil, err
	}
	out[rest] -= 4 << 4 // the number of the first field counts from that of the field before
	return out, nil
}

// abandon closes a file that will be removed.
func (w *fileWriter) abandon() {
	w.file.Close() // its error does not matter: the file is removed
}

// createdBy returns the name and version of the program, in the form that other writers
// use.
func createdBy() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return "gstream version " + version
}
