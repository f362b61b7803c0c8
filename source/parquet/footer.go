package parquet

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"github.com/parquet-go/parquet-go/format"
)

const (
	magic          = "PAR1"
	magicEncrypted = "PARE"
	trailerBytes   = 8 // footer length and magic number
)

// file has the metadata of a file that a scan needs. Column positions are positions in the table's
// schema.
type file struct {
	path    string
	size    int64
	rows    int64
	layout  *layout
	cols    []leaf
	refused []source.Unreadable
	values  []gpu.Scalar // of the partition columns
	groups  []rowGroup
	handle  handle
	// metadata has the key-value pairs of the file, until the pairs of the table are known.
	metadata map[string]string
}

// rowGroup is a horizontal slice of a file.
type rowGroup struct {
	rows   int64
	chunks []chunk
	// The smallest chunk of the row group, among all columns of the file, and its column. Its pages
	// are read to count the rows.
	smallest *chunk
	counted  leaf
}

// chunk is one column of a row group.
type chunk struct {
	start, size    int64 // bytes in the file: pages and their headers
	rawSize        int64 // uncompressed bytes, from the footer
	codec          format.CompressionCodec
	dictionarySize int64   // bytes of the dictionary page
	dataPages      int64   // 0 when unknown
	uncoded        bool    // some data pages are known to have no codes
	transcoded     bool    // some data pages may have an encoding that is converted to PLAIN
	values         int64   // entries of a leaf: more than rows if it is in a list
	parts          []chunk // of the leaves of a nested column, whose sizes are added up
	stats          chunkStats
	columnIndex    extent
	offsetIndex    extent
	bloom          extent
}

// extent is a range of bytes in a file. If start is 0, there is no range.
type extent struct{ start, size int64 }

// chunkStats are the statistics of a chunk in the footer, in the PLAIN encoding of the physical
// type.
type chunkStats struct {
	min, max []byte
	hasRange bool
	nulls    int64 // -1 when unknown
}

// mostClaimed bounds the bytes of a footer for which memory is allocated before they have arrived.
const mostClaimed = 16 << 20

// readMetadata reads and decodes the footer of an open file. Of an object, the first bytes are read only if the last
// ones are wrong, since they take another request.
func readMetadata(r io.ReaderAt, size int64, remote bool) (meta *fileMeta, err error) {
	defer guard(&err)
	if size == 0 {
		return nil, badf("the file is empty")
	}
	if size < int64(len(magic)+trailerBytes) {
		return nil, badf("%d bytes are too few for a Parquet file", size)
	}
	var head [4]byte
	var tail [trailerBytes]byte
	if err := readFull(r, tail[:], size-trailerBytes); err != nil {
		return nil, err
	}
	if remote && string(tail[4:]) == magic {
		copy(head[:], magic)
	} else if err := readFull(r, head[:], 0); err != nil {
		return nil, err
	}
	if string(tail[4:]) == magicEncrypted {
		return nil, badf("the file is encrypted, which is not supported; write it without encryption")
	}
	if string(head[:]) != magic {
		return nil, badf("not a Parquet file: it starts with %q instead of %q", head[:], magic)
	}
	if string(tail[4:]) != magic {
		return nil, badf("the file is truncated or damaged: it ends with %q instead of %q", tail[4:], magic)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-trailerBytes-int64(len(magic)) {
		return nil, badf("the footer claims %d bytes of a file of %d", n, size)
	}
	var b []byte
	for done := int64(0); done < n; { // the size of an object is a claim of its server
		k := min(n-done, max(mostClaimed, done))
		b = append(b, make([]byte, k)...)
		if err := readFull(r, b[done:], size-trailerBytes-n+done); err != nil {
			return nil, err
		}
		done += k
	}
	if meta, err = decodeFooter(b); err != nil {
		return nil, badf("the footer cannot be decoded: %v", err)
	}
	meta.start = size - trailerBytes - n
	return meta, nil
}

// readFull reads len(b) bytes at an offset that was checked against the size of the file. If the
// file ends early, its metadata is wrong.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		return badf("the file ends at byte %d, inside of what its metadata promises", off+int64(n))
	}
	return err
}

