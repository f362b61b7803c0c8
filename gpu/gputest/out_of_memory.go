package gputest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// memoryCase is a call that may be denied memory.
type memoryCase struct {
	name string
	// start makes the state that the call works on, if there is any.
	start func(b *bench) trial
}

// trial is a call and its state.
type trial struct {
	// call returns its result. It may be called again until it succeeds.
	call func() (made, error)
	// state describes the state, and finish releases it. They are nil without state.
	state  func() string
	finish func()
}

// made is the result of a call: columns, which are compared and released, and other
// results.
type made struct {
	cols []gpu.Column
	rest func() any
	drop func()
}

var errFault = errors.New("no memory, for a test")

// testOutOfMemory lets the k-th reservation of a call fail, then its k-th allocation, for k = 1, 2, 3
// … until the call succeeds. A call that fails returns the error of the budget, keeps no memory and
// does not change the state. Repeated, it gives the same result as a call that never failed.
func testOutOfMemory(t *testing.T, open Open) {
	tried, denied := 0, 0
	cases := slices.Concat(primitiveMemory(), tableMemory(), groupMemory(), accumulatorMemory(), evalMemory())
	for i, c := range cases {
		if !Takes(Thin, i) {
			continue
		}
		tried++
		t.Run(c.name, func(t *testing.T) {
			b := setUp(t, open)
			want := b.undisturbed(c)
			for _, allocate := range []bool{false, true} {
				for k := 1; b.deny(c, want, allocate, k); k++ {
					denied++
				}
			}
		})
	}
	require.Greater(t, denied, 0, "calls ask for memory, and were denied it")
	if tried > 20 { // some calls need no memory
		require.Greater(t, denied, 2*tried, "most calls ask for memory, and were denied it")
	}
}

// answer has the results of a trial: the result of its call, and the state before and after.
type answer struct {
	result, before, after string
	most                  int64 // peak bytes of the lease
}

func (b *bench) undisturbed(c memoryCase) (want answer) {
	x := c.start(b)
	defer x.finish()
	want.before = b.stateOf(x)
	m, err := x.call()
	require.NoError(b.t, err)
	_, want.most = b.l.Used()
	want.result, want.after = b.show(m), b.stateOf(x)
	return want
}

// deny runs a trial whose k-th reservation or allocation fails. It reports whether the call made
// so many of them.
func (b *bench) deny(c memoryCase, want answer, allocate bool, k int) bool {
	t := b.t
	t.Helper()
	leaseBefore, _ := b.l.Used()
	hostBefore, _ := b.h.Used()
	x := c.start(b)
	requireText(t, want.before, b.stateOf(x), "the state before")
	what := fmt.Sprintf("%s, denied %s %d", c.name,
		map[bool]string{false: "reservation", true: "allocation"}[allocate], k)
	var mu sync.Mutex
	asked := 0
	b.faults(func(a bool) error {
		mu.Lock()
		defer mu.Unlock()
		if a != allocate {
			return nil
		}
		if asked++; asked == k {
			return errFault
		}
		return nil
	})
	m, err := x.call()
	b.faults(nil)
	if err != nil {
		require.GreaterOrEqual(t, asked, k, what)
		require.True(t, gpu.IsOutOfMemory(err), "%s: %v", what, err)
		require.Equal(t, !allocate, errors.Is(err, gpu.ErrBudget), "%s: %v", what, err)
		require.Equal(t, allocate, errors.Is(err, errFault), "%s: %v", what, err)
		require.ErrorContains(t, err, t.Name(), "the lease is named")
		require.Empty(t, m.cols, "%s: there is no result", what)
		require.True(t, m.rest == nil, "%s: there is no result", what)
		used, _ := b.l.Used()
		require.LessOrEqual(t, used, want.most, "%s: a failed call takes no more than a complete one", what)
		requireText(t, want.before, b.stateOf(x), what+": the state is as it was")
		m, err = x.call()
	}
	require.NoError(t, err, "%s, and again with room", what)
	requireText(t, want.result, b.show(m), what)
	requireText(t, want.after, b.stateOf(x), what+": the state after it")
	x.finish()
	used, _ := b.l.Used()
	require.Equal(t, leaseBefore, used, "%s: nothing is left behind", what)
	used, _ = b.h.Used()
	require.Equal(t, hostBefore, used, "%s: nothing is left behind on the host", what)
	return asked >= k
}

// requireText compares long strings and shows where they differ.
func requireText(t *testing.T, want, got, what string) {
	t.Helper()
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	near := func(s string) string { return s[max(at-40, 0):min(at+40, len(s))] }
	require.True(t, want == got, "%s: want … %s …, got … %s …", what, near(want), near(got))
}

// faults sets the function by which the device's budgets fail.
func (b *bench) faults(f func(allocate bool) error) {
	b.dev.Budget().SetFault(f)
	if host := b.dev.HostBudget(); host != b.dev.Budget() {
		host.SetFault(f)
	}
}

// show describes a result and releases it.
func (b *bench) show(m made) string {
	var s strings.Builder
	q, err := b.dev.NewQueue("show") // a queue of its own, because queues keep dictionaries
	require.NoError(b.t, err)
	b.q, q = q, b.q
	defer func() {
		b.q, q = q, b.q
		require.NoError(b.t, q.Close())
	}()
	for _, c := range m.cols {
		fmt.Fprintln(&s, c.Type, b.down(c))
		c.Release()
	}
	if m.rest != nil {
		fmt.Fprint(&s, m.rest())
	}
	if m.drop != nil {
		m.drop()
	}
	return s.String()
}

