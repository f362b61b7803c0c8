package sqldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink"
)

// dropped is a target that drops rows.
type dropped struct{}

func (dropped) Create(*gpu.Schema, pipeline.TargetOptions) (sink.Sink, error) {
	return &dropping{}, nil
}
func (dropped) Describe() string { return "rows" }

type dropping struct{ rows atomic.Int64 }

func (d *dropping) Write(_ context.Context, s *gpu.Stride) error {
	d.rows.Add(int64(s.Rows))
	s.Release()
	return nil
}
func (d *dropping) Commit(context.Context) error { return nil }
func (d *dropping) Abort() error                 { return nil }
func (d *dropping) Stats() sink.Stats            { return sink.Stats{Rows: d.rows.Load()} }

// target hands strides to the reader of the rows, one at a time. Memory of the run must be released before the run
// ends,
// so Write waits for the reader, who always takes the next stride or closes the rows.
type target struct {
	strides  chan *gpu.Stride
	released chan struct{} // one for each stride
	rows     atomic.Int64
}

func newTarget() *target {
	return &target{strides: make(chan *gpu.Stride), released: make(chan struct{})}
}

func (t *target) Create(*gpu.Schema, pipeline.TargetOptions) (sink.Sink, error) { return t, nil }
func (t *target) Describe() string                                              { return "rows" }

func (t *target) Write(ctx context.Context, s *gpu.Stride) error {
	t.rows.Add(int64(s.Rows))
	select {
	case t.strides <- s:
		<-t.released
		return nil
	case <-ctx.Done():
		s.Release()
		return context.Cause(ctx)
	}
}

func (t *target) Commit(context.Context) error { return nil }
func (t *target) Abort() error                 { return nil }
func (t *target) Stats() sink.Stats            { return sink.Stats{Rows: t.rows.Load()} }

// rows are the rows of a query that runs.
type rows struct {
	fields []gpu.Field
	target *target
	stop   context.CancelFunc
	ended  chan struct{} // closed when the run has ended
	err    error         // of the run, once it has ended

	stride *gpu.Stride // nil before the first and after the last
	at     int         // of the next row in it
}

// start runs a plan, and closes it at the end.
func (c *conn) start(ctx context.Context, p *pipeline.Plan, t *target) *rows {
	ctx, stop := context.WithCancel(ctx)
	r := &rows{fields: p.Schema().Fields, target: t, stop: stop, ended: make(chan struct{})}
	opt := c.options()
	go func() {
		defer close(r.ended)
		_, r.err = p.Run(ctx, opt)
		if err := p.Close(); r.err == nil {
			r.err = err
		}
	}()
	return r
}

// Columns implements driver.Rows.
func (r *rows) Columns() []string {
	names := make([]string, len(r.fields))
	for i, f := range r.fields {
		names[i] = f.Name
	}
	return names
}

// Close ends the run. It returns once its goroutines have ended and its memory is released.
func (r *rows) Close() error {
	r.stop()
	r.release()
	<-r.ended
	return nil
}

func (r *rows) release() {
	if r.stride != nil {
		r.stride.Release()
		r.stride = nil
		r.target.released <- struct{}{}
	}
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	for r.stride == nil || r.at == r.stride.Rows {
		r.release()
		select {
		case r.stride = <-r.target.strides:
			r.at = 0
		case <-r.ended:
			if r.err != nil {
				return r.err
			}
			return io.EOF
		}
	}
	for i := range dest {
		dest[i] = value(r.fields[i], r.stride.Cols[i].ScalarAt(r.at))
	}
	r.at++
	return nil
}

// value returns a value in Go.
func value(f gpu.Field, v gpu.Scalar) driver.Value {
	switch k := f.Type.Kind; {
	case !v.Valid:
		return nil
	case k == gpu.Bool:
		return v.Int.Lo != 0
	case k == gpu.Float32:
		return float32(v.Float)
	case k == gpu.Float64:
		return v.Float
	case k == gpu.Uint8, k == gpu.Uint16, k == gpu.Uint32, k == gpu.Uint64:
		return v.Int.Lo
	case f.Type.IsInteger() && k != gpu.HugeInt:
		return v.Int.Int64()
	case k == gpu.Date, k == gpu.Timestamp:
		if n := v.Int.Int64(); n != f.Type.Infinity() && n != -f.Type.Infinity() {
			return moment(f.Type, n)
		}
	case f.Annotation == gpu.UUID && len(v.Str) == 16:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v.Str[:4], v.Str[4:6], v.Str[6:8], v.Str[8:10], v.Str[10:])
	case k == gpu.Binary:
		return []byte(v.Str)
	case k == gpu.String:
		return strings.Clone(v.Str)
	}
	return v.String()
}

// moment returns a date or a timestamp.
func moment(t gpu.Type, v int64) time.Time {
	if t.Kind == gpu.Date {
		return time.Unix(v*24*60*60, 0).UTC()
	}
	perSecond := t.Unit.PerDay() / (24 * 60 * 60)
	seconds, rest := v/perSecond, v%perSecond
	return time.Unix(seconds, rest*(int64(time.Second)/perSecond)).UTC()
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	name, _, _ := strings.Cut(r.fields[i].TypeName(), "(")
	return name
}

// ColumnTypeNullable implements driver.RowsColumnTypeNullable.
func (r *rows) ColumnTypeNullable(i int) (nullable, ok bool) { return r.fields[i].Nullable, true }

// ColumnTypeLength implements driver.RowsColumnTypeLength.
func (r *rows) ColumnTypeLength(i int) (length int64, ok bool) {
	if r.fields[i].Type.IsVar() {
		return math.MaxInt64, true
	}
	return 0, false
}

// ColumnTypePrecisionScale implements driver.RowsColumnTypePrecisionScale.
func (r *rows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	t := r.fields[i].Type
	return int64(t.Precision), int64(t.Scale), t.Kind == gpu.Decimal
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	f := r.fields[i]
	switch k := f.Type.Kind; {
	case k == gpu.Bool:
		return scanType[bool](f)
	case k == gpu.Float32:
		return scanType[float32](f)
	case k == gpu.Float64:
		return scanType[float64](f)
	case k == gpu.Uint8, k == gpu.Uint16, k == gpu.Uint32, k == gpu.Uint64:
		return scanType[uint64](f)
	case f.Type.IsInteger() && k != gpu.HugeInt:
		return scanType[int64](f)
	case k == gpu.Date, k == gpu.Timestamp:
		return scanType[time.Time](f)
	case k == gpu.Binary && f.Annotation != gpu.UUID:
		return reflect.TypeFor[[]byte]() // nil for null
	}
	return scanType[string](f)
}

func scanType[T any](f gpu.Field) reflect.Type {
	if f.Nullable {
		return reflect.TypeFor[sql.Null[T]]()
	}
	return reflect.TypeFor[T]()
}
