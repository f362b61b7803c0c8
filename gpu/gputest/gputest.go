// Package gputest is the conformance suite of the primitives. It compares the methods of gpu.Queue
// with simple reference implementations, over types, sizes and distributions. All devices pass the
// same suite, which does not depend on the device.
package gputest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// Thin, if not 0, leaves out the larger sizes, for an emulator, which is thousands of times slower
// than a GPU. In the parts of the suite with many cases, one case in Thin runs, for tools that are
// slower still. A prime above 5 is best: it has no factor in common with the numbers of kinds and
// flags that the cases combine.
var Thin int

// upTo returns the sizes that are at most bound, or all sizes when the suite is not thin.
func upTo(bound int, sizes []int) []int {
	if Thin == 0 {
		return sizes
	}
	return slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n > bound })
}

// sizes returns the sizes. A thin suite has the small ones and one of the large ones, drawn anew at each call.
func (b *bench) sizes() []int {
	if Thin == 0 {
		return sizes
	}
	small := upTo(1000, sizes)
	return append(small, sizes[len(small)+b.rnd.IntN(len(sizes)-len(small))])
}

// Open opens the device under test with a budget of memory bytes; 0 takes the default.
type Open func(t *testing.T, memory int64) gpu.Device

// Run runs the suite. The reference is a device whose evaluator is correct by definition: the CPU
// with one thread. Tests of operators/expr compare it with DuckDB. Under the race detector, whose
// runs look at the loops that all primitives share, it is a third of the suite: another one by
// GSTREAM_FIRST.
func Run(t *testing.T, open, reference Open) {
	t.Run("Programs", func(t *testing.T) { testPrograms(t, open, reference) })
	for i, s := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"UploadAhead", testUpAhead},
		{"UploadEncoded", testUploadEncoded},
		{"UploadNarrow", testUploadNarrow},
		{"UploadJoined", testUploadJoined},
		{"Ready", testReady},
		{"Select", testSelect},
		{"SelectPatterns", testSelectPatterns},
		{"Bitmaps", testBitmaps},
		{"AddUnmatched", testAddUnmatched},
		{"Gather", testGather},
		{"GatherParts", testGatherParts},
		{"Scatter", testScatter},
		{"Concat", testConcat},
		{"Slice", testSlice},
		{"Elements", testElements},
		{"Unnest", testUnnest},
		{"Hash", testHash},
		{"Partition", testPartition},
		{"PartitionColumns", testPartitionColumns},
		{"PartitionUnordered", testPartitionUnordered},
		{"Sort", testSort},
		{"Join", testJoin},
		{"MatchPartitions", testMatchPartitions},
		{"PartitionTuples", testTuples},
		{"PartitionBuckets", testPartitionBuckets},
		{"SendTuples", testSend},
		{"TupleTables", testTupleTables},
		{"MatchSorted", testMatchSorted},
		{"MatchRange", testMatchRange},
		{"Packing", testPacking},
		{"SampleKeys", testSampleKeys},
		{"AggregatePartitions", testAggregatePartitions},
		{"AggregatePartitions of extremes", testAggregateExtremes},
		{"AggregatePartitions of carries", testAggregateCarries},
		{"Runs", testRuns},
		{"Fold", testFold},
		{"Extreme", testExtreme},
		{"Search", testSearch},
		{"Groups", testGroups},
		{"Aggregates", testAggregates},
		{"AggregatesOfRuns", testAggregatesOfRuns},
		{"Eval", testEval},
		{"OtherDevice", testOtherDevice},
		{"Mistakes", testMistakes},
		{"OutOfMemory", testOutOfMemory},
		{"Until", testUntil},
	} {
		if !Race || Takes(3, i) {
			t.Run(s.name, func(t *testing.T) { s.test(t, open) })
		}
	}
}

// bench is an open device with a queue and a lease. At the end of the test it is closed
// and checked for leaks.
type bench struct {
	t   *testing.T
	dev gpu.Device
	q   gpu.Queue
	l   *gpu.Lease
	h   *gpu.Lease // of host memory
	rnd *rand.Rand

	cases int // cases of this part so far, run or not

	cols, other, ends []gpu.Column // used by testOutOfMemory
}

// takes reports whether the suite runs the next of many cases.
func (b *bench) takes() bool {
	b.cases++
	return Takes(Thin, b.cases)
}

// experimental returns the experimental primitives of a queue: the devices under test have them.
func experimental(q gpu.Queue) gpu.Experimental { return q.(gpu.Experimental) }

func setUp(t *testing.T, open Open) *bench {
	dev := open(t, 0)
	q, err := dev.NewQueue(t.Name())
	require.NoError(t, err)
	b := &bench{t: t, dev: dev, q: q, l: dev.Budget().Lease(t.Name()), h: dev.HostBudget().Lease(t.Name()),
		rnd: rand.New(rand.NewPCG(Seed(t), uint64(len(t.Name()))))}
	t.Cleanup(func() {
		require.NoError(t, b.q.Close())
		require.NoError(t, b.l.Close())
		require.NoError(t, b.h.Close())
		require.Empty(t, dev.Budget().Leaks())
		require.Empty(t, dev.HostBudget().Leaks())
		require.NoError(t, dev.Close())
	})
	return b
}