func (b *bench) stateOf(x trial) string {
	if x.state == nil {
		return ""
	}
	return x.state()
}

// memoryColumns are columns of n rows in every layout: integers in order and out of order, floats,
// wide decimals, booleans, integers that are small at first, and strings: plain, with nulls, and with
// a dictionary of few or of many values.
func memoryColumns(n int) []gpu.Column {
	i64, wide, text := gpu.Of(gpu.Int64), gpu.DecimalOf(38, 2), gpu.Of(gpu.String)
	plain := func(t gpu.Type, f func(i int) gpu.Scalar) gpu.Column { return gpu.ColumnOf(t, generate(n, f)) }
	nullable := func(i int, v gpu.Scalar) gpu.Scalar {
		if i%10 == 3 {
			return gpu.Null(v.Type)
		}
		return v
	}
	coded := func(distinct int) gpu.Column {
		c := column(text,
			generate(n,
				func(i int) gpu.Scalar { return nullable(i, gpu.StringScalar(fmt.Sprint("coded ", i*31%distinct))) }),
			true)
		codes := gpu.Values[int32](c.Data, n)
		for i := range codes { // some trials drop the validity, so each code has a value
			if !c.IsValid(i) {
				codes[i] = 0
			}
		}
		return c
	}
	return []gpu.Column{
		colNumber: plain(i64, func(i int) gpu.Scalar { return gpu.IntScalar(i64, int64(i)*7919%int64(3*n)) }),
		colFew: plain(gpu.Of(gpu.Int32),
			func(i int) gpu.Scalar { return nullable(i, gpu.IntScalar(gpu.Of(gpu.Int32), int64(i%700))) }),
		colFloat: plain(gpu.Of(gpu.Float64),
			func(i int) gpu.Scalar { return nullable(i, gpu.FloatScalar(gpu.Of(gpu.Float64), float64(i)/4)) }),
		colWide:  plain(wide, func(i int) gpu.Scalar { return gpu.IntScalar(wide, int64(i)*1e6-1e9) }),
		colTruth: plain(gpu.Of(gpu.Bool), func(i int) gpu.Scalar { return nullable(i, gpu.BoolScalar(i%3 == 0)) }),
		colText: plain(text,
			func(i int) gpu.Scalar { return nullable(i, gpu.StringScalar(fmt.Sprint("text ", i*7%n))) }),
		colCoded: coded(40),
		colRich:  coded(n),
		colID: plain(gpu.Of(gpu.Int32),
			func(i int) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int32), int64((i*31+7)%n)) }),
		colOrdered: plain(i64, func(i int) gpu.Scalar { return gpu.IntScalar(i64, int64(i/3)) }),
		colSorted: plain(gpu.Of(gpu.String), func(i int) gpu.Scalar {
			if i >= n-50 {
				return gpu.Null(gpu.Of(gpu.String))
			}
			return gpu.StringScalar(fmt.Sprintf("text %04d", i/3))
		}),
		colSpread: plain(i64, func(i int) gpu.Scalar { return gpu.IntScalar(i64, int64(i)*1e12) }),
		colSteep: plain(i64, func(i int) gpu.Scalar {
			if i < 300 {
				return gpu.IntScalar(i64, int64(i))
			}
			return gpu.IntScalar(i64, int64(i)*1e12)
		}),
	}
}

const (
	colNumber = iota
	colFew
	colFloat
	colWide
	colTruth
	colText
	colCoded
	colRich
	colID
	colOrdered
	colSorted
	colSpread
	colSteep
)