// readFile reads the footer of a file and checks that its numbers are possible. version is nil for the version that the
// file has now.
func readFile(ctx context.Context, address string, version *Version) (f *file, columns []leaf,
	refused []source.Unreadable, err error) {
	o, err := store.Open(ctx, address, version)
	if err != nil {
		return nil, nil, nil, err
	}
	defer o.Close()
	path := store.Display(address)
	at := location{path: path, rowGroup: -1}
	size := o.Version().Size
	meta, err := readMetadata(readerAt{ctx, o}, size, isRemote(address))
	if err != nil {
		return nil, nil, nil, at.wrap(err)
	}
	columns, refused, leaves, err := readSchema(meta.Schema)
	if err != nil {
		return nil, nil, nil, at.wrap(err)
	}
	columns = slices.DeleteFunc(columns, func(c leaf) bool {
		encrypted := slices.ContainsFunc(meta.RowGroups, func(g groupMeta) bool {
			return c.leaf+max(len(c.parts), 1) <= len(g.Columns) && slices.ContainsFunc(
				g.Columns[c.leaf:c.leaf+max(len(c.parts), 1)], func(k chunkMeta) bool { return k.encrypted() })
		})
		if encrypted {
			refused = append(refused, source.Unreadable{Name: c.field.Name, Type: c.field.TypeName(),
				Reason: "it is encrypted, which is not supported"})
		}
		return encrypted
	})
	for i := range columns {
		columns[i].ordered = columns[i].ordered && len(meta.ColumnOrders) == leaves &&
			meta.ColumnOrders[columns[i].leaf].Value != nil
	}
	f = &file{path: path, size: size, rows: meta.NumRows, layout: meta.layout(),
		groups: make([]rowGroup, len(meta.RowGroups))}
	f.metadata = meta.pairs()
	f.handle.path, f.handle.version = address, o.Version()
	rows, total := meta.NumRows, int64(0)
	if rows == 0 {
		rows = math.MaxInt64 // some writers omit it; the row groups have the number too
	}
	for i := range meta.RowGroups {
		at.rowGroup = i
		g := &meta.RowGroups[i]
		if len(g.Columns) != leaves {
			return nil, nil, nil, at.wrap(badf("it has %d columns, the schema %d", len(g.Columns), leaves))
		}
		if g.NumRows < 0 || g.NumRows > rows-total {
			return nil, nil, nil, at.wrap(badf("it claims %d rows of the %d in the file", g.NumRows, meta.NumRows))
		}
		total += g.NumRows
	}
	err = eachGroup(len(meta.RowGroups), func(i int) error {
		g := &meta.RowGroups[i]
		out := rowGroup{rows: g.NumRows, chunks: make([]chunk, len(columns))}
		for j, c := range columns {
			k, err := readChunks(g.Columns[c.leaf:], c, g.NumRows, meta.start, f.layout)
			if err != nil {
				return location{path: path, rowGroup: i, column: c.field.Name}.wrap(err)
			}
			out.chunks[j] = k
			if c.node == nil && c.path == nil && (out.smallest == nil || k.size < out.smallest.size) {
				out.smallest, out.counted = &k, c
			}
		}
		f.groups[i] = out
		return nil
	})
	if err != nil {
		return nil, nil, nil, err
	}
	if meta.NumRows == 0 {
		f.rows = total
	} else if total != meta.NumRows {
		return nil, nil, nil,
			location{path: path, rowGroup: -1}.wrap(badf("the row groups have %d rows, the file claims %d", total,
				meta.NumRows))
	}
	f.refused = refused
	return f, columns, refused, nil
}

