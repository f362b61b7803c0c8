package pipeline

import (
	"context"
	"fmt"

	"github.com/gstream/gstream/source"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	sourceparquet "github.com/gstream/gstream/source/parquet"
	sourcetext "github.com/gstream/gstream/source/text"
)

// sharedTable is a table of files that tasks share, in JSON. It has one of the formats.
type sharedTable struct {
	Parquet *sourceparquet.Snapshot `json:",omitempty"`
	Text    *sourcetext.Snapshot    `json:",omitempty"`
	Arrow   *sourcearrow.Snapshot   `json:",omitempty"`
}

// shareTable returns a table for other processes. It fails if only this process can read it, or should read it, since
// it cannot be divided before it is read.
func shareTable(t source.Table) (out *sharedTable, err error) {
	out = &sharedTable{}
	switch t := t.(type) {
	case *sourceparquet.Table:
		out.Parquet, err = t.Snapshot()
	case *sourcetext.Table:
		out.Text, err = t.Snapshot()
	default:
		out.Arrow, err = sourcearrow.SnapshotOf(t)
	}
	return out, err
}

// take leaves the table one share of several.
func (s *sharedTable) take(share, of int) {
	switch {
	case s.Parquet != nil:
		s.Parquet.Share, s.Parquet.Of = share, of
	case s.Text != nil:
		s.Text.Share, s.Text.Of = share, of
	case s.Arrow != nil:
		s.Arrow.Share, s.Arrow.Of = share, of
	}
}

// open opens the table, or its share.
func (s *sharedTable) open(ctx context.Context) (source.Table, error) {
	switch {
	case s == nil:
	case s.Parquet != nil:
		return s.Parquet.Open()
	case s.Text != nil:
		return s.Text.Open()
	case s.Arrow != nil:
		return s.Arrow.Open(ctx)
	}
	return nil, fmt.Errorf("%w: the table has no files", ErrJob)
}
