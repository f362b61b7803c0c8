package text

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// reject is a row that is left out.
type reject struct {
	file   string
	line   int64
	column int // from 1; 0 for the whole row
	name   string
	reason string
	text   string
}

// rejectText bounds the text of a rejected row in the file.
const rejectText = 64 << 10

// rejectHeader is the first line of a file of rejects.
const rejectHeader = "file,line,column,column_name,reason,text"

// reject adds a row with a defect or a value that its column cannot take.
func (w *worker) reject(b *block, r badRow, v badValue) {
	x := reject{file: b.file.path, line: b.lineAt(r.from)}
	text := b.text[r.from:max(r.to, r.from)]
	x.text = strings.ToValidUTF8(strings.TrimSuffix(string(text[:min(len(text), rejectText)]), "\r"), "\ufffd")
	switch {
	case r.what != sound:
		x.reason = r.what.describe(r.fields, len(b.file.layout.names))
	case v.row < 0:
		x.reason = "the text is not UTF-8"
	default:
		c := w.columns[v.column]
		f := w.tokens.column(c.place)[v.row]
		x.column, x.name = c.position+1, c.field.Name
		x.reason = c.mismatch(b.text, f)
	}
	w.rejects = append(w.rejects, x)
}

// rejects writes rejected rows to a file. The file appears when all rows of the table have been read. A nil *rejects
// takes no rows.
type rejects struct {
	path string
	temp *os.File
	out  *bufio.Writer
}

// newRejects creates the file under a temporary name.
func newRejects(path string) (*rejects, error) {
	if err := replaceable(path); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".rejects-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("make the file of rejects: %w", err)
	}
	r := &rejects{path: path, temp: f, out: bufio.NewWriter(f)}
	_, err = r.out.WriteString(rejectHeader + "\n")
	return r, err
}

// replaceable returns an error if there is a file that is no file of rejects.
func replaceable(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	line := make([]byte, len(rejectHeader))
	if n, _ := f.Read(line); string(line[:n]) != rejectHeader {
		return &fs.PathError{Op: "write the rejects", Path: path, Err: fmt.Errorf("the file exists, and holds no "+
			"rejects; remove it, or name another file: %w", fs.ErrExist)}
	}
	return nil
}

// write adds rows.
func (r *rejects) write(rows []reject) error {
	if r == nil {
		return nil
	}
	for _, x := range rows {
		column := ""
		if x.column > 0 {
			column = fmt.Sprint(x.column)
		}
		_, err := fmt.Fprintf(r.out, "%s,%d,%s,%s,%s,%s\n", quote(x.file), x.line, column, quote(x.name),
			quote(x.reason), quote(x.text))
		if err != nil {
			return fmt.Errorf("write the file of rejects: %w", err)
		}
	}
	return nil
}

// quote returns a text as a field of CSV.
func quote(s string) string {
	if strings.ContainsAny(s, ",\"\n\r ") || s == "" {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}

// commit gives the file its name.
func (r *rejects) commit() error {
	if r == nil || r.temp == nil {
		return nil
	}
	name := r.temp.Name()
	err := errors.Join(r.out.Flush(), r.temp.Chmod(0o644), r.temp.Close())
	r.temp = nil
	if err == nil {
		err = os.Rename(name, r.path)
	}
	if err != nil {
		return fmt.Errorf("write the file of rejects: %w", errors.Join(err, os.Remove(name)))
	}
	return nil
}

// abort removes the file if it is not complete.
func (r *rejects) abort() {
	if r != nil && r.temp != nil {
		r.temp.Close()
		os.Remove(r.temp.Name())
		r.temp = nil
	}
}
