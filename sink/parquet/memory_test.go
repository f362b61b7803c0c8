package parquet

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// shrinkingMemory calls a function with every allocation and its number, from 1 on.
type shrinkingMemory struct {
	testMemory
	n    atomic.Int64
	each func(n int64)
}

func (m *shrinkingMemory) Allocate(n int64) ([]byte, uintptr, error) {
	m.each(m.n.Add(1))
	return m.testMemory.Allocate(n)
}

// newShrinkingBudget returns a budget that refuses everything behind the k-th allocation
// until regrow is called. shrunk is called when it begins to.
func newShrinkingBudget(t *testing.T, k int64, shrunk func()) (b *gpu.Budget, regrow func()) {
	memory := &shrinkingMemory{testMemory: testMemory{free: map[int64][][]byte{}}}
	b = gpu.NewBudget("host", "--host-memory", 1<<30, memory)
	memory.each = func(n int64) {
		if n == k {
			used, _ := b.Used()
			b.SetLimit(used)
			shrunk()
		}
	}
	t.Cleanup(func() { require.Empty(t, b.Leaks()) })
	return b, func() { b.SetLimit(1 << 30) }
}

func TestTheOutputIsTheSameAfterEveryRefusal(t *testing.T) {
	defer goleak.VerifyNone(t)
	tab := randomTable(rand.New(rand.NewPCG(4, 4)), 1500, 0.1)
	dir := t.TempDir()
	write := func(path string, b *gpu.Budget, threads int) {
		lease := b.Lease("sink")
		w, err := Create(path, tab.schema, Options{Lease: lease, Threads: threads, RowGroupRows: 500, PageRows: 100, Overwrite: true})
		require.NoError(t, err)
		require.NoError(t, tab.tryWrite(w))
		require.NoError(t, lease.Close())
	}
	path := filepath.Join(dir, "out.parquet")
	write(path, newBudget(t, 0), 1)
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	for k, refused := int64(1), true; refused; k += 1 + k/10 {
		refused = false
		var regrow func()
		b, regrow := newShrinkingBudget(t, k, func() {
			refused = true
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
	b, _ := newShrinkingBudget(t, 20, func() {})
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
