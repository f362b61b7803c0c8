// Package source defines the origin of strides. A Table has what a planner needs (schema,
// row counts, statistics); a Reader is one scan of it. Formats are sub-packages. A source
// never evaluates expressions; predicates of a scan only let it skip data that cannot
// match.
package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ErrData is the sentinel behind every error about damaged or wrong content of a file.
// Match it with errors.Is.
var ErrData = errors.New("bad data")

// ErrChanged is the sentinel behind the error of a file that another process has replaced
// or written to since its metadata was read. Unlike ErrData it may be over when the job
// runs again.
var ErrChanged = errors.New("the file changed while it was read")

// Table is the metadata of something that can be scanned. It is immutable and safe for
// concurrent use.
type Table interface {
	// Schema has every column that can be read.
	Schema() *gpu.Schema
	// Unreadable lists the other columns.
	Unreadable() []Unreadable
	// Rows is the number of rows. It is exact, unless the table is Estimated.
	Rows() int64
	// Stats describes column i of the schema.
	Stats(i int) ColumnStats
	// Scan starts reading. opt.Lease pays for the reader's memory. The reader decodes
	// ahead as far as there is memory. If memory is denied, it waits until its strides are
	// released. It fails with a gpu.BudgetError if the whole budget is less than
	// LeastMemory, or if nobody gives memory back.
	Scan(ctx context.Context, opt ScanOptions) (Reader, error)
	// LeastMemory returns the bytes of a scan that decodes one stride at a time: the
	// columns of its largest stride, and the encoded data they come from. It is computed
	// from the metadata, without reading a file. A scan is never denied memory if this much is left
	// in the budget, unless the metadata is wrong or pages have very
	// different sizes.
	LeastMemory(opt ScanOptions) int64
	// Describe returns one line for plans: the files and their sizes.
	Describe() string
	Close() error
}

// Estimated is a Table that knows the number of its rows only when it has been read, as of a text file.
type Estimated interface {
	// RowsExact reports whether Rows is exact, as for a small table. Otherwise it is an estimate.
	RowsExact() bool
}

// Stream is a Table whose rows come by themselves, as from standard input. A plan reads it once.
type Stream interface {
	// IsStream reports whether the table is one.
	IsStream() bool
}

// Shareable is a Table of which several processes each read a share. The shares follow each other in the order of the
// rows, and have about equal numbers of them.
type Shareable interface {
	ShareOf(share, of int) (Table, error)
}

// Nested is a Table that can read fields of its structs and of the structs in its lists alone. They are further columns
// for Stats, Scan and Sample: the first one has the position Schema().Len(), and the others follow.
type Nested interface {
	Inside() []Inside
}

// Inside is a field inside of a nested column. It is null where a struct around it is. A field of the elements of a
// list is the list of its values.
type Inside struct {
	Column int      // position of the nested column in the schema
	Path   []string // names of the fields, and gpu.PathElements for the elements of a list
	Field  gpu.Field
}

// SchemaInside returns the columns of a table, and after them those inside of its nested ones.
func SchemaInside(t Table) *gpu.Schema {
	s, ok := t.(Nested)
	if !ok {
		return t.Schema()
	}
	fields := slices.Clone(t.Schema().Fields)
	for _, i := range s.Inside() {
		fields = append(fields, i.Field)
	}
	return gpu.NewSchema(fields...)
}

// Sampler is a Table that can read a few of its rows at once, for estimates of a planner.
type Sampler interface {
	// Sample decodes columns of at most that many rows, from different parts of the table.
	// They are the same rows each time, whatever the columns. It takes some milliseconds,
	// and as much memory as a stride of these rows. The caller releases the stride. It ends with the context.
	Sample(ctx context.Context, lease *gpu.Lease, columns []int, rows int) (*gpu.Stride, error)
}

// Paged is a Table whose columns a scan can leave in pages: DecodeOptions.Pages.
type Paged interface {
	// InPages reports whether a scan leaves all these columns in pages, as far as the metadata says.
	InPages(columns []int) bool
	// SlowPages reports whether most bytes of these columns are compressed with ZSTD, GZIP or LZ4. A GPU decompresses
	// such a page with one block of threads, so it needs more pages at a time than for Snappy.
	SlowPages(columns []int) bool
}

// Explainer is a Table that can say what takes its LeastMemory.
type Explainer interface {
	// ExplainMemory returns advice, or "" if it is the rows of a stride.
	ExplainMemory(opt ScanOptions) string
}

// Described is a Table with key-value metadata, as of the files that it is made of.
type Described interface {
	Table
	// Metadata returns the pairs. Some describe columns by their names.
	Metadata() map[string]string
}