// up uploads columns of the Go heap. They are released at the end of the test.
func (b *bench) up(cols ...gpu.Column) []gpu.Column {
	b.t.Helper()
	fields := make([]gpu.Field, len(cols))
	for i, c := range cols {
		fields[i] = gpu.Field{Name: fmt.Sprint("c", i), Type: c.Type, Nullable: true}
	}
	s := &gpu.Stride{Schema: gpu.NewSchema(fields...), Cols: cols}
	if len(cols) > 0 {
		s.Rows = cols[0].Len
	}
	s, err := b.q.Upload(b.l, s)
	require.NoError(b.t, err)
	b.t.Cleanup(s.Release)
	return s.Cols
}

// down returns the rows of a column as scalars. It checks the layout first.
func (b *bench) down(c gpu.Column) []gpu.Scalar {
	b.t.Helper()
	s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type, Nullable: true}),
		Cols: []gpu.Column{c.Retain()}, Rows: c.Len}
	s, err := b.q.Download(b.h, s)
	require.NoError(b.t, err)
	defer s.Release()
	require.NoError(b.t, s.Check())
	out := make([]gpu.Scalar, c.Len)
	for i := range out {
		out[i] = s.Cols[0].ScalarAt(i)
	}
	return out
}

// ids makes a column of row ids.
func (b *bench) ids(v []int32) gpu.Column {
	return b.up(gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(v), Data: gpu.WrapBytes(gpu.BytesOf(v))})[0]
}

// int32s returns the values of a column of 32-bit integers and releases the column.
func (b *bench) int32s(c gpu.Column) []int32 {
	b.t.Helper()
	s, err := b.q.Download(b.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "c", Type: c.Type}),
		Cols: []gpu.Column{c}, Rows: c.Len})
	require.NoError(b.t, err)
	defer s.Release()
	return slices.Clone(gpu.Values[int32](s.Cols[0].Data, c.Len))
}

func (b *bench) ints(c gpu.Column) []int {
	b.t.Helper()
	out := make([]int, c.Len)
	for i, s := range b.down(c) {
		out[i] = int(s.Int.Int64())
	}
	return out
}

// types are all layouts of a column.
var types = []gpu.Type{
	gpu.Of(gpu.Bool), gpu.Of(gpu.Int8), gpu.Of(gpu.Int16), gpu.Of(gpu.Int32), gpu.Of(gpu.Int64),
	gpu.Of(gpu.Uint8), gpu.Of(gpu.Uint16), gpu.Of(gpu.Uint32), gpu.Of(gpu.Uint64), gpu.Of(gpu.HugeInt),
	gpu.Of(gpu.Float32), gpu.Of(gpu.Float64), gpu.DecimalOf(15, 2), gpu.DecimalOf(38, 4),
	gpu.Of(gpu.Date), gpu.TimeOf(gpu.Microsecond), gpu.TimestampOf(gpu.Nanosecond, false),
	gpu.Of(gpu.String), gpu.Of(gpu.Binary),
}

// moved returns the types for primitives that move values without interpreting them: all types, or
// one of each layout and width in a thin suite.
func moved() []gpu.Type {
	if Thin == 0 {
		return types
	}
	var out []gpu.Type
	for _, t := range types {
		if !slices.ContainsFunc(out, func(o gpu.Type) bool {
			return o.Width() == t.Width() && o.IsVar() == t.IsVar() && (o.Kind == gpu.Bool) == (t.Kind == gpu.Bool)
		}) {
			out = append(out, t)
		}
	}
	return out
}

// sizes are row counts around the boundaries of bitmap words, of blocks and of units of parallel
// work.
var sizes = []int{0, 1, 2, 63, 64, 65, 511, 513, 16383, 16384, 16385, 40001}

// distribution describes the distribution of the values of a column.
type distribution struct {
	name     string
	distinct int // number of distinct values; 0: as many as the type has
	zipf     bool
	sorted   bool
	nulls    float64
	words    bool // strings have about one length, and none is empty
	alike    bool // strings of all lengths up to 40 differ in a byte or in their length
}

var distributions = []distribution{
	{name: "uniform"},
	{name: "few", distinct: 7},
	{name: "equal", distinct: 1},
	{name: "zipf", distinct: 1000, zipf: true},
	{name: "sorted", sorted: true},
	{name: "nulls", distinct: 50, nulls: 0.3},
	{name: "allnull", nulls: 1},
}

