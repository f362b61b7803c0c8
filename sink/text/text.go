package text

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink/ordered"
)

// Format is a format of text.
type Format string

// The formats.
const (
	CSV  Format = "csv"
	JSON Format = "json" // an object on each line
)

// Options configure an output.
type Options struct {
	Format Format
	// Delimiter is the character between the fields of CSV; "" is a comma.
	Delimiter string
	// NoHeader leaves the names of the columns out of CSV.
	NoHeader bool
	// Null is the text of a null in CSV. Values that are equal to it are in quotes.
	Null string
	ordered.Options
}

func (o *Options) header() bool { return !o.NoHeader }

func (o *Options) delimiter() byte {
	if o.Delimiter == "" {
		return ','
	}
	return o.Delimiter[0]
}

// Check returns an error for options that are wrong whatever the columns.
func (o *Options) Check() error {
	if d := o.Delimiter; d != "" && (len(d) != 1 || d[0] >= 0x80 || strings.Contains("\"\n\r\x00", d)) {
		return fmt.Errorf("delimiter is %q; it must be one ASCII character, and neither a quote nor a line break", d)
	}
	if strings.ContainsAny(o.Null, "\"\n\r"+string(o.delimiter())) {
		return fmt.Errorf("the text of a null is %q; it must be one without quotes, delimiters and line breaks",
			o.Null)
	}
	return nil
}

// FormatOf returns the format that the name of a file says, "" for another one. The name may end in .gz or .zst.
func FormatOf(path string) Format {
	path = strings.ToLower(path)
	if ext := filepath.Ext(path); ext == ".gz" || ext == ".zst" {
		path = strings.TrimSuffix(path, ext)
	}
	switch filepath.Ext(path) {
	case ".csv", ".tsv":
		return CSV
	case ".json", ".jsonl", ".ndjson":
		return JSON
	}
	return ""
}

// Create starts an output.
func Create(path string, schema *gpu.Schema, opt Options) (*ordered.Writer, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	e := &file{newEncoder(schema, opt), uncompressed}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".gz":
		e.compress = gzipped
	case ".zst":
		e.compress = zstandard
	}
	return ordered.Create(path, e, opt.Options)
}

// file is an ordered.Encoder.
type file struct {
	*encoder
	compress func([]byte) ([]byte, error)
}

// Begin implements ordered.Encoder.
func (f *file) Begin() ([]byte, error) {
	if text := f.header(nil); len(text) > 0 {
		return f.compress(text)
	}
	return nil, nil
}

// Memory implements ordered.Encoder. The text of numbers has about three times their bytes.
func (f *file) Memory(s *gpu.Stride) int64 { return 3*s.Bytes() + int64(s.Rows*len(s.Cols)) }

// Encode implements ordered.Encoder.
func (f *file) Encode(s *gpu.Stride, size int) ([]byte, error) {
	return f.compress(f.rows(make([]byte, 0, size), s))
}

// Wrote implements ordered.Encoder.
func (f *file) Wrote(int64, []byte) {}

// End implements ordered.Encoder.
func (f *file) End(int64) ([]byte, error) { return nil, nil }

func uncompressed(text []byte) ([]byte, error) { return text, nil }

func gzipped(text []byte) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(text)
	err = errors.Join(err, z.Close())
	return out.Bytes(), err
}

// zstdEncoder compresses texts of any number of goroutines.
var zstdEncoder, _ = zstd.NewWriter(nil)

func zstandard(text []byte) ([]byte, error) { return zstdEncoder.EncodeAll(text, nil), nil }
