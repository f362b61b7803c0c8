package parquet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"golang.org/x/sync/errgroup"
)

// These are the parts of a footer that are read. The structures of parquet-go are not used, because
// they require parts that files may omit, such as the value of a key, and do not distinguish a
// count of zero from a missing count.

type fileMeta struct {
	Schema       thrift.Slice[format.SchemaElement] `thrift:"2,required"`
	NumRows      int64                              `thrift:"3,required"`
	KeyValues    thrift.Slice[keyValue]             `thrift:"5"`
	CreatedBy    string                             `thrift:"6"`
	ColumnOrders thrift.Slice[format.ColumnOrder]   `thrift:"7"`

	RowGroups []groupMeta // field rowGroups, see decodeFooter
	start     int64       // offset of the footer in the file
}

// rowGroups is the field number of the list of row groups in a footer.
const rowGroups = 4

// decodeFooter decodes the footer of a file. Row groups are most of a footer, and a large file has
// thousands, so they are decoded on all cores.
func decodeFooter(b []byte) (*fileMeta, error) {
	w := compactWalk{b: b, listed: rowGroups}
	if err := w.structure(0); err != nil {
		return nil, err
	}
	if len(w.elements) == 0 {
		return nil, errors.New("it lists no row groups")
	}
	m, n := new(fileMeta), len(w.elements)-1
	rest := slices.Concat(b[:w.at], []byte{byte(thrift.STRUCT)}, b[w.elements[n]:w.pos]) // an empty list
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), rest, m); err != nil {
		return nil, err
	}
	m.RowGroups = make([]groupMeta, n)
	return m, eachGroup(n, func(i int) error {
		err := thrift.Unmarshal(new(thrift.CompactProtocol), b[w.elements[i]:w.elements[i+1]], &m.RowGroups[i])
		if err != nil {
			return fmt.Errorf("row group %d: %w", i, err)
		}
		return nil
	})
}

