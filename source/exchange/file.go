// Package exchange reads the files by which tasks exchange rows. A task writes one file (package sink/exchange), with
// the rows for all tasks that follow it, ordered by partition. A task reads its partitions of the files of all tasks
// before it. The process that runs the tasks tells it where these are, by the indexes that the tasks have returned.
//
// # Format
//
// All numbers are little-endian.
//
//	magic    8 bytes
//	pages    one after the other, ordered by partition: blocks of rows as in spill files (spill.Page)
//	index    JSON: an Index
//	length   8 bytes: of the index
//	sum      4 bytes: CRC-32C of the index
//	magic    8 bytes
//
// # Trust
//
// A file may be damaged, or another file. Its index, and pages that somebody says it has, are checked before anything
// is allocated by them, and each page when it is read: a page that is lost, is read twice or has changed is an error.
package exchange

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
	"github.com/gstream/gstream/spill"
)

// Magic begins and ends a file.
const Magic = "GSXCHG01"

// tailBytes is the length of what follows the index.
const tailBytes = 8 + 4 + len(Magic)

// maxIndex bounds the bytes of an index, MaxPartitions the number of partitions of a file.
const (
	maxIndex      = 1 << 30
	MaxPartitions = 1 << 16
)

// Index tells where the rows of a file are.
type Index struct {
	Schema     *gpu.Schema `json:"schema"`
	Partitions int         `json:"partitions"`
	Pages      []Page      `json:"pages"`
	Sample     Sample      `json:"sample,omitzero"`
}

// Page is a page of one partition.
type Page struct {
	Partition int   `json:"partition"`
	Offset    int64 `json:"offset"`
	spill.Page
}

// Sample has keys of rows of a file, spread evenly. Each one stands for Weight rows.
type Sample struct {
	Keys   [][]gpu.Scalar `json:"keys,omitempty"`
	Weight int64          `json:"weight,omitempty"`
}

// Part is the rows of one partition of a file.
type Part struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"` // in the file
	// Sum is the sum of the checksums of the pages. What all readers of a partition have read has the same sum as what
	// was written.
	Sum uint64 `json:"sum"`
}

// Add adds other rows.
func (p *Part) Add(o Part) {
	p.Rows += o.Rows
	p.Bytes += o.Bytes
	p.Sum += o.Sum
}

// Times returns the rows as often as they are read.
func (p Part) Times(n int) Part {
	return Part{p.Rows * int64(n), p.Bytes * int64(n), p.Sum * uint64(n)}
}

// add adds a page.
func (p *Part) add(page *Page) { p.Add(Part{int64(page.Rows), page.Stored, uint64(page.Sum)}) }

// Parts returns the rows of each partition.
func (x *Index) Parts() []Part {
	out := make([]Part, x.Partitions)
	for i := range x.Pages {
		out[x.Pages[i].Partition].add(&x.Pages[i])
	}
	return out
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns what follows the pages.
func (x *Index) Encode() ([]byte, error) {
	out, err := json.Marshal(x)
	if err != nil {
		return nil, err
	}
	if len(out) > maxIndex {
		return nil, gpu.Exceeded("the index of a file of rows for other tasks has %d bytes, at most %d", len(out),
			maxIndex)
	}
	return Tail(out), nil
}

// Tail returns an index and what follows it.
func Tail(index []byte) []byte {
	out := binary.LittleEndian.AppendUint64(index[:len(index):len(index)], uint64(len(index)))
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(index, castagnoli))
	return append(out, Magic...)
}

// badf returns a source.ErrData.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", source.ErrData, fmt.Sprintf(format, args...))
}

// ReadIndex reads the index of a file of so many bytes. The error is a source.ErrData for content that is wrong.
func ReadIndex(ctx context.Context, path string, size int64) (*Index, error) {
	f, err := store.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	x, err := readIndex(ctx, f)
	if got := f.Version().Size; err == nil && got != size {
		err = badf("it has %d bytes in place of %d", got, size)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", store.Display(path), err)
	}
	return x, nil
}

func readIndex(ctx context.Context, f store.File) (*Index, error) {
	size := f.Version().Size
	if size < int64(len(Magic)+tailBytes) {
		return nil, badf("it has %d bytes, which is no file of rows for other tasks", size)
	}
	end := size - int64(tailBytes)
	tail := make([]byte, tailBytes)
	if _, err := f.ReadAt(ctx, tail, end); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(tail)
	if string(tail[12:]) != Magic || n > maxIndex || int64(n) > end-int64(len(Magic)) {
		return nil, badf("it is no file of rows for other tasks, or it was cut off")
	}
	text := make([]byte, n)
	begin := end - int64(n)
	if _, err := f.ReadAt(ctx, text, begin); err != nil {
		return nil, err
	}
	if crc32.Checksum(text, castagnoli) != binary.LittleEndian.Uint32(tail[8:]) {
		return nil, badf("its index is damaged")
	}
	var x Index
	if err := json.Unmarshal(text, &x); err != nil {
		return nil, badf("its index: %v", err)
	}
	return &x, x.check(begin)
}

// check returns an error unless the pages follow each other, ordered by partition, up to an offset.
func (x *Index) check(end int64) error {
	if x.Schema == nil || x.Partitions < 1 || x.Partitions > MaxPartitions {
		return badf("its index has no columns, or %d partitions", x.Partitions)
	}
	at, partition := int64(len(Magic)), 0
	for i := range x.Pages {
		p := &x.Pages[i]
		if err := p.Check(x.Schema); err != nil {
			return badf("its index, page %d: %v", i, err)
		}
		if p.Offset != at || p.Stored > end-at || p.Partition < partition || p.Partition >= x.Partitions {
			return badf("its index, page %d: it is at byte %d, of partition %d", i, p.Offset, p.Partition)
		}
		at, partition = at+p.Stored, p.Partition
	}
	if at != end {
		return badf("its index: the pages end at byte %d of %d", at, end)
	}
	return nil
}