// exactKeys are keys of metadata that describes all columns of a file to one reader.
var exactKeys = []string{"ARROW:schema", "org.apache.spark.sql.parquet.row.metadata", "parquet.avro.schema",
	"avro.schema", "iceberg.schema",
	"parquet.proto.class", "parquet.proto.descriptor", "thrift.class", "thrift.descriptor", "writer.model.name"}

// DescribesColumns reports whether the metadata of a key describes all columns of a file, so
// that it is wrong for other columns.
func DescribesColumns(key string) bool { return slices.Contains(exactKeys, key) }

// CheckMemory returns a gpu.BudgetError for a scan that needs more than the whole budget
// of its lease. Scan checks it too. A plan may check all its scans before it runs.
func CheckMemory(t Table, opt ScanOptions) error {
	least := t.LeastMemory(opt)
	if least <= opt.Lease.Limit() {
		return nil
	}
	err := opt.Lease.Reserve(least) // fails, whatever else is reserved
	var budget *gpu.BudgetError
	if errors.As(err, &budget) {
		budget.Hint = Advice(t, opt)
		if budget.Hint == "" {
			budget.Hint = fmt.Sprintf("that is the least for a stride of %d rows of the columns that are read",
				opt.StrideRows)
		}
	}
	return err
}

// Advice says what takes the memory of a scan, if it is not the rows of a stride.
func Advice(t Table, opt ScanOptions) string {
	if e, ok := t.(Explainer); ok {
		return e.ExplainMemory(opt)
	}
	return ""
}

// Unreadable is a column that cannot be read.
type Unreadable struct {
	Name, Type string
	Reason     string
}

// ColumnStats is what the metadata promises about a column. A file can be wrong: plans
// may rely on it for speed, never for correctness.
type ColumnStats struct {
	// HasRange says that Min and Max bound every value that is not null.
	HasRange bool
	Min, Max gpu.Scalar
	// Nulls is the number of nulls, -1 when unknown.
	Nulls int64
	// Distinct estimates the number of distinct values, 0 when unknown.
	Distinct int64
	// Bytes is the uncompressed size of the column in the file.
	Bytes int64
	// BytesInPages is the part of Bytes that a scan leaves in pages (DecodeOptions.Pages), as far as the metadata says.
	BytesInPages int64
}

// Op is the comparison of a Predicate.
type Op uint8

// The comparisons that statistics can answer.
const (
	Eq Op = iota
	Lt
	Le
	Gt
	Ge
	In
	IsNull
	IsNotNull
)

// Predicate is one conjunct of a filter that the metadata may refute. It compares column
// Column of the table's schema with Values, which have the column's SQL type: one value
// for a comparison, any number for In, none for the null tests.
type Predicate struct {
	Column int
	Op     Op
	Values []gpu.Scalar
}

// ScanOptions configure a scan.
type ScanOptions struct {
	// Columns are the schema positions to read, in output order.
	Columns []int
	// Prune has conjuncts. Rows for which one is certainly not true may be left out; the
	// reader does not promise to leave out any.
	Prune []Predicate
	// First, when set, is a filter that decides which rows are read. Rows for which it is certainly not true may be
	// left out, as with Prune.
	First *First
	// StrideRows is the number of rows of a full stride.
	StrideRows int
	// Lease pays for the strides and for the encoded data that they come from.
	Lease *gpu.Lease
	// Decode configures the decoding.
	Decode DecodeOptions
}

// First is a filter whose columns a scan reads before the others. The scan then leaves out parts of the table in which
// the filter is true for no row: it neither reads nor decodes them. The strides have all columns of the scan, for the
// rows that are left, so the filter must be applied to them too.
type First struct {
	// Columns are the columns of the filter, as positions in ScanOptions.Columns.
	Columns []int
	// Decide returns a bit for each row of a stride with these columns, which is set if the filter may be true. It
	// returns nil if it cannot tell; the scan then reads all rows that are left. It takes the stride over. Several
	// goroutines call it.
	Decide func(ctx context.Context, s *gpu.Stride) []uint64
	// Always is for tests: the filter decides even where that costs more than it saves.
	Always bool
}

// DecodeOptions configure the decoding of a scan: the number of goroutines, how far they
// decode ahead, and the form of columns. The zero value uses every core.
type DecodeOptions struct {
	// Threads bounds the goroutines that decode; 0 means GOMAXPROCS.
	Threads int
	// Slots, when set, bounds the goroutines of all scans that share it. A goroutine
	// sends to it before it decodes a column of a stride, and receives from it
	// afterwards.
	Slots chan struct{}
	// Inflight bounds the strides that are decoded or being decoded and not yet read,
	// unless cores would idle. 0 means one more than Threads.
	Inflight int
	// InflightBytes, when set, replaces Inflight once the size of a stride is known. More
	// strides are decoded as long as the lease is expected to hold at most this many
	// bytes.
	InflightBytes int64
	// Encoded asks for encoded columns if they are smaller: codes of a dictionary, or
	// integers of fewer bytes. It is for strides that go through Queue.Upload.
	Encoded bool
	// Pages asks for columns in pages (gpu.Pages) where a device can decode them. It is for
	// strides that go through Queue.Upload of a device with the capability DecodePages.
	Pages bool
	// Trace, when set, is called after every decoding task, on any goroutine, with the
	// column and the start time.
	Trace func(column string, begin time.Time)
}

