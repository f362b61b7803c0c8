package parquet

import (
	"context"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source/store"
)

// FileInfo describes a Parquet file, as text and as JSON.
type FileInfo struct {
	Path      string         `json:"path"`
	Bytes     int64          `json:"bytes"`
	Rows      int64          `json:"rows"`
	CreatedBy string         `json:"created_by"`
	Metadata  []string       `json:"metadata"` // keys of the key-value metadata
	Columns   []ColumnInfo   `json:"columns"`
	RowGroups []RowGroupInfo `json:"row_groups"`
}

// ColumnInfo is a node of the schema.
type ColumnInfo struct {
	Name       string       `json:"name"`
	Type       string       `json:"type,omitempty"` // SQL type of a top-level column
	Physical   string       `json:"physical,omitempty"`
	Logical    string       `json:"logical,omitempty"`
	Repetition string       `json:"repetition"`
	Unreadable string       `json:"unreadable,omitempty"` // the reason why it cannot be read
	Children   []ColumnInfo `json:"children,omitempty"`
}

// RowGroupInfo describes a row group.
type RowGroupInfo struct {
	Rows         int64       `json:"rows"`
	Compressed   int64       `json:"compressed_bytes"`
	Uncompressed int64       `json:"uncompressed_bytes"`
	Chunks       []ChunkInfo `json:"chunks"`
}

// ChunkInfo describes a column chunk. Nulls, Min and Max are nil if the statistics lack them.
type ChunkInfo struct {
	Column       string   `json:"column"`
	Codec        string   `json:"codec"`
	Encodings    []string `json:"encodings"`
	Values       int64    `json:"values"`
	Compressed   int64    `json:"compressed_bytes"`
	Uncompressed int64    `json:"uncompressed_bytes"`
	Nulls        *int64   `json:"nulls,omitempty"`
	Min          *string  `json:"min,omitempty"`
	Max          *string  `json:"max,omitempty"`
	Dictionary   bool     `json:"dictionary"`
	PageIndex    bool     `json:"page_index"`
	BloomFilter  bool     `json:"bloom_filter"`
}

// Inspect reads the metadata of a file, including columns that cannot be scanned. It returns the
// same errors as Open.
func Inspect(ctx context.Context, path string) (info *FileInfo, err error) {
	f, flat, refused, err := readFile(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	path = store.Display(path)
	at := location{path: path, rowGroup: -1}
	o, err := f.handle.acquire(ctx)
	if err != nil {
		return nil, at.wrap(err)
	}
	defer f.handle.release()
	meta, err := readMetadata(o, f.size, isRemote(f.handle.path))
	if err != nil {
		return nil, at.wrap(err)
	}
	byLeaf := map[int]leaf{}
	byName := map[string]gpu.Field{}
	for _, c := range flat {
		byLeaf[c.leaf], byName[c.field.Name] = c, c.field
	}
	info = &FileInfo{Path: path, Bytes: f.size, Rows: f.rows, CreatedBy: meta.CreatedBy}
	for _, kv := range meta.KeyValues {
		info.Metadata = append(info.Metadata, kv.Key)
	}
	w := schemaWalk{elements: meta.Schema, next: 1}
	names := topNames(meta.Schema)
	for w.next < len(meta.Schema) {
		c := w.describe()
		c.Name = names[len(info.Columns)]
		if f, ok := byName[c.Name]; ok {
			c.Type = f.TypeName()
		}
		for _, r := range refused {
			if r.Name == c.Name {
				c.Type, c.Unreadable = r.Type, r.Reason
			}
		}
		info.Columns = append(info.Columns, c)
	}
	for i := range meta.RowGroups {
		g := &meta.RowGroups[i]
		r := RowGroupInfo{Rows: g.NumRows}
		for j := range g.Columns {
			c, ok := byLeaf[j]
			k := describeChunk(&g.Columns[j], c, ok)
			r.Compressed += k.Compressed
			r.Uncompressed += k.Uncompressed
			r.Chunks = append(r.Chunks, k)
		}
		info.RowGroups = append(info.RowGroups, r)
	}
	return info, nil
}

// describe returns the next subtree of a checked schema.
func (w *schemaWalk) describe() ColumnInfo {
	e := &w.elements[w.next]
	w.next++
	c := ColumnInfo{Name: e.Name, Repetition: e.RepetitionType.V.String()}
	if e.Type.Valid {
		c.Physical = e.Type.V.String()
	}
	if e.LogicalType.Value != nil {
		c.Logical = e.LogicalType.Value.String()
	}
	for range e.NumChildren.V {
		c.Children = append(c.Children, w.describe())
	}
	return c
}

func describeChunk(k *chunkMeta, c leaf, flat bool) ChunkInfo {
	m := &k.Data
	out := ChunkInfo{
		Codec: m.Codec.String(), Values: m.NumValues,
		Compressed: m.TotalCompressedSize, Uncompressed: m.TotalUncompressedSize,
		Dictionary: m.DictionaryPageOffset > 0, PageIndex: k.ColumnIndexOffset > 0 && k.OffsetIndexOffset > 0,
		BloomFilter: m.BloomFilterOffset > 0,
	}
	for i, p := range m.Path {
		if i > 0 {
			out.Column += "."
		}
		out.Column += p
	}
	for _, e := range m.Encodings {
		out.Encodings = append(out.Encodings, e.String())
	}
	s := &m.Statistics
	if s.NullCount.Valid {
		out.Nulls = &s.NullCount.V
	}
	if !flat {
		return out
	}
	lo, hi := c.storedBounds(s)
	text := func(b []byte) *string {
		if b == nil {
			return nil
		}
		v, ok := c.scalar(b)
		if !ok {
			return nil
		}
		t := v.String()
		return &t
	}
	out.Min, out.Max = text(lo), text(hi)
	return out
}
