package parquet

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	reader "github.com/gstream/gstream/source/parquet"
	"github.com/stretchr/testify/require"
)

func uuidTable(values ...gpu.Scalar) table {
	schema := gpu.NewSchema(gpu.Field{Name: "u", Type: gpu.Of(gpu.Binary), Nullable: true, Annotation: gpu.UUID})
	tab := table{schema: schema, values: [][]gpu.Scalar{values}}
	if len(values) > 0 {
		tab.strides = []*gpu.Stride{{Schema: schema, Rows: len(values),
			Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.Binary), values)}}}
	}
	return tab
}

func TestUUIDsAreWrittenInTheirFixedLength(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	binary := gpu.Of(gpu.Binary)
	for name, distinct := range map[string]int{"plain": 1000, "dictionary": 10, "nulls": 0} {
		few := make([]gpu.Scalar, max(distinct, 1))
		lo, hi := bytes.Repeat([]byte{255}, 16), make([]byte, 16)
		for i := range few {
			b := make([]byte, 16)
			for k := range b {
				b[k] = byte(r.Uint32())
			}
			few[i] = gpu.Scalar{Type: binary, Valid: true, Str: string(b)}
		}
		values := make([]gpu.Scalar, 1000)
		for i := range values {
			values[i] = few[i%len(few)]
			if i%7 == 0 || distinct == 0 {
				values[i] = gpu.Null(binary)
				continue
			}
			if v := []byte(values[i].Str); bytes.Compare(v, lo) < 0 {
				lo = v
			} else if bytes.Compare(v, hi) > 0 {
				hi = v
			}
		}
		tab := uuidTable(values...)
		path := filepath.Join(t.TempDir(), "t.parquet")
		tab.write(t, path, Options{RowGroupRows: 400, PageRows: 64})
		tab.requireRead(t, path, 300)
		in, err := reader.Open([]string{path}, reader.OpenOptions{})
		require.NoError(t, err)
		require.Equal(t, gpu.UUID, in.Schema().Fields[0].Annotation)
		if s := in.Stats(0); distinct > 0 {
			require.Equal(t, [2]string{string(lo), string(hi)}, [2]string{s.Min.Str, s.Max.Str}, name)
		}
	}
	tab := uuidTable()
	path := filepath.Join(t.TempDir(), "t.parquet")
	tab.write(t, path, Options{})
	tab.requireRead(t, path, 300)
}

func TestUUIDOfAnotherLengthIsAnError(t *testing.T) {
	for _, text := range []string{"", "fifteen bytes..", "seventeen bytes.."} {
		tab := uuidTable(gpu.Scalar{Type: gpu.Of(gpu.Binary), Valid: true, Str: text})
		lease := hosttest.Budget(t, 0).Lease("sink")
		w, err := Create(filepath.Join(t.TempDir(), "x"), tab.schema, Options{Lease: lease})
		require.NoError(t, err)
		require.NoError(t, w.Write(context.Background(), tab.strides[0]))
		require.ErrorContains(t, w.Commit(context.Background()),
			`column "u": a UUID has 16 bytes, and a value has another length`)
		require.NoError(t, lease.Close())
	}
}
