package arrow

import (
	"context"
	"errors"
	"fmt"

	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// Snapshot identifies the files of a table in their versions. It can be encoded: another process can open the same
// table with it, or a share of its record batches.
type Snapshot struct {
	Files []store.Identity
	// Share of Of shares of the record batches is what the table has, unless Of is 0.
	Share int `json:",omitempty"`
	Of    int `json:",omitempty"`
}

// SnapshotOf returns the files of a table that Open has returned, with absolute paths. It fails for standard input, for
// other tables, and for one that has no two record batches to share.
func SnapshotOf(t source.Table) (*Snapshot, error) {
	s, ok := t.(sampledTable)
	if !ok {
		return nil, errors.New("it is no table of Arrow files")
	}
	if len(s.parts()) < 2 {
		return nil, fmt.Errorf("%s: a record batch is read as a whole", s.files[0].path)
	}
	files, err := s.identities()
	return &Snapshot{Files: files}, err
}

// Open opens the table again. The error is a source.ErrChanged if a file has another version.
func (s *Snapshot) Open(ctx context.Context) (source.Table, error) {
	if s.Of < 0 || s.Share < 0 || s.Share >= max(s.Of, 1) {
		return nil, fmt.Errorf("a table has no share %d of %d", s.Share, s.Of)
	}
	if len(s.Files) == 0 {
		return nil, errors.New("a table has no files")
	}
	t := &fileTable{exact: true}
	for _, f := range s.Files {
		one := &file{path: store.Display(f.Path), address: f.Path, version: f.Version}
		err := openFile(ctx, one)
		if err == nil {
			err = t.add(ctx, one)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.path, err)
		}
	}
	if s.Of > 0 {
		t.take(s.Share, s.Of)
	}
	return sampledTable{t}, nil
}

// part is what one share has of a table: a record batch, or a sequential file.
type part struct {
	file  *file
	block int // -1 for all of the file
	bytes int64
}

// parts returns the parts of a table, in order.
func (t *fileTable) parts() (out []part) {
	for _, f := range t.files {
		if f.sequential {
			out = append(out, part{f, -1, f.version.Size})
			continue
		}
		for i, b := range f.blocks {
			if b.records {
				out = append(out, part{f, i, b.metadata + b.body})
			}
		}
	}
	return out
}

// take leaves the table a share of its parts. All shares have about equal bytes. They follow each other in the order of
// the rows. A share may have no part. Dictionaries stay.
func (t *fileTable) take(share, of int) {
	parts := t.parts()
	all, at, taken := int64(0), int64(0), int64(0)
	for _, p := range parts {
		all += p.bytes
	}
	mine := map[*file]map[int]bool{}
	for _, p := range parts {
		middle := (float64(at) + float64(p.bytes)/2) / float64(max(all, 1))
		if at += p.bytes; min(int(middle*float64(of)), of-1) != share {
			continue
		}
		if mine[p.file] == nil {
			mine[p.file] = map[int]bool{}
		}
		mine[p.file][p.block] = true
		taken += p.bytes
	}
	var files []*file
	for _, f := range t.files {
		if mine[f] == nil {
			continue
		}
		var blocks []block
		begun := false
		for i, b := range f.blocks {
			switch {
			case !b.records || mine[f][i]:
				blocks = append(blocks, b)
				begun = begun || b.records
			case !begun:
				f.before++
			}
		}
		f.blocks = blocks
		files = append(files, f)
	}
	t.files, t.size, t.exact = files, taken, false
	t.rows = int64(float64(t.rows) * float64(taken) / float64(max(all, 1)))
}
