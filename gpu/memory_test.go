package gpu_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// heap allocates from the Go heap.
type heap struct{ out int64 }

func (h *heap) Allocate(n int64) ([]byte, uintptr, error) {
	h.out += n
	return make([]byte, n), 0, nil
}

func (h *heap) Free(_ []byte, _ uintptr, n int64) { h.out -= n }

func TestABudgetRefusesWithWhatAPersonNeeds(t *testing.T) {
	b := gpu.NewBudget("device", gpu.DeviceMemory, 1<<20, &heap{})
	l := b.Lease("join orders: build side")
	one, err := l.Alloc(600 << 10)
	require.NoError(t, err)
	_, err = l.Alloc(600 << 10)
	require.ErrorIs(t, err, gpu.ErrBudget)
	require.EqualError(t, err,
		"join orders: build side: needs 600 KiB more of device memory, but only 424 KiB of the budget of 1.0 MiB is "+
			"left; raise it with DeviceMemory")
	var denied *gpu.BudgetError
	require.True(t, errors.As(err, &denied))
	require.Equal(t, int64(600<<10), denied.Asked)
	one.Release()
	two, err := l.Alloc(1 << 20)
	require.NoError(t, err, "what was released can be had again")
	two.Release()
	require.NoError(t, l.Close())
	require.Empty(t, b.Leaks())
}

func TestALeaseThatLeaksIsReportedByName(t *testing.T) {
	h := &heap{}
	b := gpu.NewBudget("host", gpu.HostMemory, 0, h)
	l := b.Lease("sort: rows")
	buf, err := l.Alloc(100)
	require.NoError(t, err)
	buf.Retain().Release()
	require.ErrorContains(t, l.Close(), `lease "sort: rows" closed with 100 B in 1 buffers`)
	require.Equal(t, []string{"sort: rows: 100 B in 1 buffers"}, b.Leaks())
	buf.Release()
	require.Empty(t, b.Leaks(), "the last release ends the lease")
	require.Zero(t, h.out)
	require.Panics(t, buf.Release, "a second release is a bug")
}

func TestReservationsCountAgainstTheBudget(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	l := b.Lease("decode")
	require.NoError(t, l.Reserve(900))
	require.ErrorIs(t, l.Reserve(101), gpu.ErrBudget)
	require.ErrorIs(t, l.Reserve(-1), gpu.ErrBudget, "a size that overflowed is refused")
	l.Unreserve(900)
	now, peak := b.Used()
	require.Equal(t, []int64{0, 900}, []int64{now, peak})
	require.NoError(t, l.Close())
}

func TestAStrideIsCheckedAgainstItsSchema(t *testing.T) {
	typ := gpu.Of(gpu.Int64)
	good := gpu.ColumnOf(typ, []gpu.Scalar{gpu.IntScalar(typ, 1), gpu.Null(typ)})
	schema := gpu.NewSchema(gpu.Field{Name: "a", Type: typ})
	require.NoError(t, (&gpu.Stride{Schema: schema, Cols: []gpu.Column{good}, Rows: 2}).Check())
	for want, s := range map[string]*gpu.Stride{
		"stride has 0 columns, its schema 1":  {Schema: schema, Rows: 2},
		`column "a" has 2 rows, its stride 3`: {Schema: schema, Cols: []gpu.Column{good}, Rows: 3},
		`column "a" has type VARCHAR, its schema says BIGINT`: {Schema: schema,
			Cols: []gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), nil)}},
		`column "a": data holds 8 bytes, want 16`: {Schema: schema,
			Cols: []gpu.Column{{Type: typ, Len: 2, Data: gpu.WrapBytes(make([]byte, 8))}}, Rows: 2},
		`column "a": validity holds 1 bytes, want 8`: {Schema: schema,
			Cols: []gpu.Column{{Type: typ, Len: 2, Data: gpu.WrapBytes(make([]byte, 16)),
				Valid: gpu.WrapBytes(make([]byte, 1))}}, Rows: 2},
	} {
		require.EqualError(t, s.Check(), want)
	}
}

func TestWhoKeepsAStridePaysForIt(t *testing.T) {
	b := gpu.NewBudget("host", gpu.HostMemory, 1000, &heap{})
	scan, sort := b.Lease("scan"), b.Lease("sort")
	own, err := scan.Alloc(600)
	require.NoError(t, err)
	shared, err := scan.Alloc(100)
	require.NoError(t, err)
	s := &gpu.Stride{Schema: &gpu.Schema{}, Cols: []gpu.Column{{Data: own}, {Data: shared.Retain()}}}
	s.ChargeTo(sort)
	used := func(l *gpu.Lease) int64 { n, _ := l.Used(); return n }
	require.EqualValues(t, 600, used(sort))
	require.EqualValues(t, 100, used(scan), "somebody else has it, too")
	now, _ := b.Used()
	require.EqualValues(t, 700, now)
	_, err = scan.Alloc(350)
	var refused *gpu.BudgetError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "sort", refused.Holder)
	s.Release()
	require.Zero(t, used(sort))
	shared.Release()
	require.NoError(t, scan.Close())
	require.NoError(t, sort.Close())
	require.Empty(t, b.Leaks())
}
