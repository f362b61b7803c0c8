package parquet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/stretchr/testify/require"
)

// nowhere is a storage that takes no time.
type nowhere struct{}

func (nowhere) stage(string, bool) (string, outFile, error) { return "", nowhere{}, nil }
func (nowhere) exchange(string, string) error               { return nil }
func (nowhere) create(string) (outFile, error)              { return nowhere{}, nil }
func (nowhere) mkdir(string) error                          { return nil }
func (nowhere) rmdir(string) error                          { return nil }
func (nowhere) rename(string, string, bool) error           { return nil }
func (nowhere) syncDir(string) error                        { return nil }
func (nowhere) finish(string, string) error                 { return nil }
func (nowhere) remove(string) error                         { return nil }
func (nowhere) WriteAt(p []byte, _ int64) (int, error)      { return len(p), nil }
func (nowhere) startWriteback(int64, int64)                 {}
func (nowhere) Sync() error                                 { return nil }
func (nowhere) Close() error                                { return nil }

// BenchmarkWrite writes strides of 128 Ki rows of one column on one thread and
// reports Mrows/s and the GB/s of the values that come in.
func BenchmarkWrite(b *testing.B) {
	const rows, strides = 1 << 17, 4
	r := rand.New(rand.NewPCG(1, 1))
	ints := func(value func(i int) int64) gpu.Column {
		v := make([]int64, rows)
		for i := range v {
			v[i] = value(i)
		}
		return gpu.Column{Type: gpu.Of(gpu.Int64), Len: rows, Data: gpu.WrapBytes(gpu.BytesOf(v))}
	}
	nullable := func(c gpu.Column) gpu.Column {
		valid := make([]byte, gpu.BitmapBytes(rows))
		for i := range valid {
			valid[i] = byte(r.Uint32() | r.Uint32())
		}
		c.Valid = gpu.WrapBytes(valid)
		return c
	}
	strings := func(n int) gpu.Column {
		values := make([]gpu.Scalar, n)
		for i := range values {
			values[i] = gpu.StringScalar(fmt.Sprintf("the value %d of some text %d", i, r.IntN(1000)))
		}
		return gpu.ColumnOf(gpu.Of(gpu.String), values)
	}
	coded := func(values gpu.Column, used int) gpu.Column {
		codes := make([]int32, rows)
		for i := range codes {
			codes[i] = int32(r.IntN(used) * 7919 % values.Len)
		}
		return gpu.Column{Type: values.Type, Len: rows, Data: gpu.WrapBytes(gpu.BytesOf(codes)),
			Dict: &gpu.Dictionary{Values: values}}
	}
	build := strings(150000)
	for _, c := range []struct {
		name string
		col  gpu.Column
	}{
		{"ascending", ints(func(i int) int64 { return int64(i) })},
		{"unique", ints(func(int) int64 { return int64(r.Uint64() >> 30) })},
		{"few distinct", ints(func(int) int64 { return r.Int64N(50) })},
		{"nullable", nullable(ints(func(int) int64 { return r.Int64N(1e7) }))},
		{"wide nullable",
			nullable(gpu.Column{Type: gpu.DecimalOf(38, 2), Len: rows, Data: gpu.WrapBytes(make([]byte, 16*rows))})},
		{"codes of few", coded(strings(20), 20)},
		{"codes of a build side, few used", coded(build, 1000)},
		{"codes of a build side, all used", coded(build, 150000)},
		{"text", strings(rows)},
	} {
		b.Run(c.name, func(b *testing.B) {
			schema := gpu.NewSchema(gpu.Field{Name: "v", Type: c.col.Type, Nullable: true})
			lease := hosttest.Budget(b, 0).Lease("sink")
			path := filepath.Join(b.TempDir(), "t.parquet") // is not made
			for range b.N {
				w, err := create(nowhere{}, path, schema, Options{Lease: lease, Threads: 1})
				require.NoError(b, err)
				for range strides {
					require.NoError(b, w.Write(context.Background(),
						&gpu.Stride{Schema: schema, Rows: rows, Cols: []gpu.Column{c.col.Retain()}}))
				}
				require.NoError(b, w.Commit(context.Background()))
			}
			seconds := b.Elapsed().Seconds() / float64(b.N) / strides
			bytes := c.col.Data.Size() + c.col.Offsets.Size() + c.col.Valid.Size()
			b.ReportMetric(rows/seconds/1e6, "Mrows/s")
			b.ReportMetric(float64(bytes)/seconds/1e9, "GB/s")
			require.NoError(b, lease.Close())
		})
	}
}