// Progress is the progress of a scan.
type Progress struct {
	RowsRead    int64 `json:"rows_read"`          // rows returned
	RowsTotal   int64 `json:"rows_total"`         // rows to be returned in total, after pruning
	BytesRead   int64 `json:"bytes_read"`         // compressed bytes of these rows in the selected columns
	BytesTotal  int64 `json:"bytes_total"`        //
	BytesPages  int64 `json:"bytes_in_pages"`     // of the bytes read, those that the device decodes
	Files       int64 `json:"files"`              // in total
	FilesRuled  int64 `json:"files_not_opened"`   // ruled out by the names of their folders
	RowGroups   int64 `json:"row_groups"`         // in total, of the files that were opened
	Skipped     int64 `json:"row_groups_skipped"` // skipped by statistics
	RowsSkipped int64 `json:"rows_skipped"`       // ruled out by statistics
	// Rejected is the number of rows so far that could not be read, and that the source leaves out.
	Rejected int64 `json:"rows_rejected,omitempty"`
	// A filter that decides first (ScanOptions.First) has read BytesFirst, and has ruled out RowsFiltered and
	// BytesFiltered so far, which the totals do not contain.
	BytesFirst    int64 `json:"bytes_read_for_filter,omitempty"`
	RowsFiltered  int64 `json:"rows_skipped_by_filter,omitempty"`
	BytesFiltered int64 `json:"bytes_skipped_by_filter,omitempty"`
	// Columns tells for each column of the scan, in order, who has decoded it. It is nil for tables in memory.
	Columns []Decoded `json:"columns,omitempty"`
	// Decode is the total time of all goroutines that decode. With n goroutines it is up
	// to n times the time of the scan.
	Decode time.Duration `json:"decode_ns"`
}

// Add adds the progress of a scan of another share of the same table.
func (p *Progress) Add(o Progress) {
	p.RowsRead, p.RowsTotal = p.RowsRead+o.RowsRead, p.RowsTotal+o.RowsTotal
	p.BytesRead, p.BytesTotal = p.BytesRead+o.BytesRead, p.BytesTotal+o.BytesTotal
	p.BytesPages += o.BytesPages
	p.Skipped, p.RowsSkipped = p.Skipped+o.Skipped, p.RowsSkipped+o.RowsSkipped
	p.Rejected, p.BytesFirst = p.Rejected+o.Rejected, p.BytesFirst+o.BytesFirst
	p.RowsFiltered, p.BytesFiltered = p.RowsFiltered+o.RowsFiltered, p.BytesFiltered+o.BytesFiltered
	p.Decode += o.Decode
	for i := range min(len(p.Columns), len(o.Columns)) {
		c := &p.Columns[i]
		c.ByDevice, c.ByCPU = c.ByDevice+o.Columns[i].ByDevice, c.ByCPU+o.Columns[i].ByCPU
		if c.Reason == "" {
			c.Reason = o.Columns[i].Reason
		}
	}
}

// Decoded tells who has decoded how many bytes of a column of a scan. The bytes are compressed ones, as in
// Progress.BytesRead. The bytes of a dictionary count like the pages that refer to it, although the CPU decodes the
// dictionary if the column keeps its codes.
type Decoded struct {
	Column   string `json:"column"`
	ByDevice int64  `json:"bytes_decoded_by_device"`
	ByCPU    int64  `json:"bytes_decoded_by_cpu"`
	// Reason says why the CPU decoded what the scan would leave to the device (DecodeOptions.Pages). It is the reason
	// of the first stride that has one.
	Reason string `json:"reason,omitempty"`
}

// Reader is one scan. One goroutine calls Read; any may call Progress.
type Reader interface {
	// Schema returns the schema of the strides: the selected columns in order.
	Schema() *gpu.Schema
	// Read returns the next stride, in the order of files and rows, and io.EOF after the
	// last. The caller owns the stride. After an error every call returns that error.
	Read(ctx context.Context) (*gpu.Stride, error)
	Progress() Progress
	// Close stops the decoders, waits for them and releases every buffer that was not
	// returned. It is idempotent.
	Close() error
}
