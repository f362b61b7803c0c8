// Package source defines where strides come from: a Table is what a planner
// looks at (schema, row counts, statistics), a Reader is one scan of it. The
// formats are sub-packages. It never evaluates expressions; predicates given to
// a scan only let it skip data that cannot match.
package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gstream/gstream/gpu"
)

// ErrData is the sentinel behind every error that says that a file's content is
// damaged or not what was promised; match it with errors.Is.
var ErrData = errors.New("bad data")

// Table is the metadata of something that can be scanned. It is immutable and
// safe for concurrent use.
type Table interface {
	// Schema lists every column that can be read.
	Schema() *gpu.Schema
	// Unreadable lists the columns that are there, too.
	Unreadable() []Unreadable
	// Rows is the exact number of rows.
	Rows() int64
	// Stats describes column i of the schema.
	Stats(i int) ColumnStats
	// Scan starts reading. The reader's memory comes from opt.Lease. It decodes ahead as
	// far as there is memory; where it is refused some it waits for its strides to be
	// released. It fails with a gpu.BudgetError where the whole budget is less than
	// LeastMemory, and where nobody gives any back.
	Scan(ctx context.Context, opt ScanOptions) (Reader, error)
	// LeastMemory is what a scan takes when it decodes one stride at a time, in bytes: the
	// columns of its largest stride, and what they are decoded from. It is computed from
	// the metadata, without reading a file: with so much left of the budget a scan is not
	// refused any, unless the metadata lies or pages are of very different sizes.
	LeastMemory(opt ScanOptions) int64
	// Describe is one line for plans: the files and their sizes.
	Describe() string
	Close() error
}

// CheckMemory refuses a scan that the whole budget of its lease is not enough for, with
// a gpu.BudgetError. Scan does it, too; a plan may do it for all its scans before it runs.
func CheckMemory(t Table, opt ScanOptions) error {
	least := t.LeastMemory(opt)
	if least <= opt.Lease.Limit() {
		return nil
	}
	err := opt.Lease.Reserve(least) // fails, whatever else is reserved
	var budget *gpu.BudgetError
	if errors.As(err, &budget) {
		budget.Hint = fmt.Sprintf("that is the least for a stride of %d rows of the columns that are read", opt.StrideRows)
	}
	return err
}

// Unreadable is a column that cannot be read.
type Unreadable struct {
	Name, Type string
	Reason     string
}

// ColumnStats is what the metadata promises of a column. A file can lie: plans
// may rely on it for speed, never for right answers.
type ColumnStats struct {
	// HasRange says that Min and Max bound every value that is not null.
	HasRange bool
	Min, Max gpu.Scalar
	// Nulls is the number of nulls, -1 when unknown.
	Nulls int64
	// Distinct estimates the distinct values, 0 when unknown.
	Distinct int64
	// Bytes is the uncompressed size of the column in the file.
	Bytes int64
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

// Predicate is one conjunct of a filter that the metadata may refute: column
// Column of the table's schema against Values, which have the column's SQL type
// (one for a comparison, any number for In, none for the null tests).
type Predicate struct {
	Column int
	Op     Op
	Values []gpu.Scalar
}

// ScanOptions says what a scan reads.
type ScanOptions struct {
	// Columns are the schema positions to read, in output order.
	Columns []int
	// Prune holds conjuncts; rows for which one is certainly not true may be
	// left out. The reader does not promise to leave any out.
	Prune []Predicate
	// StrideRows is the number of rows of a full stride.
	StrideRows int
	// Lease pays for the strides and for what they are decoded from.
	Lease *gpu.Lease
	// Decode says how.
	Decode DecodeOptions
}

// DecodeOptions says how the strides of a scan are decoded: by how many goroutines, how
// far ahead, and into what. The zero value uses every core.
type DecodeOptions struct {
	// Threads bounds the goroutines that decode; 0 means GOMAXPROCS.
	Threads int
	// Slots, when set, bounds them for all scans that share it: a goroutine that
	// decodes a column of a stride has sent to it, and receives from it afterwards.
	Slots chan struct{}
	// Inflight bounds the strides that are decoded or being decoded and not yet read,
	// unless cores would idle; 0 means one more than Threads.
	Inflight int
	// InflightBytes, when set, takes the place of Inflight once it is known what a
	// stride takes: more are decoded as long as the lease is likely to hold no more
	// than so many bytes.
	InflightBytes int64
	// Encoded asks for encoded columns where they are smaller, codes of a dictionary or
	// integers of fewer bytes: for strides that go through Queue.Upload.
	Encoded bool
	// Trace, when set, is called after every task of decoding, on any goroutine, with
	// the column and the time at which it began.
	Trace func(column string, begin time.Time)
}

// Progress is how far a scan has come.
type Progress struct {
	RowsRead    int64 `json:"rows_read"`          // rows given out
	RowsTotal   int64 `json:"rows_total"`         // rows that will be, after pruning
	BytesRead   int64 `json:"bytes_read"`         // compressed bytes of these rows in the selected columns
	BytesTotal  int64 `json:"bytes_total"`        //
	RowGroups   int64 `json:"row_groups"`         // in all
	Skipped     int64 `json:"row_groups_skipped"` // by statistics
	RowsSkipped int64 `json:"rows_skipped"`       // that statistics ruled out
	// Decode is the time of all goroutines that decode, summed: with n of them up to
	// n times that of the scan.
	Decode time.Duration `json:"decode_ns"`
}

// Reader is one scan. Read is called by one goroutine; Progress by any.
type Reader interface {
	// Schema is the schema of the strides: the selected columns in order.
	Schema() *gpu.Schema
	// Read returns the next stride, in the order of files and rows, and io.EOF
	// after the last. The caller owns the stride. After an error every call
	// returns that error.
	Read(ctx context.Context) (*gpu.Stride, error)
	Progress() Progress
	// Close stops the decoders, waits for them and releases every buffer that
	// was not given out. It is idempotent.
	Close() error
}