// generate calls f for n rows.
func generate(n int, f func(i int) gpu.Scalar) []gpu.Scalar {
	out := make([]gpu.Scalar, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// memoryRows is the number of rows of the columns, enough to make tables grow.
const memoryRows = 1000

// inputs uploads the columns, once for each bench.
func (b *bench) inputs() []gpu.Column {
	if b.cols == nil {
		b.cols = b.up(memoryColumns(memoryRows)...)
	}
	return b.cols
}

// frame uploads ranges of rows, once for each bench: the last 200 rows before each row.
func (b *bench) frame() (from, to gpu.Column) {
	if b.ends == nil {
		ends := make([][]int32, 2)
		for i := range memoryRows {
			ends[0], ends[1] = append(ends[0], int32(max(0, i-200))), append(ends[1], int32(i))
		}
		b.ends = []gpu.Column{b.ids(ends[0]), b.ids(ends[1])}
	}
	return b.ends[0], b.ends[1]
}

// stateless is the case of a primitive without state.
func stateless(name string, call func(b *bench, cols []gpu.Column) (made, error)) memoryCase {
	return memoryCase{name: name, start: func(b *bench) trial {
		cols := b.inputs()
		return trial{call: func() (made, error) { return call(b, cols) }, finish: func() {}}
	}}
}

// of returns columns as a result, or an empty result after an error.
func of(cols []gpu.Column, err error) (made, error) {
	if err != nil {
		return made{cols: cols}, err
	}
	return made{cols: cols}, nil
}

func one(c gpu.Column, err error) (made, error) {
	if err != nil {
		return made{}, err
	}
	return made{cols: []gpu.Column{c}}, nil
}

// pairsOf returns the pairs of a join as a result, in order of probe and build row.
func (b *bench) pairsOf(probe, build gpu.Column, err error) (made, error) {
	if err != nil {
		return made{}, err
	}
	rest := func() any {
		p := b.ints(probe)
		m := make([]int, len(p))
		if build.Data != nil {
			m = b.ints(build)
		}
		out := make([][2]int, len(p))
		for i := range p {
			out[i] = [2]int{p[i], m[i]}
		}
		slices.SortFunc(out, func(x, y [2]int) int { return slices.Compare(x[:], y[:]) })
		return out
	}
	return made{rest: rest, drop: func() { probe.Release(); build.Release() }}, nil
}

// is returns a function that returns v, for made.rest.
func is(v any) func() any { return func() any { return v } }

func pick(cols []gpu.Column, at ...int) []gpu.Column {
	out := make([]gpu.Column, len(at))
	for i, k := range at {
		out[i] = cols[k]
	}
	return out
}

func sortKeys(cols []gpu.Column, at ...int) []gpu.SortKey {
	out := make([]gpu.SortKey, len(at))
	for i, c := range pick(cols, at...) {
		out[i] = gpu.SortKey{Column: c, Descending: i%2 == 1}
	}
	return out
}

func primitiveMemory() []memoryCase {
	out := []memoryCase{
		{name: "up", start: func(b *bench) trial {
			return b.moves(b.hostStride(), b.l, gpu.Queue.Upload, func(_ gpu.Queue, s *gpu.Stride) (made, error) {
				return made{cols: s.Cols}, nil
			})
		}},
		{name: "up ahead", start: func(b *bench) trial {
			return b.moves(b.hostStride(), b.l, gpu.Queue.UploadAhead, func(q gpu.Queue, s *gpu.Stride) (made, error) {
				return made{rest: func() any {
					require.NoError(b.t, q.Wait(s))
					return b.show(made{cols: s.Cols})
				}}, nil
			})
		}},
		{name: "arrive", start: func(b *bench) trial {
			narrow := gpu.Column{Type: gpu.Of(gpu.Int64), Len: memoryRows, CodeWidth: 4,
				Data: gpu.WrapBytes(make([]byte, 4*memoryRows))}
			s, err := b.q.UploadAhead(b.l, strideOf([]gpu.Column{narrow, narrow}))
			require.NoError(b.t, err)
			arrived := false
			return trial{call: func() (made, error) {
				if err := b.q.Wait(s); err != nil {
					return made{}, err
				}
				arrived = true
				return made{cols: s.Cols}, nil
			}, finish: func() { require.True(b.t, arrived) }}
		}},
		{name: "down", start: func(b *bench) trial {
			return b.moves(strideOf(b.inputs()), b.h, gpu.Queue.Download,
				func(_ gpu.Queue, s *gpu.Stride) (made, error) {
					// The rows are on the host now.
					var rows []string
					for _, c := range s.Cols {
						rows = append(rows, fmt.Sprint(generate(c.Len, c.ScalarAt)))
					}
					return made{rest: is(rows), drop: s.Release}, nil
				})
		}},
		stateless("select", func(b *bench, cols []gpu.Column) (made,
			error) {
			return one(b.q.Select(b.l, cols[colTruth], true))
		}),
		stateless("new bitmap", func(b *bench, cols []gpu.Column) (made, error) {
			return one(b.q.NewBitmap(b.l, memoryRows))
		}),
		{name: "add unmatched", start: func(b *bench) trial {
			var rows [2]gpu.Column
			for i, want := range []bool{true, false} {
				var err error
				rows[i], err = b.q.Select(b.l, b.inputs()[colTruth], want)
				require.NoError(b.t, err)
			}
			return trial{
				call:   func() (made, error) { return b.pairsOf(b.q.AddUnmatched(b.l, rows[0], rows[0], rows[1])) },
				finish: func() { gpu.ReleaseColumns(rows[:]) },
			}
		}},
		stateless("gather", func(b *bench, cols []gpu.Column) (made, error) {
			return of(b.q.Gather(b.l, cols, cols[colID], false))
		}),
		stateless("gather outer", func(b *bench, cols []gpu.Column) (made, error) {
			return of(b.q.Gather(b.l, cols, cols[colID], true))
		}),
		stateless("gather parts", func(b *bench, cols []gpu.Column) (made, error) {
			return one(b.q.GatherParts(b.l, pick(cols, colText, colCoded), cols[colID]))
		}),
		stateless("scatter", func(b *bench, cols []gpu.Column) (made, error) {
			return of(b.q.Scatter(b.l, cols, cols[colID], memoryRows+100))
		}),
		stateless("hash", func(b *bench, cols []gpu.Column) (made,
			error) {
			return one(b.q.Hash(b.l, cols, hashSeed))
		}),
		stateless("partition", func(b *bench, cols []gpu.Column) (made, error) {
			out, offsets, err := b.q.Partition(b.l, cols, cols[colSpread], gpu.Digit{Shift: 3, Bits: 4})
			if err != nil {
				return made{cols: append(out, nonEmpty(offsets)...)}, err
			}
			return made{cols: append(out, offsets)}, nil
		}),
		stateless("runs", func(b *bench, cols []gpu.Column) (made, error) {
			a, firsts, err := b.q.Runs(b.l, pick(cols, colOrdered, colCoded))
			if err != nil {
				return made{}, err
			}
			return made{cols: []gpu.Column{a.IDs(), firsts}}, nil
		}),
		stateless("extreme", func(b *bench, cols []gpu.Column) (made, error) {
			from, to := b.frame()
			return one(b.q.Extreme(b.l, gpu.SortKey{Column: cols[colText]}, false, from, to))
		}),
		stateless("search", func(b *bench, cols []gpu.Column) (made, error) {
			from, to := b.frame()
			return one(b.q.Search(b.l, gpu.SortKey{Column: cols[colSorted]}, cols[colSorted], true, from, to))
		}),
	}
	for name, a := range map[string]struct {
		kind gpu.AggregateKind
		at   int
	}{"counts": {gpu.Count, colFew}, "sums": {gpu.Sum, colWide}, "sums of floats": {gpu.Sum, colFloat},
		"products": {gpu.Product, colFloat}, "bits": {gpu.BitXor, colFew}} {
		out = append(out, stateless("fold of "+name, func(b *bench, cols []gpu.Column) (made, error) {
			from, to := b.frame()
			c := cols[a.at]
			agg := gpu.Aggregate{Kind: a.kind, Input: c.Type, Output: c.Type}
			switch a.kind {
			case gpu.Count:
				agg.Output = gpu.Of(gpu.Int64)
			case gpu.Sum:
				agg.Output = gpu.SumType(c.Type)
			}
			return one(b.q.Fold(b.l, agg, c, from, to))
		}))
	}
	for _, c := range []struct {
		name string
		at   int
	}{{"numbers", colNumber}, {"truth", colTruth}, {"texts", colText}, {"a dictionary", colCoded}} {
		out = append(out, stateless("concat of "+c.name, func(b *bench, cols []gpu.Column) (made, error) {
			return one(b.q.Concat(b.l, pick(cols, c.at, c.at, c.at)))
		}), stateless("slice of "+c.name, func(b *bench, cols []gpu.Column) (made, error) {
			return one(b.q.Slice(b.l, cols[c.at], 3, 900))
		}))
	}
	out = append(out, stateless("cut", func(b *bench, cols []gpu.Column) (made, error) {
		parts, err := b.q.Cut(b.l, pick(cols, colNumber, colText, colTruth, colCoded), []int{3, 500, 900})
		return made{cols: slices.Concat(parts...)}, err
	}), stateless("concat of texts and a dictionary", func(b *bench, cols []gpu.Column) (made, error) {
		return one(b.q.Concat(b.l, pick(cols, colText, colCoded)))
	}), stateless("concat of dictionaries", func(b *bench, cols []gpu.Column) (made, error) {
		return one(b.q.Concat(b.l, append(pick(cols, colCoded, colCoded), b.otherCoded())))
	}))
	type order struct {
		name string
		at   []int
	}
	orders := []order{{"numbers", []int{colNumber}}, {"texts", []int{colText}},
		{"several", []int{colFew, colWide, colTruth}}}
	if Thin == 0 { // an emulator takes a minute for it
		orders = append(orders, order{"dictionaries", []int{colCoded, colRich}})
	}
	for _, c := range orders {
		out = append(out, stateless("sort by "+c.name, func(b *bench, cols []gpu.Column) (made, error) {
			return one(b.q.Sort(b.l, sortKeys(cols, c.at...)))
		}), stateless("merge sort by "+c.name, func(b *bench, cols []gpu.Column) (made, error) {
			return one(experimental(b.q).MergeSort(b.l, sortKeys(cols, c.at...)))
		}))
	}
	// One warp has all these rows, because the order of the pairs of several warps is unspecified.
	// So is the order of pages, which threads take one by one.
	for _, how := range probings[2:5] {
		for _, r := range matcherMemory(fmt.Sprintf("join partitions, %+v", how),
			func(b *bench) (func() (gpu.Matcher, error), func()) {
				few, err := b.q.Slice(b.l, b.inputs()[colSpread], 0, 30)
				require.NoError(b.t, err)
				defer few.Release()
				_, offsets, err := b.q.Partition(b.l, nil, few, gpu.Digit{})
				require.NoError(b.t, err)
				side := gpu.Partitioned{Key: b.inputs()[colSpread], Offsets: offsets}
				return func() (gpu.Matcher, error) { return b.q.MatchPartitions(b.l, side, side, how) }, offsets.Release
			}) {
			if how.Output != gpu.PairsPaged || !strings.HasSuffix(r.name, ", join") {
				out = append(out, r)
			}
		}
	}
	out = append(out, stateless("partition into buckets", func(b *bench, cols []gpu.Column) (made, error) {
		s, err := experimental(b.q).PartitionBuckets(b.l, cols[colSpread], gpu.Digit{Shift: 3, Bits: 9})
		if err != nil {
			return made{cols: nonEmpty(s.Key, s.Offsets, s.Chain, s.Rows)}, err
		}
		return made{rest: is(s.Key.Len), drop: s.Release}, nil
	}))
	out = append(out, stateless("partition tuples", func(b *bench, cols []gpu.Column) (made, error) {
		buf, err := b.dev.(gpu.Interleaver).Interleave(b.l, b.h, 8<<20, 0.5)
		if err != nil {
			return made{}, err
		}
		to := gpu.Column{Type: gpu.TupleType(8), Len: memoryRows, Data: buf}
		defer to.Release()
		offsets, err := experimental(b.q).PartitionTuples(b.l, to, cols[colSpread], cols[colNumber], gpu.Digit{Bits: 6},
			gpu.TuplePass{})
		if err != nil {
			return made{}, err
		}
		out, err := experimental(b.q).SplitTuples(b.l, to, cols[colSpread].Type, cols[colNumber].Type)
		if err != nil {
			return made{cols: out}, err
		}
		return made{rest: is(offsets), drop: func() { gpu.ReleaseColumns(out) }}, nil
	}))
	out = append(out, stateless("sample", func(b *bench, cols []gpu.Column) (made, error) {
		s, err := b.q.SampleKeys(b.l, cols[colSpread])
		if err != nil {
			return made{}, err
		}
		return made{rest: is(s)}, nil
	}))
	out = append(out, stateless("partition unordered", func(b *bench, cols []gpu.Column) (made, error) {
		out, offsets, ends, err := b.q.PartitionUnordered(b.l, pick(cols, colSpread, colNumber), cols[colSpread],
			gpu.Digit{Shift: 3, Bits: 4})
		if err != nil {
			return made{cols: out}, err
		}
		// They come in any order.
		return made{rest: is(len(out)), drop: func() { gpu.ReleaseColumns(append(out, offsets, ends)) }}, nil
	}))
	for name, bits := range map[string]uint{"aggregate few groups": 0, "aggregate partitions": 6} {
		out = append(out, stateless(name, func(b *bench, cols []gpu.Column) (made, error) {
			parted, offsets, err := b.q.Partition(b.l, pick(cols, colSpread), cols[colSpread], gpu.Digit{Bits: bits})
			if err != nil {
				return made{}, err
			}
			defer gpu.ReleaseColumns(append(parted, offsets))
			key := parted[0]
			groups, err := b.q.AggregatePartitions(b.l, gpu.Partitioned{Key: key, Offsets: offsets},
				[]gpu.Aggregate{{Kind: gpu.Max, Input: key.Type, Output: key.Type}}, []gpu.Column{key}, gpu.GroupHint{})
			if err != nil {
				return made{cols: groups}, err
			}
			// They come in any order.
			return made{rest: is(groups[0].Len), drop: func() { gpu.ReleaseColumns(groups) }}, nil
		}))
	}
	for _, r := range matcherMemory("join buckets", func(b *bench) (func() (gpu.Matcher, error), func()) {
		few, err := b.q.Slice(b.l, b.inputs()[colSpread], 0, 30)
		require.NoError(b.t, err)
		defer few.Release()
		side, err := experimental(b.q).PartitionBuckets(b.l, few, gpu.Digit{})
		require.NoError(b.t, err)
		return func() (gpu.Matcher, error) {
			return b.q.MatchPartitions(b.l, side.Partitioned, side.Partitioned, gpu.Probing{})
		}, side.Release
	}) {
		if !strings.HasSuffix(r.name, ", join") { // it gathers columns of all rows
			out = append(out, r)
		}
	}
	out = append(out, matcherMemory("join partitions", func(b *bench) (func() (gpu.Matcher, error), func()) {
		cols := b.inputs()
		// One partition and distinct keys, because the order of other pairs is unspecified.
		keys, offsets, err := b.q.Partition(b.l, pick(cols, colSpread), cols[colSpread], gpu.Digit{})
		require.NoError(b.t, err)
		side := gpu.Partitioned{Key: keys[0], Offsets: offsets}
		return func() (gpu.Matcher, error) { return b.q.MatchPartitions(b.l, side, side, gpu.Probing{}) },
			func() { keys[0].Release(); offsets.Release() }
	})...)
	for name, at := range map[string]int{"numbers": colOrdered, "texts and nulls": colSorted} {
		out = append(out, matcherMemory("merge match of "+name, func(b *bench) (func() (gpu.Matcher, error), func()) {
			keys := sortKeys(b.inputs(), at)
			return func() (gpu.Matcher, error) { return experimental(b.q).MatchSorted(b.l, keys, keys, []bool{false}) },
				func() {}
		})...)
		out = append(out, matcherMemory("range match of "+name, func(b *bench) (func() (gpu.Matcher, error), func()) {
			key := b.inputs()[at]
			return func() (gpu.Matcher, error) {
				return b.q.MatchRange(b.l, key, &gpu.Bound{Column: key}, &gpu.Bound{Column: key})
			}, func() {}
		})...)
	}
	return out
}

// moves returns the trial of a copy of a stride. The trial owns the stride until it is copied. It
// has a queue of its own, because queues keep dictionaries.
func (b *bench) moves(s *gpu.Stride, l *gpu.Lease, move func(gpu.Queue, *gpu.Lease, *gpu.Stride) (*gpu.Stride, error),
	result func(gpu.Queue, *gpu.Stride) (made, error)) trial {
	q, err := b.dev.NewQueue("copies")
	require.NoError(b.t, err)
	moved := false
	return trial{
		call: func() (made, error) {
			out, err := move(q, l, s)
			if err != nil {
				require.Nil(b.t, out)
				return made{}, err
			}
			moved = true
			return result(q, out)
		},
		state: func() string {
			if moved {
				return "moved"
			}
			return layoutOf(s)
		},
		finish: func() {
			require.True(b.t, moved)
			require.NoError(b.t, q.Close())
		},
	}
}

// layoutOf describes the layout of a stride's columns in memory.
func layoutOf(s *gpu.Stride) string {
	var text strings.Builder
	for _, c := range s.Cols {
		fmt.Fprintln(&text, c.Type, c.Len, c.CodeWidth, c.Data.Size(), c.Offsets.Size(), c.Valid.Size(), c.Dict != nil)
	}
	return text.String()
}

// hostStride returns a stride with columns of every layout, including encoded ones, in
// memory of the host budget.
func (b *bench) hostStride() *gpu.Stride {
	i64 := gpu.Of(gpu.Int64)
	few := gpu.ColumnOf(i64, generate(5, func(i int) gpu.Scalar { return gpu.IntScalar(i64, int64(i)*1e12) }))
	narrow := gpu.Column{Type: i64, Len: memoryRows, CodeWidth: 4, Data: gpu.WrapBytes(make([]byte, 4*memoryRows))}
	codes := gpu.Column{Type: i64, Len: memoryRows, CodeWidth: 1, Data: gpu.WrapBytes(make([]byte, memoryRows)),
		Dict: &gpu.Dictionary{Values: few}}
	for i := range memoryRows {
		gpu.Values[int32](narrow.Data, memoryRows)[i] = int32(i)
		codes.Data.Bytes()[i] = uint8(i % few.Len)
	}
	cols := append(memoryColumns(memoryRows), narrow, codes)
	own := func(buffer **gpu.Buffer) {
		if *buffer == nil {
			return
		}
		copied, err := b.h.Alloc((*buffer).Size())
		require.NoError(b.t, err)
		copy(copied.Bytes(), (*buffer).Bytes())
		*buffer = copied
	}
	for i := range cols {
		c := &cols[i]
		own(&c.Data)
		own(&c.Offsets)
		own(&c.Valid)
		if c.Dict != nil {
			values := c.Dict.Values
			own(&values.Data)
			own(&values.Offsets)
			own(&values.Valid)
			c.Dict = &gpu.Dictionary{Values: values}
		}
	}
	s := strideOf(cols)
	gpu.ReleaseColumns(cols)
	return s
}

// strideOf returns a new stride with references of its own to the caller's columns.
func strideOf(cols []gpu.Column) *gpu.Stride {
	fields := make([]gpu.Field, len(cols))
	own := make([]gpu.Column, len(cols))
	for i, c := range cols {
		fields[i] = gpu.Field{Name: fmt.Sprint("c", i), Type: c.Type, Nullable: true}
		own[i] = c.Retain()
	}
	return &gpu.Stride{Schema: gpu.NewSchema(fields...), Cols: own, Rows: cols[0].Len}
}

// otherCoded returns a column with another dictionary of few values.
func (b *bench) otherCoded() gpu.Column {
	if b.other == nil {
		text := gpu.Of(gpu.String)
		b.other = b.up(column(text, generate(memoryRows-1,
			func(i int) gpu.Scalar { return gpu.StringScalar(fmt.Sprint("coded ", i%50)) }), true))
	}
	return b.other[0]
}

// keySets are keys of tables and groups, named by the case that they test.
var keySets = []struct {
	name string
	at   []int
	safe bool
}{
	{"a range", []int{colNumber}, false}, {"a range with duplicates", []int{colOrdered}, false},
	{"a range with nulls", []int{colFew}, false},
	{"numbers far apart", []int{colSpread}, false}, {"texts", []int{colText}, false},
	{"a dictionary", []int{colCoded}, false},
	{"a dictionary of many", []int{colRich}, false}, {"several", []int{colFew, colText, colCoded, colWide}, true},
	{"numbers that grow", []int{colFew, colSteep}, false},
}

func tableMemory() (out []memoryCase) {
	for _, k := range keySets {
		safe := slices.Repeat([]bool{k.safe}, len(k.at))
		build := func(b *bench) (gpu.Table, error) {
			return b.q.BuildTable(b.l, pick(b.inputs(), k.at...), safe,
				1<<20)
		}
		out = append(out, stateless("build table of "+k.name, func(b *bench, cols []gpu.Column) (made, error) {
			table, err := build(b)
			if err != nil {
				if table != nil {
					return made{rest: is(table)}, err
				}
				return made{}, err
			}
			return made{drop: table.Release, rest: func() any {
				m, err := table.Match(b.q, b.l, pick(cols, k.at...))
				require.NoError(b.t, err)
				defer m.Release()
				p, build, _, err := m.Next(b.q, b.l, math.MaxInt)
				require.NoError(b.t, err)
				all, err := b.pairsOf(p, build, nil)
				require.NoError(b.t, err)
				defer all.drop()
				return all.rest()
			}}, nil
		}))
		out = append(out, matcherMemory("match of "+k.name, func(b *bench) (func() (gpu.Matcher, error), func()) {
			table, err := build(b)
			require.NoError(b.t, err)
			return func() (gpu.Matcher, error) { return table.Match(b.q, b.l, pick(b.inputs(), k.at...)) },
				table.Release
		})...)
	}
	return out
}

func nonEmpty(cols ...gpu.Column) []gpu.Column {
	return slices.DeleteFunc(cols, func(c gpu.Column) bool { return c.Data == nil })
}

// groupKeys describes the keys of groups.
func (b *bench) groupKeys(g gpu.Groups) string {
	cols, err := g.Keys(b.q, b.l, 0, g.Len())
	require.NoError(b.t, err)
	return fmt.Sprint(g.Len(), b.show(made{cols: cols}))
}

func (b *bench) assign(g gpu.Groups, cols []gpu.Column) (made, error) {
	a, err := g.Assign(b.q, b.l, cols, memoryRows)
	if err != nil {
		if a != nil {
			return made{rest: is(a)}, err
		}
		return made{}, err
	}
	return made{cols: []gpu.Column{a.IDs()}}, nil
}

func groupMemory() (out []memoryCase) {
	// There are more rows than a device assigns at once. Rows that were assigned before memory was denied
	// must not count.
	out = append(out, memoryCase{"assign many rows", func(b *bench) trial {
		const n = 1<<16 + 1000
		typ := gpu.Of(gpu.Int64)
		if b.other == nil {
			b.other = b.up(gpu.ColumnOf(typ,
				generate(n, func(i int) gpu.Scalar { return gpu.IntScalar(typ, int64(i%900)*1e12) })))
		}
		g, err := b.q.NewGroups(b.l, []gpu.Type{typ}, gpu.GroupHint{})
		require.NoError(b.t, err)
		return trial{
			call: func() (made, error) {
				a, err := g.Assign(b.q, b.l, b.other, n)
				if err != nil {
					return made{}, err
				}
				return made{rest: is(n), drop: a.Release}, nil
			},
			state: func() string { return b.groupKeys(g) }, finish: g.Release}
	}})
	out = append(out, memoryCase{"assign texts after a dictionary of distinct values", func(b *bench) trial {
		if b.other == nil {
			b.other = []gpu.Column{b.distinctCodes(memoryRows, 300, true)}
		}
		text := gpu.Of(gpu.String)
		g, err := b.q.NewGroups(b.l, []gpu.Type{text, text}, gpu.GroupHint{})
		require.NoError(b.t, err)
		keys := []gpu.Column{b.other[0], b.inputs()[colText]}
		m, err := b.assign(g, keys)
		require.NoError(b.t, err)
		gpu.ReleaseColumns(m.cols)
		return trial{call: func() (made, error) { return b.assign(g, pick(b.inputs(), colText, colCoded)) },
			state: func() string { return b.groupKeys(g) }, finish: g.Release}
	}})
	typesOf := func(cols []gpu.Column) (types []gpu.Type) {
		for _, c := range cols {
			types = append(types, c.Type)
		}
		return types
	}
	for _, hint := range []gpu.GroupHint{{Groups: 5000}, {Dense: true, Lo: 0, Hi: 1 << 16}} {
		out = append(out, stateless(fmt.Sprint("new groups, dense ", hint.Dense),
			func(b *bench, cols []gpu.Column) (made, error) {
				g, err := b.q.NewGroups(b.l, typesOf(cols[:1]), hint)
				if err != nil {
					if g != nil {
						return made{rest: is(g)}, err
					}
					return made{}, err
				}
				return made{rest: is(g.Len()), drop: g.Release}, nil
			}))
	}
	out = append(out, stateless("pack keys", func(b *bench, cols []gpu.Column) (made, error) {
		keys := pick(cols, colFew, colTruth, colCoded, colText)
		p, err := b.q.NewPacking(b.l, typesOf(keys))
		if err != nil {
			return made{}, err
		}
		defer p.Release()
		packed, err := p.Pack(b.q, b.l, keys, keys[0].Len)
		if err != nil {
			return made{}, err
		}
		defer packed.Release()
		return of(packed.Unpack(b.q, b.l, packed.Key()))
	}))
	for _, k := range append(keySets, struct {
		name string
		at   []int
		safe bool
	}{"no key", nil, false}) {
		for _, hint := range []gpu.GroupHint{{}, {Dense: true, Lo: 0, Hi: 900}} {
			if hint.Dense && (len(k.at) != 1 || k.at[0] > colFew && k.at[0] < colOrdered) {
				continue
			}
			start := func(b *bench, batches int) (gpu.Groups, []gpu.Column, []gpu.Column) {
				keys := pick(b.inputs(), k.at...)
				g, err := b.q.NewGroups(b.l, typesOf(keys), hint)
				require.NoError(b.t, err)
				// The first batch has some of the keys, and no nulls.
				var first []gpu.Column
				for _, c := range keys {
					c.Valid = nil
					some, err := b.q.Slice(b.l, c, 0, 300)
					require.NoError(b.t, err)
					first = append(first, some)
				}
				if batches > 0 && len(keys) > 0 {
					a, err := g.Assign(b.q, b.l, first, 300)
					require.NoError(b.t, err)
					a.Release()
				}
				return g, keys, first
			}
			for batches := range 2 {
				out = append(out,
					memoryCase{name: fmt.Sprint("assign ", k.name, ", dense ", hint.Dense, ", after ", batches),
						start: func(b *bench) trial {
							g, keys, first := start(b, batches)
							return trial{call: func() (made, error) { return b.assign(g, keys) },
								state:  func() string { return b.groupKeys(g) },
								finish: func() { g.Release(); gpu.ReleaseColumns(first) }}
						}})
			}
			if len(k.at) == 0 {
				continue
			}
			out = append(out, memoryCase{name: fmt.Sprint("keys of ", k.name, ", dense ", hint.Dense),
				start: func(b *bench) trial {
					g, keys, first := start(b, 1)
					m, err := b.assign(g, keys)
					require.NoError(b.t, err)
					gpu.ReleaseColumns(m.cols)
					return trial{call: func() (made, error) { return of(g.Keys(b.q, b.l, 1, g.Len())) },
						finish: func() { g.Release(); gpu.ReleaseColumns(first) }}
				}})
		}
	}
	return out
}

// accumulatorMemory updates every aggregate over every layout: first with rows without
// nulls, then with rows with nulls and more groups.
func accumulatorMemory() (out []memoryCase) {
	types := memoryColumns(1)
	for _, at := range []int{colNumber, colFew, colFloat, colWide, colTruth, colText, colCoded, colSpread} {
		for _, kind := range accumulated(types[at].Type) {
			if kind == gpu.CountAll && at != colNumber {
				continue
			}
			for batches := range 2 {
				start := func(b *bench) (x struct {
					acc     gpu.Accumulator
					groups  gpu.Groups
					a       gpu.Assignment
					values  gpu.Column
					release []func()
				}) {
					cols := b.inputs()
					var err error
					x.values = cols[at]
					agg := gpu.Aggregate{Kind: kind, Input: x.values.Type, Output: aggregateOutput(kind, x.values.Type)}
					x.acc, err = b.q.NewAccumulator(b.l, agg)
					require.NoError(b.t, err)
					x.groups, err = b.q.NewGroups(b.l, []gpu.Type{cols[colFew].Type}, gpu.GroupHint{})
					require.NoError(b.t, err)
					x.release = append(x.release, x.acc.Release, x.groups.Release)
					if batches > 0 {
						plain := x.values
						plain.Valid = nil
						var first []gpu.Column
						for _, c := range []gpu.Column{cols[colFew], plain} {
							some, err := b.q.Slice(b.l, c, 0, 64)
							require.NoError(b.t, err)
							first = append(first, some)
						}
						a, err := x.groups.Assign(b.q, b.l, first[:1], 64)
						require.NoError(b.t, err)
						require.NoError(b.t, x.acc.Update(b.q, a, first[1], x.groups.Len()))
						a.Release()
						gpu.ReleaseColumns(first)
					}
					x.a, err = x.groups.Assign(b.q, b.l, cols[colFew:colFew+1], memoryRows)
					require.NoError(b.t, err)
					x.release = append(x.release, x.a.Release)
					return x
				}
				name := fmt.Sprint(kind, " of column ", at, ", after ", batches)
				seen := map[int]int{1: 58}[batches] // groups of the first batch
				out = append(out, memoryCase{name: "update " + name, start: func(b *bench) trial {
					x := start(b)
					updated := false
					return trial{
						call: func() (made, error) {
							err := x.acc.Update(b.q, x.a, x.values, x.groups.Len())
							updated = updated || err == nil
							return made{}, err
						},
						state: func() string {
							n := seen
							if updated {
								n = x.groups.Len()
							}
							c, err := x.acc.Result(b.q, b.l, 0, n)
							require.NoError(b.t, err)
							return b.show(made{cols: []gpu.Column{c}})
						},
						finish: func() {
							for _, f := range x.release {
								f()
							}
						},
					}
				}}, memoryCase{name: "result of " + name, start: func(b *bench) trial {
					x := start(b)
					require.NoError(b.t, x.acc.Update(b.q, x.a, x.values, x.groups.Len()))
					return trial{
						call: func() (made, error) { return one(x.acc.Result(b.q, b.l, 1, x.groups.Len())) },
						finish: func() {
							for _, f := range x.release {
								f()
							}
						},
					}
				}})
			}
		}
	}
	return out
}

func evalMemory() []memoryCase {
	text, i64, f64 := gpu.Of(gpu.String), gpu.Of(gpu.Int64), gpu.Of(gpu.Float64)
	i := func(op gpu.Op, t gpu.Type, args ...int) gpu.Instr {
		return gpu.Instr{Op: op, Type: t, Args: args, Mask: -1, Text: "the operation"}
	}
	constant := func(v gpu.Scalar) gpu.Instr {
		in := i(gpu.OpConst, v.Type)
		in.Value = v
		return in
	}
	return []memoryCase{
		stateless("eval of numbers", func(b *bench, cols []gpu.Column) (made, error) {
			p := &gpu.Program{Inputs: []gpu.Type{i64, f64}, Outputs: []int{2, 3, 5, 0}, Code: []gpu.Instr{
				i(gpu.OpAdd, i64, 0, 0), i(gpu.OpMul, f64, 1, 1), constant(gpu.IntScalar(i64, 100)),
				i(gpu.OpLt, boolean, 0, 4)}}
			return of(b.q.Eval(b.l, p, pick(cols, colNumber, colFloat), memoryRows))
		}),
		stateless("eval of texts", func(b *bench, cols []gpu.Column) (made, error) {
			p := &gpu.Program{Inputs: []gpu.Type{text, text, i64}, Outputs: []int{3, 5, 6, 7}, Code: []gpu.Instr{
				i(gpu.OpUpper, text, 0), constant(gpu.StringScalar("-")), i(gpu.OpConcat, text, 0, 4, 1),
				i(gpu.OpCast, text, 2), i(gpu.OpEq, boolean, 0, 1)}}
			return of(b.q.Eval(b.l, p, pick(cols, colText, colCoded, colNumber), memoryRows))
		}),
		stateless("eval of a dictionary", func(b *bench, cols []gpu.Column) (made, error) {
			p := &gpu.Program{Inputs: []gpu.Type{text}, Outputs: []int{1, 2}, Code: []gpu.Instr{
				i(gpu.OpUpper, text, 0), i(gpu.OpLength, i64, 1)}}
			return of(b.q.Eval(b.l, p, pick(cols, colCoded), memoryRows))
		}),
	}
}