// eachGroup calls do for each of n row groups, on all cores. It returns the error of the first row
// group that failed.
func eachGroup(n int, do func(i int) error) error {
	const each = 16 // number of row groups that a goroutine takes at a time
	errs := make([]error, (n+each-1)/each)
	var all errgroup.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for k := range errs {
		all.Go(func() error {
			defer guard(&errs[k])
			for i := k * each; i < min((k+1)*each, n) && errs[k] == nil; i++ {
				errs[k] = do(i)
			}
			return nil
		})
	}
	_ = all.Wait() // errors are in errs
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

type keyValue struct {
	Key   string `thrift:"1,required"`
	Value string `thrift:"2"`
}

// maxMetadata bounds the size of the key-value metadata that a table keeps.
const maxMetadata = 8 << 20

// pairs returns the key-value metadata of a file. It returns nothing if the metadata is larger than
// a job would write.
func (m *fileMeta) pairs() map[string]string {
	size, out := 0, map[string]string{}
	for _, kv := range m.KeyValues {
		if size += len(kv.Key) + len(kv.Value); size > maxMetadata {
			return nil
		}
		if utf8.ValidString(kv.Key) && utf8.ValidString(kv.Value) {
			out[kv.Key] = kv.Value
		}
	}
	return out
}

// digest replaces the values of a file's pairs by hashes, which suffice to compare them with the
// values of the first file.
func digest(pairs map[string]string) {
	for k, v := range pairs {
		h := sha256.Sum256([]byte(v))
		pairs[k] = string(h[:])
	}
}

// sharedMetadata returns the pairs that all files of a table have. There are exceptions. The pair
// for Pandas contains the number of rows of its file, so it is that of the first file, whatever the
// others have. Pairs that describe all columns are left out unless the table has exactly the
// columns of the first file. An Arrow schema is kept even if the table has other columns too,
// because its fields have names.
func (t *Table) sharedMetadata(columns []leaf) map[string]string {
	out := t.files[0].metadata
	hashes := maps.Clone(out)
	digest(hashes)
	for _, f := range t.files[1:] {
		maps.DeleteFunc(out, func(k, _ string) bool {
			other, ok := f.metadata[k]
			return !ok || other != hashes[k] && k != "pandas"
		})
	}
	same := len(t.refused) == 0 && slices.EqualFunc(t.schema.Fields, columns, func(f gpu.Field, c leaf) bool {
		return f.Name == c.field.Name && f.Type == c.field.Type && f.Annotation == c.field.Annotation
	})
	if !same {
		written := make(map[string]gpu.Field, len(columns))
		for _, c := range columns {
			written[c.field.Name] = c.field
		}
		retyped := slices.ContainsFunc(t.schema.Fields, func(f gpu.Field) bool {
			c, ok := written[f.Name]
			return ok && (c.Type != f.Type || c.Annotation != f.Annotation)
		})
		maps.DeleteFunc(out, func(k, _ string) bool {
			return source.DescribesColumns(k) &&
				(k != "ARROW:schema" || retyped)
		})
	}
	for _, f := range t.files {
		f.metadata = nil
	}
	return out
}

// Metadata implements source.Described.
func (t *Table) Metadata() map[string]string { return t.metadata }

type groupMeta struct {
	Columns thrift.Slice[chunkMeta] `thrift:"1,required"`
	NumRows int64                   `thrift:"3,required"`
}

type chunkMeta struct {
	FilePath          string   `thrift:"1"`
	Data              dataMeta `thrift:"3"`
	OffsetIndexOffset int64    `thrift:"4"`
	OffsetIndexLength int32    `thrift:"5"`
	ColumnIndexOffset int64    `thrift:"6"`
	ColumnIndexLength int32    `thrift:"7"`
	// Only an encrypted chunk has the next two fields.
	Crypto        format.ColumnCryptoMetaData `thrift:"8"`
	EncryptedData []byte                      `thrift:"9"`
}

func (c *chunkMeta) encrypted() bool { return c.Crypto.Value != nil || c.EncryptedData != nil }

// dataMeta is the structure ColumnMetaData of the format.
type dataMeta struct {
	Type                  format.Type                            `thrift:"1,required"`
	Encodings             thrift.Slice[format.Encoding]          `thrift:"2"`
	Path                  thrift.Slice[string]                   `thrift:"3"`
	Codec                 format.CompressionCodec                `thrift:"4,required"`
	NumValues             int64                                  `thrift:"5,required"`
	TotalUncompressedSize int64                                  `thrift:"6"`
	TotalCompressedSize   int64                                  `thrift:"7,required"`
	DataPageOffset        int64                                  `thrift:"9,required"`
	DictionaryPageOffset  int64                                  `thrift:"11"`
	Statistics            statistics                             `thrift:"12"`
	EncodingStats         thrift.Slice[format.PageEncodingStats] `thrift:"13"`
	BloomFilterOffset     int64                                  `thrift:"14"`
	BloomFilterLength     int32                                  `thrift:"15"`
}

// pagesStart returns the start of the pages of a chunk. The first is the dictionary, if there is
// one.
func (m *dataMeta) pagesStart() int64 {
	if d := m.DictionaryPageOffset; d > 0 && d < m.DataPageOffset {
		return d
	}
	return m.DataPageOffset
}

// layout has the starts of all parts of a file, and of its footer.
type layout struct {
	starts []int64
	sort   sync.Once
}

// after returns the start of the first part after a position.
func (p *layout) after(at int64) int64 {
	p.sort.Do(func() { slices.Sort(p.starts) })
	i, _ := slices.BinarySearch(p.starts, at+1)
	if i == len(p.starts) {
		return at
	}
	return p.starts[i]
}

// layout collects the starts from the footer.
func (m *fileMeta) layout() *layout {
	p := &layout{starts: []int64{m.start}}
	for g := range m.RowGroups {
		for i := range m.RowGroups[g].Columns {
			c := &m.RowGroups[g].Columns[i]
			for _, at := range [...]int64{c.Data.pagesStart(), c.ColumnIndexOffset, c.OffsetIndexOffset,
				c.Data.BloomFilterOffset} {
				if at > 0 {
					p.starts = append(p.starts, at)
				}
			}
		}
	}
	return p
}

// statistics are the statistics of a column chunk. Max and Min are deprecated: they use the order
// of signed values, whatever the type.
type statistics struct {
	Max       []byte             `thrift:"1"`
	Min       []byte             `thrift:"2"`
	NullCount thrift.Null[int64] `thrift:"3"`
	MaxValue  []byte             `thrift:"5"`
	MinValue  []byte             `thrift:"6"`
}
