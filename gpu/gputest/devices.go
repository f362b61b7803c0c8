package gputest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// elsewhere is memory of a device that does not exist: neither the host nor any device can read it.
type elsewhere struct{}

func (elsewhere) Allocate(int64) ([]byte, uintptr, error) { return nil, 1 << 40, nil }
func (elsewhere) Free([]byte, uintptr, int64)             {}

// testOtherDevice calls every primitive with columns of another device, and uses state of one
// device with a queue of another.
func testOtherDevice(t *testing.T, open Open) {
	b := setUp(t, open)
	const n = 100
	ints := make([]gpu.Scalar, n)
	for i := range ints {
		ints[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(i))
	}
	bits := make([]gpu.Scalar, n)
	texts := make([]gpu.Scalar, n)
	for i := range bits {
		bits[i], texts[i] = gpu.BoolScalar(true), gpu.StringScalar("text")
	}
	here := b.up(gpu.ColumnOf(gpu.Of(gpu.Int32), ints), gpu.ColumnOf(boolean, bits),
		column(gpu.Of(gpu.String), texts, true))
	own, ownBits, ownText := here[0], here[1], here[2]

	lease := gpu.NewBudget("device", gpu.DeviceMemory, 0, elsewhere{}).Lease("a stage of another device")
	buffer := func(size int64) *gpu.Buffer {
		buf, err := lease.Alloc(size)
		require.NoError(t, err)
		return buf
	}
	far := gpu.Column{Type: own.Type, Len: n, Data: buffer(4 * n)}
	farBits := gpu.Column{Type: boolean, Len: n, Data: buffer(gpu.BitmapBytes(n))}
	farText := gpu.Column{Type: ownText.Type, Len: n, Data: buffer(4 * n), Offsets: buffer(4*n + 4)}
	farNulls, farDict := own, ownText
	farNulls.Valid = farBits.Data
	farDict.Dict = &gpu.Dictionary{Values: farText}
	hostDict := column(ownText.Type, texts, true)
	hostDict.Dict = farDict.Dict

	key := func(c gpu.Column) []gpu.SortKey { return []gpu.SortKey{{Column: c}} }
	side := func(c gpu.Column) gpu.Partitioned { return gpu.Partitioned{Key: c, Offsets: b.ids([]int32{0, n})} }
	stride := func(cols ...gpu.Column) *gpu.Stride {
		s := &gpu.Stride{Schema: &gpu.Schema{}, Rows: n}
		for _, c := range cols {
			s.Schema.Fields = append(s.Schema.Fields, gpu.Field{Name: "c", Type: c.Type, Nullable: true})
			s.Cols = append(s.Cols, c.Retain())
		}
		return s
	}
	program := &gpu.Program{Inputs: []gpu.Type{own.Type}, Outputs: []int{1}, Code: []gpu.Instr{
		{Op: gpu.OpAdd, Type: own.Type, Args: []int{0, 0}, Mask: -1}}}
	denied := func(name string, err error) {
		t.Helper()
		require.ErrorContains(t, err, `"a stage of another device"`, name)
	}
	try := func(name string, call func(q gpu.Queue) error) {
		t.Helper()
		denied(name, call(b.q))
	}
	try("eval", func(q gpu.Queue) error { _, err := q.Eval(b.l, program, []gpu.Column{far}, n); return err })
	try("select", func(q gpu.Queue) error { _, err := q.Select(b.l, farBits, true); return err })
	try("mark", func(q gpu.Queue) error { return q.SetBits(b.l, farBits, own) })
	try("mark at", func(q gpu.Queue) error { return q.SetBits(b.l, ownBits, far) })
	try("add unmatched", func(q gpu.Queue) error { _, _, err := q.AddUnmatched(b.l, own, own, far); return err })
	for _, c := range []gpu.Column{far, farText, farNulls, farDict} {
		try("gather", func(q gpu.Queue) error { _, err := q.Gather(b.l, []gpu.Column{own, c}, own, false); return err })
	}
	try("gather by", func(q gpu.Queue) error { _, err := q.Gather(b.l, []gpu.Column{own}, far, false); return err })
	try("gather parts", func(q gpu.Queue) error {
		_,
			err := q.GatherParts(b.l, []gpu.Column{farText}, own)
		return err
	})
	try("gather parts by", func(q gpu.Queue) error {
		_,
			err := q.GatherParts(b.l, []gpu.Column{ownText}, far)
		return err
	})
	try("scatter", func(q gpu.Queue) error { _, err := q.Scatter(b.l, []gpu.Column{far}, own, n); return err })
	try("scatter by", func(q gpu.Queue) error { _, err := q.Scatter(b.l, []gpu.Column{own}, far, n); return err })
	try("concat", func(q gpu.Queue) error { _, err := q.Concat(b.l, []gpu.Column{own, far}); return err })
	try("slice", func(q gpu.Queue) error { _, err := q.Slice(b.l, far, 0, n); return err })
	try("cut", func(q gpu.Queue) error { _, err := q.Cut(b.l, []gpu.Column{own, far}, []int{0, n}); return err })
	try("hash", func(q gpu.Queue) error { _, err := q.Hash(b.l, []gpu.Column{own, far}, 1); return err })
	try("partition", func(q gpu.Queue) error {
		_, _, err := q.Partition(b.l, []gpu.Column{far}, own, gpu.Digit{Bits: 2})
		return err
	})
	try("partition by", func(q gpu.Queue) error {
		_, _, err := q.Partition(b.l, []gpu.Column{own}, far, gpu.Digit{Bits: 2})
		return err
	})
	for _, c := range [][2]gpu.Column{{own, far}, {far, own}} {
		try("partition", func(q gpu.Queue) error {
			_, _, _, err := q.PartitionUnordered(b.l, c[:1], c[1], gpu.Digit{Bits: 2})
			return err
		})
	}
	try("partition into buckets", func(q gpu.Queue) error {
		_, err := experimental(q).PartitionBuckets(b.l, far, gpu.Digit{Bits: 2})
		return err
	})
	here64 := b.tuples(4, n, "device")
	defer here64.Release()
	for _, c := range [][2]gpu.Column{{own, far}, {far, own}} {
		try("partition tuples", func(q gpu.Queue) error {
			_, err := experimental(q).PartitionTuples(b.l, here64, c[0], c[1], gpu.Digit{Bits: 2}, gpu.TuplePass{})
			return err
		})
	}
	farTuples := gpu.Column{Type: here64.Type, Len: n, Data: buffer(8 * n)}
	try("partition tuples into", func(q gpu.Queue) error {
		_, err := experimental(q).PartitionTuples(b.l, farTuples, own, own, gpu.Digit{Bits: 2}, gpu.TuplePass{})
		return err
	})
	try("split tuples", func(q gpu.Queue) error {
		_, err := experimental(q).SplitTuples(b.l, farTuples, own.Type, own.Type)
		return err
	})
	try("aggregate", func(q gpu.Queue) error {
		_, err := q.AggregatePartitions(b.l, gpu.Partitioned{Key: far}, nil, nil, gpu.GroupHint{})
		return err
	})
	try("sample", func(q gpu.Queue) error { _, err := q.SampleKeys(b.l, far); return err })
	try("sort", func(q gpu.Queue) error { _, err := q.Sort(b.l, key(far)); return err })
	try("merge sort", func(q gpu.Queue) error { _, err := experimental(q).MergeSort(b.l, key(far)); return err })
	try("build table", func(q gpu.Queue) error {
		_, err := q.BuildTable(b.l, []gpu.Column{far}, []bool{false}, 1<<20)
		return err
	})
	for _, sides := range [][2]gpu.Column{{own, far}, {far, own}} {
		try("join partitions", func(q gpu.Queue) error {
			_, err := q.MatchPartitions(b.l, side(sides[0]), side(sides[1]), gpu.Probing{})
			return err
		})
		try("merge match", func(q gpu.Queue) error {
			_, err := experimental(q).MatchSorted(b.l, key(sides[0]), key(sides[1]), []bool{false})
			return err
		})
		try("range match", func(q gpu.Queue) error {
			_, err := q.MatchRange(b.l, sides[0], &gpu.Bound{Column: sides[1]}, nil)
			return err
		})
	}
	for _, c := range [][2]gpu.Column{{own, far}, {far, own}} {
		try("fold", func(q gpu.Queue) error {
			_, err := q.Fold(b.l, gpu.Aggregate{Kind: gpu.Count, Input: own.Type, Output: gpu.Of(gpu.Int64)}, c[0],
				c[1], c[1])
			return err
		})
		try("extreme", func(q gpu.Queue) error {
			_, err := q.Extreme(b.l, gpu.SortKey{Column: c[0]}, false, c[1], c[1])
			return err
		})
		try("search", func(q gpu.Queue) error {
			_, err := q.Search(b.l, gpu.SortKey{Column: c[0]}, c[0], false, c[1], c[1])
			return err
		})
	}
	try("runs", func(q gpu.Queue) error { _, _, err := q.Runs(b.l, []gpu.Column{far}); return err })
	move := func(name string, l *gpu.Lease, s *gpu.Stride,
		copy func(gpu.Queue, *gpu.Lease, *gpu.Stride) (*gpu.Stride, error)) {
		try(name, func(q gpu.Queue) error { _, err := copy(q, l, s); return err })
		s.Release()
	}
	move("up", b.l, stride(far), gpu.Queue.Upload)
	move("up ahead", b.l, stride(hostDict), gpu.Queue.UploadAhead)
	move("down", b.h, stride(own, far), gpu.Queue.Download)

	table, err := b.q.BuildTable(b.l, []gpu.Column{own}, []bool{false}, 1<<20)
	require.NoError(t, err)
	defer table.Release()
	groups, err := b.q.NewGroups(b.l, []gpu.Type{own.Type}, gpu.GroupHint{})
	require.NoError(t, err)
	defer groups.Release()
	sum, err := b.q.NewAccumulator(b.l, gpu.Aggregate{Kind: gpu.Sum, Input: own.Type,
		Output: aggregateOutput(gpu.Sum, own.Type)})
	require.NoError(t, err)
	defer sum.Release()
	try("probe", func(q gpu.Queue) error {
		_, err := table.Match(q, b.l, []gpu.Column{far})
		return err
	})
	packing, err := b.q.NewPacking(b.l, []gpu.Type{own.Type})
	require.NoError(t, err)
	defer packing.Release()
	try("pack", func(q gpu.Queue) error { _, err := packing.Pack(q, b.l, []gpu.Column{far}, n); return err })
	packed, err := packing.Pack(b.q, b.l, []gpu.Column{own}, n)
	require.NoError(t, err)
	defer packed.Release()
	try("unpack", func(q gpu.Queue) error {
		key := far
		key.Type = packed.Key().Type
		_, err := packed.Unpack(q, b.l, key)
		return err
	})
	try("assign", func(q gpu.Queue) error { _, err := groups.Assign(q, b.l, []gpu.Column{far}, n); return err })
	assigned, err := groups.Assign(b.q, b.l, []gpu.Column{own}, n)
	require.NoError(t, err)
	defer assigned.Release()
	try("update", func(q gpu.Queue) error { return sum.Update(q, assigned, far, n) })
	require.NoError(t, sum.Update(b.q, assigned, own, n))

	match, err := table.Match(b.q, b.l, []gpu.Column{own})
	require.NoError(t, err)
	defer match.Release()
	try("join", func(q gpu.Queue) error {
		_, _, _, err := match.Join(q, b.l, []gpu.Column{own}, []gpu.Column{far}, n)
		return err
	})

	other := setUp(t, open)
	theirs := other.up(gpu.ColumnOf(own.Type, ints))[0]
	for name, call := range map[string]func(q gpu.Queue) error{
		"probe": func(q gpu.Queue) error {
			_, err := table.Match(q, other.l, []gpu.Column{theirs})
			return err
		},
		"next":    func(q gpu.Queue) error { _, _, _, err := match.Next(q, other.l, n); return err },
		"matched": func(q gpu.Queue) error { _, err := match.Matched(q, other.l); return err },
		"assign":  func(q gpu.Queue) error { _, err := groups.Assign(q, other.l, []gpu.Column{theirs}, n); return err },
		"keys":    func(q gpu.Queue) error { _, err := groups.Keys(q, other.l, 0, n); return err },
		"update":  func(q gpu.Queue) error { return sum.Update(q, assigned, theirs, n) },
		"result":  func(q gpu.Queue) error { _, err := sum.Result(q, other.l, 0, n); return err },
	} {
		require.ErrorContains(t, call(other.q), "is used with a queue of another", name)
	}

	for _, buf := range []*gpu.Buffer{far.Data, farBits.Data, farText.Data, farText.Offsets, farTuples.Data} {
		buf.Release()
	}
	require.NoError(t, lease.Close(), "what was refused is given back")
}
