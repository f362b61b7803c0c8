package parquet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/hosttest"
	pq "github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestTheOutputIsTheSameAfterEveryRefusal(t *testing.T) {
	defer goleak.VerifyNone(t)
	tab := randomTable(rand.New(rand.NewPCG(4, 4)), 1500, 0.1)
	dir := t.TempDir()
	write := func(path string, b *gpu.Budget, threads int) {
		lease := b.Lease("sink")
		w, err := Create(path, tab.schema, Options{Lease: lease, Threads: threads, RowGroupRows: 500, PageRows: 100,
			Overwrite: true})
		require.NoError(t, err)
		require.NoError(t, tab.tryWrite(w))
		require.NoError(t, lease.Close())
	}
	path := filepath.Join(dir, "out.parquet")
	write(path, hosttest.Budget(t, 0), 1)
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	for k, short := 1, true; short; k += 1 + k/10 {
		short = false
		var regrow func()
		b, regrow := hosttest.ShrinkingBudget(t, k, func() {
			short = true
			time.AfterFunc(time.Millisecond, func() { regrow() })
		})
		write(path, b, 1+int(k%2)*3)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, got, "after %d allocations", k)
	}
}

func TestASinkThatNobodyGivesMemoryFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	const patience = 100 * time.Millisecond
	tab := randomTable(rand.New(rand.NewPCG(4, 4)), 1500, 0.1)
	b, _ := hosttest.ShrinkingBudget(t, 20, func() {})
	b.SetPatience(patience)
	lease := b.Lease("sink")
	w, err := Create(filepath.Join(t.TempDir(), "out.parquet"), tab.schema, Options{Lease: lease, RowGroupRows: 500})
	require.NoError(t, err)
	begin := time.Now()
	err = tab.tryWrite(w)
	require.ErrorIs(t, err, gpu.ErrBudget)
	require.ErrorContains(t, err, "row_group_rows")
	require.Greater(t, time.Since(begin), patience)
	require.NoError(t, lease.Close())
}

// TestARowGroupTakesAPartOfTheBudget writes rows that take more memory than the budget would have for a row group of
// them all.
func TestARowGroupTakesAPartOfTheBudget(t *testing.T) {
	const rows, length = 4096, 1000
	texts := make([]gpu.Scalar, rows)
	for i := range texts {
		texts[i] = gpu.StringScalar(strings.Repeat(fmt.Sprint(i%10), length))
	}
	schema := gpu.NewSchema(gpu.Field{Name: "text", Type: gpu.Of(gpu.String)})
	lease := hosttest.Budget(t, 8*rows*length/4).Lease("sink")
	path := filepath.Join(t.TempDir(), "out.parquet")
	w, err := Create(path, schema, Options{Lease: lease})
	require.NoError(t, err)
	require.NoError(t,
		w.Write(t.Context(), &gpu.Stride{Schema: schema, Rows: rows,
			Cols: []gpu.Column{gpu.ColumnOf(schema.Fields[0].Type, texts)}}))
	require.NoError(t, w.Commit(t.Context()))
	require.NoError(t, lease.Close())
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	in, err := pq.OpenFile(f, info.Size())
	require.NoError(t, err)
	require.EqualValues(t, rows, in.NumRows())
	require.Len(t, in.RowGroups(), 5, "four of the share, with what rows have beside their text, and what is left")
}