// random draws n values of a type.
func (b *bench) random(t gpu.Type, n int, d distribution) []gpu.Scalar {
	out := make([]gpu.Scalar, n)
	for i := range out {
		if b.rnd.Float64() < d.nulls {
			out[i] = gpu.Null(t)
			continue
		}
		k := b.rnd.Uint64()
		switch {
		case d.zipf:
			k = uint64(math.Pow(float64(d.distinct), b.rnd.Float64())) // log-uniform ranks
		case d.distinct > 0:
			k %= uint64(d.distinct)
		case d.sorted:
			k = uint64(i)
		}
		if d.words && t.IsVar() {
			out[i] = gpu.Scalar{Type: t, Valid: true, Str: fmt.Sprint("key number ", k)}
			continue
		}
		if d.alike && t.IsVar() {
			out[i] = gpu.Scalar{Type: t, Valid: true, Str: alike(k)}
			continue
		}
		out[i] = value(t, k, d.distinct == 0 && !d.sorted)
	}
	return out
}

// alike returns text number k. Many other numbers have the same text, or one that differs slightly.
func alike(k uint64) string {
	b := bytes.Repeat([]byte{'a'}, int(k%41))
	if len(b) == 0 {
		return ""
	}
	at, other := int(k/41%3)*(len(b)-1)/2, "ab\x00"[k/123%3]
	b[at] = other
	return string(b)
}

// value returns the k-th value of a type. Wild values use all bits of the type.
func value(t gpu.Type, k uint64, wild bool) gpu.Scalar {
	switch {
	case t.IsFloat():
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1.5, -1.5}
		f := float64(int64(k)) / 4
		if k%16 < uint64(len(special)) {
			f = special[k%16]
		}
		if t.Kind == gpu.Float32 {
			f = float64(float32(f))
		}
		return gpu.FloatScalar(t, f)
	case t.IsVar():
		s := fmt.Sprintf("%x", k)
		if k%5 == 0 {
			s = "a common prefix of many bytes " + s
		}
		if k%11 == 3 {
			s = ""
		}
		return gpu.Scalar{Type: t, Valid: true, Str: s}
	case t.Kind == gpu.Bool:
		return gpu.BoolScalar(k%2 == 1)
	case t.Wide:
		v := gpu.Int128From(int64(k))
		if wild {
			v.Hi = int64(k) >> 16 // about 10^33: sums of thousands of values fit 38 digits
		}
		return gpu.Scalar{Type: t, Valid: true, Int: v}
	case t.Kind == gpu.Decimal:
		return gpu.IntScalar(t, int64(k)%1e15)
	case t.IsUnsigned():
		return gpu.Scalar{Type: t, Valid: true, Int: gpu.Int128FromUint(k << (64 - 8*t.Width()) >> (64 - 8*t.Width()))}
	}
	shift := 64 - 8*t.Width()
	return gpu.IntScalar(t, int64(k)<<shift>>shift)
}

// column makes a column of the Go heap of values; coded ones get a dictionary
// that holds duplicates and values that no row uses, sometimes more of them than
// there are rows.
func column(t gpu.Type, values []gpu.Scalar, coded bool) gpu.Column {
	if !coded {
		return gpu.ColumnOf(t, values)
	}
	dict := []gpu.Scalar{{Type: t, Valid: true, Str: "unused"}}
	if len(values)%2 == 0 {
		for i := range len(values) {
			dict = append(dict, gpu.Scalar{Type: t, Valid: true, Str: fmt.Sprint("unused ", i%40)})
		}
	}
	at := map[string]int32{}
	codes := make([]int32, len(values))
	for i, v := range values {
		if !v.Valid {
			codes[i] = nullCode(uint64(i))
			continue
		}
		code, ok := at[v.Str]
		if !ok || i%97 == 0 {
			code = int32(len(dict))
			at[v.Str] = code
			dict = append(dict, v)
		}
		codes[i] = code
	}
	c := gpu.ColumnOf(t, values)
	c.Offsets, c.Data = nil, gpu.WrapBytes(gpu.BytesOf(codes))
	c.Dict = &gpu.Dictionary{Values: gpu.ColumnOf(t, dict)}
	return c
}

// nullCode returns the code of a null row. Such a code is unspecified, so it may be beyond the
// dictionary.
func nullCode(k uint64) int32 {
	return []int32{-1, math.MaxInt32, 0, math.MinInt32, 1}[k%5]
}

// codings returns the ways a type can be coded.
func codings(t gpu.Type) []bool {
	if t.IsVar() {
		return []bool{false, true}
	}
	return []bool{false}
}

// same reports whether two values are equal in SQL's grouping: nulls are equal, NaN
// equals NaN, -0 equals +0.
func same(a, b gpu.Scalar) bool {
	if a.Valid != b.Valid {
		return false
	}
	return !a.Valid || a.Compare(b) == 0
}

func requireSame(t *testing.T, want, got []gpu.Scalar, msg ...any) {
	t.Helper()
	require.Len(t, got, len(want), msg...)
	for i := range want {
		if !same(want[i], got[i]) {
			require.Failf(t, "rows differ", "row %d: want %v, got %v; %v", i, want[i], got[i], msg)
		}
	}
}

// label returns a string for a key; equal keys have equal strings.
func label(s gpu.Scalar) string {
	if !s.Valid {
		return "\x00null"
	}
	if s.Type.IsFloat() && s.Float == 0 {
		return "0"
	}
	return s.String()
}
