package text

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source/store"
)

// Snapshot identifies the files of a table, in their versions, and how they are read. It can be encoded: another
// process can open the same table with it, or a share of its files.
type Snapshot struct {
	Files   []store.Identity
	Options Options
	// United has the columns that are united by name.
	United *gpu.Schema `json:",omitempty"`
	// Values has those of each partition column of the options, by file.
	Values [][]gpu.Scalar `json:",omitempty"`
	// Share of Of shares of the files is what the table has, unless Of is 0.
	Share int `json:",omitempty"`
	Of    int `json:",omitempty"`
}

// Snapshot returns the files of the table, with absolute paths. It fails for a table whose rows one process must read:
// that of standard input, of a single file, and one that leaves bad rows out, since they are counted and written
// together.
func (t *Table) Snapshot() (*Snapshot, error) {
	if t.rejecting {
		return nil, fmt.Errorf("%s: one process collects the rows that cannot be read", t.files[0].path)
	}
	if len(t.files) < 2 {
		return nil, errors.New("a single file is divided where its rows end, which only a reader knows")
	}
	files, err := t.identities()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Files: files, Options: t.options, United: t.united}
	for _, p := range t.options.Partitions {
		s.Values = append(s.Values, p.Values)
	}
	return s, nil
}

// Open opens the table again. It reads the same samples: of the first file, or those of its share if columns are united
// by name. The error is a source.ErrChanged if a file that it reads has another version; a scan returns it for the
// other files.
func (s *Snapshot) Open() (*Table, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	opt := s.Options
	opt.Partitions = slices.Clone(opt.Partitions)
	for i := range opt.Partitions {
		opt.Partitions[i].Values = nil
	}
	t := newTable(opt)
	t.united = s.United
	from, to := s.share()
	for i, f := range s.Files {
		if i < from || i >= to {
			continue
		}
		t.files = append(t.files, newFile(f))
		t.size += f.Version.Size
		t.unsized = t.unsized || compressed(f.Path)
		for k := range opt.Partitions {
			opt.Partitions[k].Values = append(opt.Partitions[k].Values, s.Values[k][i])
		}
	}
	sampled := t.files
	if !opt.UnionByName {
		sampled = []*file{newFile(s.Files[0])}
	}
	if err := t.describe(opt, sampled); err != nil {
		return nil, err
	}
	t.options, t.exact = s.Options, false
	return t, nil
}

func newFile(f store.Identity) *file {
	return &file{path: store.Display(f.Path), address: f.Path, version: f.Version}
}

// check returns an error for a snapshot that no table has.
func (s *Snapshot) check() error {
	if err := s.Options.Check(); err != nil {
		return err
	}
	opt := s.Options
	switch {
	case len(s.Files) == 0:
		return errors.New("a table has no files")
	case opt.Rejects != "" || opt.IgnoreErrors:
		return errors.New("a table that leaves rows out has no shares")
	case s.Of < 0 || s.Share < 0 || s.Share >= max(s.Of, 1):
		return fmt.Errorf("a table has no share %d of %d", s.Share, s.Of)
	case len(s.Values) != len(opt.Partitions):
		return fmt.Errorf("a table has %d partition columns and the values of %d", len(opt.Partitions), len(s.Values))
	case opt.UnionByName != (s.United != nil) || opt.UnionByName && (s.United.Len() == 0 ||
		s.United.Len() > maxColumns):
		return errors.New("a table lacks the columns that are united by name")
	}
	for i, values := range s.Values {
		field := opt.Partitions[i].Field
		if len(values) != len(s.Files) {
			return fmt.Errorf("a table has %d files and %d values of the column %q", len(s.Files), len(values),
				field.Name)
		}
		for _, v := range values {
			if v.Type != field.Type {
				return fmt.Errorf("a table has values of type %v in the column %q of type %v", v.Type, field.Name,
					field.Type)
			}
		}
	}
	for _, f := range s.Files {
		if f.Path == "" || f.Path == Standard || f.Version.Size < 0 {
			return fmt.Errorf("a table has no file %q of %d bytes", f.Path, f.Version.Size)
		}
	}
	return nil
}

// share returns the range of the files of the share. All shares have about equal bytes. They follow each other in the
// order of the files. A share may have none.
func (s *Snapshot) share() (from, to int) {
	if s.Of == 0 {
		return 0, len(s.Files)
	}
	var all, at float64
	for _, f := range s.Files {
		all += float64(f.Version.Size) + 1
	}
	for _, f := range s.Files {
		size := float64(f.Version.Size) + 1
		of := min(int((at+size/2)/all*float64(s.Of)), s.Of-1)
		if at += size; of < s.Share {
			from++
		}
		if of <= s.Share {
			to++
		}
	}
	return from, to
}