// readChunks checks the metadata of the column chunks of a column, which are the first of those.
func readChunks(chunks []chunkMeta, col leaf, rows, end int64, layout *layout) (chunk, error) {
	if col.node == nil {
		return readChunk(&chunks[0], col, rows, end, layout)
	}
	all := chunk{stats: chunkStats{nulls: -1}, values: rows}
	if !col.optional {
		all.stats.nulls = 0
	}
	for i, part := range col.parts {
		k, err := readChunk(&chunks[i], part, rows, end, layout)
		if err != nil {
			return chunk{}, err
		}
		if i == 0 {
			all.start, all.codec = k.start, k.codec
		}
		all.size += k.size
		// The encoding of a value has a tag, and the width of its type.
		decoded := k.values * int64(part.as.Width()+1)
		if part.as.IsVar() {
			decoded = k.rawSize + 3*k.values
		}
		all.rawSize += decoded + k.values
		all.parts = append(all.parts, k)
	}
	return all, nil
}

// readChunk checks the metadata of a column chunk against its row group and its file. The footer of
// the file begins at end. readChunk returns the parts that a scan needs.
func readChunk(c *chunkMeta, col leaf, rows, end int64, layout *layout) (chunk, error) {
	m := &c.Data
	if c.FilePath != "" {
		return chunk{}, badf("its data is in another file (%q), which is not supported", c.FilePath)
	}
	if m.Type != col.physical {
		return chunk{}, badf("its type is %v, in the schema %v", m.Type, col.physical)
	}
	if m.NumValues != rows && !(col.maxRep > 0 && m.NumValues > rows) {
		return chunk{}, badf("it claims %d values for %d rows", m.NumValues, rows)
	}
	rows = m.NumValues
	start := m.pagesStart()
	if rows > 0 && (start < int64(len(magic)) || m.TotalCompressedSize <= 0 || start > end ||
		m.TotalCompressedSize > end-start) {
		return chunk{}, badf("it claims %d bytes at offset %d of a file whose footer begins at %d",
			m.TotalCompressedSize, start, end)
	}
	// A page has a header of more than eight bytes, and fewer than 2^31 values.
	if pages := max(m.TotalCompressedSize, 0)/8 + 1; rows>>31 >= pages {
		return chunk{}, badf("it claims %d rows in %d bytes", rows, m.TotalCompressedSize)
	}
	inside := func(off, n int64) extent {
		if off < int64(len(magic)) || n <= 0 || off > end || n > end-off {
			return extent{} // an impossible index is treated as missing
		}
		return extent{off, n}
	}
	out := chunk{
		start: start, size: max(m.TotalCompressedSize, 0), codec: m.Codec, values: rows,
		columnIndex: inside(c.ColumnIndexOffset, int64(c.ColumnIndexLength)),
		offsetIndex: inside(c.OffsetIndexOffset, int64(c.OffsetIndexLength)),
		stats:       col.chunkStats(&m.Statistics, rows),
	}
	if at := m.BloomFilterOffset; at > 0 {
		size := int64(m.BloomFilterLength)
		if size <= 0 { // older writers do not write it
			size = layout.after(at) - at
		}
		out.bloom = inside(at, size)
	}
	// Bound the size by what the pages can expand to, so that a false size does not lead to small
	// strides.
	out.rawSize = min(max(m.TotalUncompressedSize, 0), out.size*int64(maxExpansion(m.Codec)))
	for _, s := range m.EncodingStats {
		data := s.PageType == format.DataPage || s.PageType == format.DataPageV2
		//lint:ignore SA1019 older writers use it
		coded := s.Encoding == format.RLEDictionary || s.Encoding == format.PlainDictionary
		out.uncoded = out.uncoded || data && !coded && s.Count > 0
		if data {
			out.dataPages += int64(max(s.Count, 0))
		}
	}
	out.transcoded = slices.ContainsFunc(m.Encodings, func(e format.Encoding) bool {
		return e == format.DeltaBinaryPacked || e == format.DeltaLengthByteArray || e == format.DeltaByteArray ||
			e == format.ByteStreamSplit
	})
	out.dictionarySize = min(max(m.DataPageOffset-start, 0), out.size)
	return out, nil
}
