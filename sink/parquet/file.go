package parquet

import (
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
	groups  []format.RowGroup
	indexes [][]*encodedChunk // by row group; their pages are released
	rows    int64

	// These belong to the Writer, under its lock: the row groups that are placed and not
	// yet written, and whether there will be more.
	unwritten int
	full      bool
}

func newFile(o *output, path string, columns []column, pairs map[string]string) (*fileWriter, error) {
	f, err := o.storage.create(path)
	if err != nil {
		return nil, err
	}
	if o.directory {
		if err := o.fileAccess.Give(path, true); err != nil {
			f.Close()
			return nil, err
		}
	}
	w := &fileWriter{path: path, file: f, sync: o.sync, columns: columns, pairs: pairs}
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

// layOut lays the chunks of a row group out after the earlier ones, and returns their
// offsets. They may be written in any order.
func (w *fileWriter) layOut(rows int, chunks []*encodedChunk) (starts []int64) {
	g := format.RowGroup{NumRows: int64(rows), Ordinal: int16(len(w.groups)), FileOffset: w.size}
	for _, k := range chunks {
		starts = append(starts, w.size)
		k.moveTo(w.size)
		w.size += k.meta.TotalCompressedSize
		g.Columns = append(g.Columns, format.ColumnChunk{MetaData: k.meta})
		g.TotalByteSize += k.meta.TotalUncompressedSize
		g.TotalCompressedSize += k.meta.TotalCompressedSize
	}
	w.groups = append(w.groups, g)
	w.indexes = append(w.indexes, chunks)
	w.rows += int64(rows)
	return starts
}

// writeChunk writes a chunk that is laid out and releases its pages. Several calls may run
// concurrently.
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
	if at-start != k.meta.TotalCompressedSize {
		return fmt.Errorf("internal error: a column chunk of %d bytes was placed as %d; please report it", at-start, k.meta.TotalCompressedSize)
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
	for i, chunks := range w.indexes {
		for j, k := range chunks {
			if k.columnIndex == nil {
				continue
			}
			at, n, err := w.structure(k.columnIndex)
			if err != nil {
				return err
			}
			w.groups[i].Columns[j].ColumnIndexOffset, w.groups[i].Columns[j].ColumnIndexLength = at, n
		}
	}
	for i, chunks := range w.indexes {
		for j, k := range chunks {
			at, n, err := w.structure(&k.offsetIndex)
			if err != nil {
				return err
			}
			w.groups[i].Columns[j].OffsetIndexOffset, w.groups[i].Columns[j].OffsetIndexLength = at, n
		}
	}
	meta := format.FileMetaData{
		Version:   2,
		Schema:    schemaElements(w.columns),
		NumRows:   w.rows,
		RowGroups: w.groups,
		CreatedBy: createdBy(),
	}
	if meta.RowGroups == nil {
		meta.RowGroups = thrift.Slice[format.RowGroup]{}
	}
	for _, key := range slices.Sorted(maps.Keys(w.pairs)) {
		meta.KeyValueMetadata = append(meta.KeyValueMetadata, format.KeyValue{Key: key, Value: w.pairs[key]})
	}
	for range w.columns {
		meta.ColumnOrders = append(meta.ColumnOrders, format.ColumnOrder{Value: new(format.TypeDefinedOrder)})
	}
	_, n, err := w.structure(&meta)
	if err != nil {
		return err
	}
	return w.write(append(binary.LittleEndian.AppendUint32(nil, uint32(n)), magic...))
}

// structure writes a thrift structure and returns its position and its size.
func (w *fileWriter) structure(v any) (at int64, n int32, err error) {
	b, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		return 0, 0, err
	}
	at = w.size
	return at, int32(len(b)), w.write(b)
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
