package gputest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// testUploadEncoded uploads encoded columns with codes of each width.
func testUploadEncoded(t *testing.T, open Open) {
	b := setUp(t, open)
	wide := gpu.DecimalOf(38, 2)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Int16), gpu.Of(gpu.Date), gpu.Of(gpu.Float64), wide,
		gpu.Of(gpu.String)} {
		for width, values := range map[int]int{1: 256, 2: 60000, 4: 70000} {
			dict := make([]gpu.Scalar, values)
			for i := range dict {
				dict[i] = gpu.Scalar{Type: typ, Valid: true, Int: gpu.Int128From(int64(i % 100)), Float: float64(i),
					Str: fmt.Sprint("value ", i)}
			}
			shared := &gpu.Dictionary{Values: gpu.ColumnOf(typ, dict)}
			for _, n := range upTo(5000, []int{0, 1, 255, 4097, 30001}) {
				for _, nulls := range []bool{false, true} {
					codes, want := make([]byte, n*width), make([]gpu.Scalar, n)
					valid := make([]uint64, (n+63)/64)
					for i := range n {
						code := b.rnd.IntN(values)
						for k := range width {
							codes[i*width+k] = byte(code >> (8 * k))
						}
						want[i] = dict[code]
						if nulls && b.rnd.IntN(5) == 0 {
							want[i] = gpu.Null(typ)
						} else {
							valid[i/64] |= 1 << (i % 64)
						}
					}
					c := gpu.Column{Type: typ, Len: n, Data: gpu.WrapBytes(codes), Dict: shared, CodeWidth: width}
					shared.Values.Retain()
					if nulls {
						c.Valid = gpu.WrapBytes(gpu.BytesOf(valid))
					}
					got := b.up(c)[0]
					require.Zero(t, got.CodeWidth)
					requireRows(t, want, b.down(got),
						fmt.Sprintf("%d rows of %v with codes of %d bytes, nulls %t", n, typ, width, nulls))
				}
			}
		}
	}
}

// testUploadNarrow uploads encoded columns without a dictionary.
func testUploadNarrow(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Uint64), gpu.DecimalOf(15, 2),
		gpu.TimestampOf(gpu.Nanosecond, false)} {
		for _, n := range upTo(5000, []int{0, 1, 255, 4097, 30001}) {
			narrow, want := make([]int32, n), make([]gpu.Scalar, n)
			valid := make([]uint64, (n+63)/64)
			for i := range n {
				narrow[i] = []int32{math.MinInt32, -1, 0, 1, math.MaxInt32, int32(b.rnd.Uint32())}[b.rnd.IntN(6)]
				if typ.IsUnsigned() {
					narrow[i] &= math.MaxInt32
				}
				want[i] = gpu.IntScalar(typ, int64(narrow[i]))
				if i%7 == 3 {
					want[i] = gpu.Null(typ)
				} else {
					valid[i/64] |= 1 << (i % 64)
				}
			}
			c := gpu.Column{Type: typ, Len: n, Data: gpu.WrapBytes(gpu.BytesOf(narrow)),
				Valid: gpu.WrapBytes(gpu.BytesOf(valid)), CodeWidth: 4}
			s := &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: typ, Nullable: true}),
				Cols: []gpu.Column{c}, Rows: n}
			require.NoError(t, s.Check())
			got := b.up(c)[0]
			require.Zero(t, got.CodeWidth)
			requireRows(t, want, b.down(got), fmt.Sprintf("%d rows of %v", n, typ))
		}
	}
}

// testUploadJoined uploads columns whose values are in several pieces: views of page-locked
// buffers, and memory of the heap.
func testUploadJoined(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int8), gpu.Of(gpu.Int32), gpu.Of(gpu.Float64), gpu.DecimalOf(38, 2),
		gpu.Of(gpu.String)} {
		for _, n := range upTo(5000, []int{0, 1, 255, 4097, 30001}) {
			want := b.random(typ, n, distribution{nulls: 0.1})
			c := gpu.ColumnOf(typ, want)
			all := c.Data.Bytes()
			var pieces []*gpu.Buffer
			for from := 0; from < len(all); {
				size := min(len(all)-from, b.rnd.IntN(len(all)))
				part := gpu.WrapBytes(all[from : from+size])
				if b.rnd.IntN(2) == 0 {
					whole, err := b.h.Alloc(int64(size) + 3)
					require.NoError(t, err)
					copy(whole.Bytes()[3:], part.Bytes())
					part = whole.View(3, int64(size))
					whole.Release()
				}
				pieces, from = append(pieces, part), from+size
			}
			c.Data = gpu.Joined(pieces)
			requireRows(t, want, b.down(b.up(c)[0]), fmt.Sprintf("%d rows of %v in %d pieces", n, typ, len(pieces)))
		}
	}
}

// testReady downloads strides that were made one after the other: more strides than a device keeps
// events for.
func testReady(t *testing.T, open Open) {
	b := setUp(t, open)
	if b.dev.Budget() == b.dev.HostBudget() { // nothing is copied
		return
	}
	const n = 3000
	var made []*gpu.Stride
	for i := range 200 {
		c, err := b.q.Eval(b.l, constant(int64(i)), nil, n)
		require.NoError(t, err)
		made = append(made, &gpu.Stride{Rows: n, Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)}),
			Cols: c})
		made[i].SetReady(b.dev)
	}
	for i, s := range made {
		down, err := b.q.Download(b.h, s)
		require.NoError(t, err)
		require.Equal(t, int64(i), gpu.Values[int64](down.Cols[0].Data, n)[n-1])
		down.Release()
	}
}

// constant returns the program of a BIGINT column of one value.
func constant(v int64) *gpu.Program {
	t := gpu.Of(gpu.Int64)
	return &gpu.Program{Code: []gpu.Instr{{Op: gpu.OpConst, Type: t, Value: gpu.IntScalar(t, v), Mask: -1}},
		Outputs: []int{0}}
}

// testUpAhead uploads many strides before another queue uses the first one, and releases some of
// them unused.
func testUpAhead(t *testing.T, open Open) {
	b := setUp(t, open)
	ahead, err := b.dev.NewQueue("ahead")
	require.NoError(t, err)
	const n = 70000
	var strides []*gpu.Stride
	for k := range 8 {
		values := make([]int64, n)
		for i := range values {
			values[i] = int64(k*n + i)
		}
		s, err := ahead.UploadAhead(b.l,
			&gpu.Stride{Rows: n, Schema: gpu.NewSchema(gpu.Field{Name: "v", Type: gpu.Of(gpu.Int64)}),
				Cols: []gpu.Column{{Type: gpu.Of(gpu.Int64), Len: n, Data: gpu.WrapBytes(gpu.BytesOf(values))}}})
		require.NoError(t, err)
		strides = append(strides, s)
	}
	ids := b.ids([]int32{n - 1, 0, 7})
	for k, s := range strides {
		require.NoError(t, b.q.Wait(s))
		if k%3 < 2 {
			out, err := b.q.Gather(b.l, s.Cols, ids, false)
			require.NoError(t, err)
			require.Equal(t, []int{k*n + n - 1, k * n, k*n + 7}, b.ints(out[0]))
			gpu.ReleaseColumns(out)
		}
		s.Release()
	}
	require.NoError(t, ahead.Close())
}

func testSelect(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, n := range sizes {
		for _, d := range []distribution{{}, {distinct: 1}, {nulls: 0.5}, {nulls: 1}} {
			values := b.random(gpu.Of(gpu.Bool), n, d)
			rows := map[bool][]int{true: {}, false: {}}
			for i, v := range values {
				truth := v.Valid && v.Int.Lo == 1
				rows[truth] = append(rows[truth], i)
			}
			pred := b.up(gpu.ColumnOf(gpu.Of(gpu.Bool), values))[0]
			for want, list := range rows {
				ids, err := b.q.Select(b.l, pred, want)
				require.NoError(t, err)
				require.Equal(t, list, b.ints(ids), "%v of %d rows, %+v", want, n, d)
				ids.Release()
			}
		}
	}
	all := make([]gpu.Scalar, 20000)
	for i := range all {
		all[i] = gpu.BoolScalar(true)
	}
	ids, err := b.q.Select(b.l, b.up(gpu.ColumnOf(gpu.Of(gpu.Bool), all))[0], true)
	require.NoError(t, err)
	require.Equal(t, len(all), ids.Len)
	ids.Release()
}

// selection returns a bitmap of n rows in the layout of a column.
func selection(n int, truth func(i int) bool) *gpu.Buffer {
	words := make([]uint64, (n+63)/64)
	for i := range n {
		if truth(i) {
			words[i/64] |= 1 << (i % 64)
		}
	}
	return gpu.WrapBytes(gpu.BytesOf(words))
}

// testSelectPatterns selects rows that are spread unevenly. The code paths of a device may depend
// on the number of adjacent selected rows, and on the boundaries of its units of work.
func testSelectPatterns(t *testing.T, open Open) {
	b := setUp(t, open)
	always := func(int) bool { return true }
	patterns := []struct {
		name         string
		truth, valid func(i int) bool // valid nil: no nulls
		most         int              // most rows; 0: any number
	}{
		{"none", func(int) bool { return false }, nil, 0},
		{"all", always, nil, 2 << 20},
		{"every second", func(i int) bool { return i%2 == 1 }, nil, 4 << 20},
		{"every fifth", func(i int) bool { return i%5 == 0 }, nil, 8 << 20},
		{"first of each word", func(i int) bool { return i%32 == 0 }, nil, 0},
		{"last of each word", func(i int) bool { return i%64 == 63 }, nil, 0},
		{"whole words", func(i int) bool { return i/32%3 == 0 }, nil, 4 << 20},
		{"dense and empty turn about", func(i int) bool { return i/1024%2 == 0 && i%7 < 6 }, nil, 4 << 20},
		{"denser and denser", func(i int) bool { return i*0x9e3779b1>>8%40000 < i%40000 }, nil, 4 << 20},
		{"valid but false", func(i int) bool { return i%3 == 0 }, func(i int) bool { return i%3 != 0 }, 0},
		{"true but mostly null", always, func(i int) bool { return i%97 == 5 }, 0},
		{"half null", always, func(i int) bool { return i*0x9e3779b1>>8%2 == 0 }, 4 << 20},
	}
	// For the last sizes a device counts the rows before it allocates the ids.
	for _, n := range []int{1, 31, 32, 33, 127, 128, 129, 1023, 1025, 4095, 4096, 4097, 8191, 8193, 262145, 1500001,
		25<<20 - 3} {
		for i, p := range patterns {
			if p.most > 0 && n > p.most || n > 1<<20 && !Takes(min(Thin, 4), i+n) {
				continue
			}
			var want []int32
			for i := range n {
				if p.truth(i) && (p.valid == nil || p.valid(i)) {
					want = append(want, int32(i))
				}
			}
			pred := gpu.Column{Type: gpu.Of(gpu.Bool), Len: n, Data: selection(n, p.truth)}
			if p.valid != nil {
				pred.Valid = selection(n, p.valid)
			}
			ids, err := b.q.Select(b.l, b.up(pred)[0], true)
			require.NoError(t, err)
			require.Equal(t, len(want), ids.Len, "%s of %d", p.name, n)
			got := b.int32s(ids)
			for i := range want { // require would be too slow for millions of rows
				if got[i] != want[i] {
					require.Equal(t, want[i], got[i], "%s of %d, row %d", p.name, n, i)
				}
			}
			if n > 8193 {
				continue
			}
			others, err := b.q.Select(b.l, b.up(pred)[0], false)
			require.NoError(t, err)
			var rest []int32
			for i := range int32(n) {
				if _, found := slices.BinarySearch(want, i); !found {
					rest = append(rest, i)
				}
			}
			require.True(t, slices.Equal(rest, b.int32s(others)), "all but %s of %d", p.name, n)
		}
	}
}

func testGather(t *testing.T, open Open) {
	for _, typ := range moved() {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, d := range []distribution{{name: "uniform"}, {name: "nulls", nulls: 0.3}} {
					const n = 1000
					values := b.random(typ, n, d)
					col := b.up(column(typ, values, coded))
					for _, m := range b.sizes() {
						for _, outer := range []bool{false, true} {
							ids := make([]int32, m)
							want := make([]gpu.Scalar, m)
							for i := range ids {
								ids[i] = int32(b.rnd.IntN(n))
								want[i] = values[ids[i]]
								if outer && i%3 == 0 {
									ids[i], want[i] = -1, gpu.Null(typ)
								}
							}
							got, err := b.q.Gather(b.l, col, b.ids(ids), outer)
							require.NoError(t, err)
							requireSame(t, want, b.down(got[0]), d.name, m, outer)
							gpu.ReleaseColumns(got)
						}
					}
					identity := make([]int32, n)
					for i := range identity {
						identity[i] = int32(i)
					}
					got, err := b.q.Gather(b.l, col, b.ids(identity), false)
					require.NoError(t, err)
					requireSame(t, values, b.down(got[0]))
					gpu.ReleaseColumns(got)
				}
				none, err := b.q.Gather(b.l, b.up(column(typ, nil, coded)), b.ids([]int32{-1, -1, -1}), true)
				require.NoError(t, err)
				requireSame(t, []gpu.Scalar{gpu.Null(typ), gpu.Null(typ), gpu.Null(typ)}, b.down(none[0]))
				gpu.ReleaseColumns(none)
			})
		}
	}
}

func testGatherParts(t *testing.T, open Open) {
	b := setUp(t, open)
	for _, nulls := range []float64{0, 0.3} {
		var parts []gpu.Column
		var all []gpu.Scalar
		for _, n := range []int{65, 0, 1, 501, 7} {
			values := b.random(gpu.Of(gpu.String), n, distribution{nulls: nulls})
			all = append(all, values...)
			parts = append(parts, b.up(column(gpu.Of(gpu.String), values, len(parts)%2 == 1))[0])
		}
		for _, m := range b.sizes() {
			ids := make([]int32, m)
			want := make([]gpu.Scalar, m)
			for i := range ids {
				ids[i] = int32(b.rnd.IntN(len(all)))
				want[i] = all[ids[i]]
			}
			got, err := b.q.GatherParts(b.l, parts, b.ids(ids))
			require.NoError(t, err)
			requireSame(t, want, b.down(got), m, nulls)
			got.Release()
		}
	}
}

// testScatter scatters by a part of a permutation, so that some rows of the result stay empty and
// some rows of the input are left out.
func testScatter(t *testing.T, open Open) {
	for _, typ := range moved() {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, m := range upTo(600, sizes) {
					for _, extra := range []int{-m / 3, 0, 70} {
						values := b.random(typ, m, distribution{nulls: 0.2 * float64(m%2)})
						n := m + extra
						ids := make([]int32, m)
						for i, id := range b.rnd.Perm(m + max(extra, 0))[:m] {
							ids[i] = int32(id)
						}
						b.checkScatter(typ, values, coded, ids, n)
					}
				}
				b.checkScatter(typ, b.random(typ, 6, distribution{}), coded, []int32{3, -1, 3, 0, 1 << 30, 3}, 5)
				b.checkScatter(typ, nil, coded, nil, 65)
			})
		}
	}
	t.Run("refuses", func(t *testing.T) {
		for _, c := range []struct {
			ids []int32
			n   int
		}{{[]int32{0, 1}, 3}, {[]int32{0, 1, 2}, -1}, {[]int32{0, 1, 2}, gpu.MaxRows + 1}} {
			b := setUp(t, open)
			_, err := b.q.Scatter(b.l, []gpu.Column{b.ids([]int32{1, 2, 3})}, b.ids(c.ids), c.n)
			require.ErrorContains(t, err, "scatter")
		}
	})
}

func (b *bench) checkScatter(typ gpu.Type, values []gpu.Scalar, coded bool, ids []int32, n int) {
	b.t.Helper()
	want := make([]gpu.Scalar, n)
	for i := range want {
		want[i] = gpu.Null(typ)
	}
	for i, id := range ids {
		if id >= 0 && int(id) < n {
			want[id] = values[i]
		}
	}
	row := make([]int32, len(values))
	for i := range row {
		row[i] = int32(i)
	}
	cols := b.up(column(typ, values, coded),
		gpu.Column{Type: gpu.Of(gpu.Int32), Len: len(row), Data: gpu.WrapBytes(gpu.BytesOf(row))})
	got, err := b.q.Scatter(b.l, cols, b.ids(ids), n)
	require.NoError(b.t, err)
	require.Len(b.t, got, 2)
	requireSame(b.t, want, b.down(got[0]), len(values), n)
	for id, r := range b.down(got[1]) {
		if r.Valid && int(ids[r.Int.Int64()]) != id {
			require.Failf(b.t, "columns do not move together", "row %d", id)
		}
	}
	gpu.ReleaseColumns(got)
}

func testConcat(t *testing.T, open Open) {
	for _, typ := range moved() {
		t.Run(typ.String(), func(t *testing.T) {
			b := setUp(t, open)
			for _, mode := range []string{"plain", "coded", "one dictionary", "mixed", "coded and nulls"} {
				if mode != "plain" && !typ.IsVar() {
					continue
				}
				var parts []gpu.Column
				var want []gpu.Scalar
				for i, n := range []int{65, 0, 1, 501, 63, 7, 3001} {
					d := distribution{distinct: 9}
					if i%2 == 1 {
						d.nulls = 0.4
					}
					coded := mode == "coded" || mode == "mixed" && i%2 == 0
					if mode == "coded and nulls" {
						if coded = i%3 > 0; !coded {
							d.nulls = 1
						}
					}
					values := b.random(typ, n, d)
					want = append(want, values...)
					c := b.up(column(typ, values, coded))[0]
					parts = append(parts, c)
				}
				if mode == "one dictionary" {
					whole := b.up(column(typ, want, true))[0]
					at := 0
					for i := range parts {
						n := parts[i].Len
						part, err := b.q.Slice(b.l, whole, at, at+n)
						require.NoError(t, err)
						defer part.Release()
						parts[i], at = part, at+n
					}
				}
				got, err := b.q.Concat(b.l, parts)
				require.NoError(t, err)
				requireSame(t, want, b.down(got), mode)
				if mode == "coded" || mode == "one dictionary" {
					require.NotNil(t, got.Dict, "dictionaries survive")
				}
				got.Release()
				if mode == "plain" { // more parts than a kernel takes, and one of several blocks
					many, all := parts, want
					long := b.random(typ, 9001, distribution{distinct: 9})
					many = append(many[:len(many):len(many)], b.up(column(typ, long, false))[0])
					all = append(all[:len(all):len(all)], long...)
					for range 64 {
						many, all = append(many, parts[5]), append(all, want[630:637]...)
					}
					got, err := b.q.Concat(b.l, many)
					require.NoError(t, err)
					requireSame(t, all, b.down(got), mode)
					got.Release()
				}
				one, err := b.q.Concat(b.l, parts[3:4])
				require.NoError(t, err)
				requireSame(t, want[66:567], b.down(one), mode)
				one.Release()
			}
		})
	}
}

func testElements(t *testing.T, open Open) {
	list := gpu.ListOf(gpu.Of(gpu.Int64))
	for _, n := range []int{0, 1, 65, 700} {
		for _, coded := range []bool{false, true} {
			b := setUp(t, open)
			values := make([]gpu.Scalar, n)
			var rows, positions, starts []int
			var want []gpu.Scalar
			one := func(e gpu.Scalar) string {
				return string(gpu.CloseNested(gpu.AppendScalar(gpu.OpenNested(nil), e)))
			}
			for i := range values {
				starts = append(starts, len(rows))
				if values[i] = gpu.Null(list); b.rnd.IntN(5) == 0 {
					continue
				}
				encoded := gpu.OpenNested(nil)
				for k := range b.rnd.IntN(5) {
					e := gpu.Null(list.Element())
					if k != 2 {
						e = gpu.IntScalar(list.Element(), int64(b.rnd.IntN(9)))
					}
					encoded = gpu.AppendScalar(encoded, e)
					rows, positions = append(rows, i), append(positions, k+1)
					want = append(want, gpu.Scalar{Type: list, Valid: true, Str: one(e)})
				}
				values[i] = gpu.Scalar{Type: list, Valid: true, Str: string(gpu.CloseNested(encoded))}
			}
			e, err := b.q.Elements(b.l, b.up(column(list, values, coded))[0])
			require.NoError(t, err)
			if got := b.ints(e.Rows); len(rows) > 0 || len(got) > 0 {
				require.Equal(t, rows, got)
			}
			require.Equal(t, append(starts, len(rows)), b.ints(e.Starts))
			requireSame(t, want, b.down(e.Values), n)
			for i, p := range b.down(e.Positions) {
				require.Equal(t, int64(positions[i]), p.Int.Int64())
			}
			e.Release()
			_, err = b.q.Elements(b.l, b.up(column(gpu.Of(gpu.String), nil, false))[0])
			require.Error(t, err)
		}
	}
}

func testUnnest(t *testing.T, open Open) {
	types := []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Bool), gpu.Of(gpu.Int8), gpu.Of(gpu.Uint16), gpu.Of(gpu.Int32),
		gpu.Of(gpu.Float32), gpu.Of(gpu.Float64), gpu.DecimalOf(30, 2), gpu.Of(gpu.String), gpu.Of(gpu.Binary),
		gpu.ListOf(gpu.Of(gpu.Int16)), gpu.StructOf(gpu.Field{Name: "a", Type: gpu.Of(gpu.String)})}
	for _, n := range []int{0, 1, 65, 700} {
		b := setUp(t, open)
		var rows []int
		counts := make([]int, n)
		for i := range counts {
			counts[i] = max(b.rnd.IntN(6)-1, 0)
			rows = append(rows, slices.Repeat([]int{i}, counts[i])...)
		}
		var lists []gpu.Column
		var want [][]gpu.Scalar
		for k, typ := range types {
			elements := b.random(typ, len(rows), distribution{nulls: 0.2})
			for i, e := range elements {
				if typ.IsNested() && e.Valid {
					inner := b.random(typ.Children()[0].Type, 1, distribution{nulls: 0.2})[0]
					elements[i].Str = string(gpu.CloseNested(gpu.AppendScalar(gpu.OpenNested(nil), inner)))
				}
			}
			values, at := make([]gpu.Scalar, n), 0
			for i := range values {
				if values[i] = gpu.Null(gpu.ListOf(typ)); counts[i] == 0 && k%2 == 0 {
					continue
				}
				encoded := gpu.OpenNested(nil)
				for range counts[i] {
					encoded, at = gpu.AppendScalar(encoded, elements[at]), at+1
				}
				values[i].Valid, values[i].Str = true, string(gpu.CloseNested(encoded))
			}
			lists, want = append(lists, b.up(column(gpu.ListOf(typ), values, k == 3))[0]), append(want, elements)
		}
		for _, from := range []int{0, n / 3} {
			to := n - from/2
			ids, elements, err := b.q.Unnest(b.l, lists, from, to)
			require.NoError(t, err)
			first, _ := slices.BinarySearch(rows, from)
			end, _ := slices.BinarySearch(rows, to)
			if got := b.ints(ids); end > first || len(got) > 0 {
				require.Equal(t, rows[first:end], got)
			}
			for k, c := range elements {
				requireSame(t, want[k][first:end], b.down(c), types[k])
			}
			ids.Release()
			gpu.ReleaseColumns(elements)
		}
		if len(rows) > 0 {
			other := make([]gpu.Scalar, n)
			for i := range other {
				empty := string(gpu.CloseNested(gpu.OpenNested(nil)))
				other[i] = gpu.Scalar{Type: lists[0].Type, Valid: true, Str: empty}
			}
			_, _, err := b.q.Unnest(b.l, []gpu.Column{lists[0], b.up(column(lists[0].Type, other, false))[0]}, 0, n)
			require.ErrorIs(t, err, gpu.ErrUneven)
		}
		_, _, err := b.q.Unnest(b.l, b.up(column(gpu.Of(gpu.String), nil, false)), 0, 0)
		require.Error(t, err)
	}
}

func testSlice(t *testing.T, open Open) {
	for _, typ := range moved() {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				values := b.random(typ, 300, distribution{nulls: 0.2})
				col := b.up(column(typ, values, coded))[0]
				for _, r := range [][2]int{{0, 0}, {0, 300}, {0, 1}, {1, 65}, {63, 64}, {64, 200}, {77, 299},
					{300, 300}} {
					got, err := b.q.Slice(b.l, col, r[0], r[1])
					require.NoError(t, err)
					requireSame(t, values[r[0]:r[1]], b.down(got), r)
					got.Release()
				}
				for _, bounds := range [][]int{{0, 300}, {5, 5}, {0, 1, 64, 64, 200, 300}, {77, 130, 299}} {
					many := make([]gpu.Column, 17) // of one launch there are up to 64 ranges
					for i := range many {
						many[i] = col
					}
					parts, err := b.q.Cut(b.l, many, bounds)
					require.NoError(t, err)
					require.Len(t, parts, len(bounds)-1)
					for i, part := range parts {
						require.Len(t, part, len(many))
						for _, c := range part {
							requireSame(t, values[bounds[i]:bounds[i+1]], b.down(c), bounds)
						}
						gpu.ReleaseColumns(part)
					}
				}
			})
		}
	}
}

// hashSeed is a seed for tests in which any seed will do.
const hashSeed = 0x5eed

func testHash(t *testing.T, open Open) {
	b := setUp(t, open)
	seed := uint64(hashSeed)
	hash := func(cols ...gpu.Column) []gpu.Scalar {
		h, err := b.q.Hash(b.l, b.up(cols...), seed)
		require.NoError(t, err)
		defer h.Release()
		return b.down(h)
	}
	for _, typ := range types {
		for _, coded := range codings(typ) {
			values := b.random(typ, 3000, distribution{distinct: 100, nulls: 0.1})
			one := hash(column(typ, values, coded))
			two := hash(column(typ, values, coded), gpu.ColumnOf(typ, values))
			seen := map[string]gpu.Scalar{}
			for i, v := range values {
				if h, ok := seen[label(v)]; ok {
					require.Equal(t, h, one[i], "equal values of %v hash alike", typ)
				}
				seen[label(v)] = one[i]
			}
			distinct := map[gpu.Scalar]bool{}
			for _, h := range seen {
				distinct[h] = true
			}
			require.Len(t, distinct, len(seen), "different values of %v hash apart", typ)
			require.NotEqual(t, one[0], two[0])
			if coded {
				require.Equal(t, hash(gpu.ColumnOf(typ, values)), one, "codes do not show in the hash")
			}
		}
	}
	narrow, wide := gpu.DecimalOf(18, 2), gpu.Type{Kind: gpu.Decimal, Precision: 18, Scale: 2, Wide: true}
	values := b.random(narrow, 100, distribution{})
	require.Equal(t, hash(gpu.ColumnOf(narrow, values)), hash(gpu.ColumnOf(wide, values)),
		"storage does not show in the hash")

	another := hash(gpu.ColumnOf(narrow, values))
	seed++
	require.NotEqual(t, another, hash(gpu.ColumnOf(narrow, values)), "the seed shows in the hash")

	// Machines that share partitions must agree, so these values must never change.
	one := func(v gpu.Scalar) gpu.Column { return gpu.ColumnOf(v.Type, []gpu.Scalar{v}) }
	for _, c := range []struct {
		seed uint64
		want uint64
		keys []gpu.Scalar
	}{
		{42, 0x935172286182d79d, []gpu.Scalar{gpu.BoolScalar(true)}},
		{42, 0xf299f46ee1375383, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int8), -1)}},
		{42, 0xf299f46ee1375383, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), -1)}},
		{42, 0xebf909ec004a51e7, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Uint32), math.MaxUint32)}},
		{42, 0x3a0244b25d9d6556, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Int64), math.MinInt64)}},
		{42, 0x465f63da120c746a, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float32), math.NaN())}},
		{42, 0x7dbfb908905b9456, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float64), math.NaN())}},
		{42, 0xf519f86ee2385b6b, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float64), math.Copysign(0, -1))}},
		{42, 0xa2d551e1b393b9a7, []gpu.Scalar{gpu.FloatScalar(gpu.Of(gpu.Float64), -1.5)}},
		{42, 0x063529f66c197ba2, []gpu.Scalar{{Type: gpu.Of(gpu.HugeInt), Valid: true, Int: gpu.Int128{Lo: 7, Hi: 9}}}},
		{42, 0xf299f46ee1375383, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.HugeInt), -1)}},
		{42, 0x24f0d0a269cb3839, []gpu.Scalar{gpu.IntScalar(gpu.DecimalOf(38, 4), 12345)}},
		{42, 0xa0761d6478bd642f, []gpu.Scalar{gpu.Null(gpu.Of(gpu.Int32))}},
		{42, 0xf519f86ee2385b6b, []gpu.Scalar{gpu.StringScalar("")}},
		{42, 0xdb182ff97616339c, []gpu.Scalar{gpu.StringScalar("abc")}},
		{42, 0xa3d9f5021dcda48f, []gpu.Scalar{gpu.StringScalar("abcde")}},
		{42, 0x2f2d20fda9cb49e2, []gpu.Scalar{gpu.StringScalar("abcdefgh")}},
		{42, 0x62384445a270789b, []gpu.Scalar{gpu.StringScalar("abcdefghijklmnopqrstuvw")}},
		{42, 0x22cc21f1aa4a775c, []gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Date), 1), gpu.StringScalar("x"),
			gpu.Null(gpu.Of(gpu.Float64))}},
		{12345678901234567890, 0xfb838f406ce99f23, []gpu.Scalar{gpu.StringScalar("abcde")}},
		{12345678901234567890, 0x86245ab4754096be, []gpu.Scalar{gpu.StringScalar("abcdefgh")}},
		{12345678901234567890, 0x2afa93ff131b019f, []gpu.Scalar{gpu.StringScalar("abcdefghijklmnopqrstuvw")}},
		{12345678901234567890, 0x0b5e8af42fc73887,
			[]gpu.Scalar{gpu.IntScalar(gpu.Of(gpu.Date), 1), gpu.StringScalar("x"), gpu.Null(gpu.Of(gpu.Float64))}},
	} {
		seed = c.seed
		var cols []gpu.Column
		for _, k := range c.keys {
			cols = append(cols, one(k))
		}
		got := hash(cols...)[0].Int.Lo
		require.Equal(t, c.want, got, "the hash of %v with seed %d", c.keys, c.seed)
	}

	// Dense and strided keys spread evenly over upper and lower digits.
	for _, stride := range []int64{1, 8, 1 << 20, 1 << 32} {
		keys := make([]gpu.Scalar, 1<<14)
		for i := range keys {
			keys[i] = gpu.IntScalar(gpu.Of(gpu.Int64), int64(i)*stride)
		}
		var low, high [256]int
		for _, h := range hash(gpu.ColumnOf(gpu.Of(gpu.Int64), keys)) {
			low[h.Int.Lo&255]++
			high[h.Int.Lo>>56]++
		}
		for d := range low { // 64 are expected
			require.Less(t, low[d], 128, "stride %d", stride)
			require.Less(t, high[d], 128, "stride %d", stride)
		}
	}
}

// offsets returns the offsets of a partition, and releases the column.
func (b *bench) offsets(c gpu.Column) []int {
	b.t.Helper()
	require.Equal(b.t, gpu.Of(gpu.Int32), c.Type)
	require.True(b.t, c.Valid == nil && c.Dict == nil)
	defer c.Release()
	return b.ints(c)
}

func testPartition(t *testing.T, open Open) {
	b := setUp(t, open)
	for i, n := range sizes {
		for _, d := range distributions {
			if i%2 == 1 && d.name != "uniform" {
				continue
			}
			keys := b.random(gpu.Of(gpu.Int64), n, d)
			row := make([]gpu.Scalar, n)
			for i := range row {
				row[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(i))
			}
			text := b.random(gpu.Of(gpu.String), n, distribution{distinct: 100, nulls: 0.1})
			cols := b.up(gpu.ColumnOf(gpu.Of(gpu.Int64), keys), gpu.ColumnOf(gpu.Of(gpu.Int32), row),
				gpu.ColumnOf(gpu.Of(gpu.String), text))
			hash, err := b.q.Hash(b.l, cols[:1], hashSeed)
			require.NoError(t, err)
			hashes := b.down(hash)
			for _, digit := range [][2]uint{{0, 0}, {0, 1}, {60, 4}, {57, 7}, {20, 8}, {3, 12}, {50, 14}} {
				if !b.takes() {
					continue
				}
				shift, bits := digit[0], digit[1]
				out, ends, err := b.q.Partition(b.l, append(cols, gpu.RowNumbers(n)), hash,
					gpu.Digit{Shift: shift, Bits: bits})
				require.NoError(t, err)
				offsets := b.offsets(ends)
				require.Len(t, offsets, 1<<bits+1)
				require.Equal(t, 0, offsets[0])
				require.Equal(t, n, offsets[len(offsets)-1])
				rows, ks, ts := b.ints(out[1]), b.down(out[0]), b.down(out[2])
				require.Equal(t, rows, b.ints(out[3]))
				p := 0
				for i, r := range rows {
					for i >= offsets[p+1] {
						p++
					}
					switch {
					case uint64(p) != hashes[r].Int.Lo>>shift&(1<<bits-1):
						require.Failf(t, "row in the wrong partition", "row %d in %d", r, p)
					case i > offsets[p] && rows[i-1] >= r:
						require.Failf(t, "the partition is not stable", "row %d after %d", r, rows[i-1])
					case !same(keys[r], ks[i]) || !same(text[r], ts[i]):
						require.Failf(t, "columns do not move together", "row %d", r)
					}
				}
				gpu.ReleaseColumns(out)
			}
			hash.Release()
		}
	}
}

// testPartitionColumns partitions columns of every layout by the bits of a key of 4 or 8
// bytes, which is one of the columns.
func testPartitionColumns(t *testing.T, open Open) {
	b := setUp(t, open)
	n := 65001
	if Thin > 0 {
		n = 20001 // two tiles and more
	}
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64)} {
		key := b.random(typ, n, distribution{})
		values := [][]gpu.Scalar{key}
		cols := []gpu.Column{gpu.ColumnOf(typ, key)}
		for _, typ := range moved() {
			for _, coded := range codings(typ) {
				values = append(values, b.random(typ, n, distribution{nulls: 0.2}))
				cols = append(cols, column(typ, values[len(values)-1], coded))
			}
		}
		cols = b.up(cols...)
		for _, only := range []int{1, 2, len(cols)} {
			for _, digit := range []gpu.Digit{{Shift: 24, Bits: 8}, {Shift: 5, Bits: 3}, {Shift: 13, Bits: 9},
				{Shift: 7, Bits: 11}, {Shift: 22, Bits: 10, Factor: 0x9e3779b97f4a7c15}} {
				out, ends, err := b.q.Partition(b.l, cols[:only], cols[0], digit)
				require.NoError(t, err)
				offsets := b.offsets(ends)
				var order []int
				parts := make([][]int, 1<<digit.Bits)
				for r, k := range key {
					p := k.Int.Lo * max(digit.Factor, 1)
					if typ.Width() == 4 {
						p &= math.MaxUint32
					}
					p = p >> digit.Shift & (1<<digit.Bits - 1)
					parts[p] = append(parts[p], r)
				}
				for p, rows := range parts {
					require.Equal(t, len(order), offsets[p])
					order = append(order, rows...)
				}
				for c, got := range out {
					want := make([]gpu.Scalar, n)
					for i, r := range order {
						want[i] = values[c][r]
					}
					requireSame(t, want, b.down(got), cols[c].Type, digit)
				}
				gpu.ReleaseColumns(out)
			}
		}
	}
	for _, digit := range []gpu.Digit{{Bits: 17}, {Shift: 30, Bits: 4}} {
		_, _, err := b.q.Partition(b.l, nil, b.ids([]int32{1, 2}), digit)
		require.ErrorContains(t, err, "want at most 16 that the column has")
	}
}

// testPartitionUnordered partitions columns by keys of every kind of skew, among them keys in runs.
// Each row is in its partition once, in any order, and its columns move together.
func testPartitionUnordered(t *testing.T, open Open) {
	b := setUp(t, open)
	int32s, longs, bools, shorts, huge := gpu.Of(gpu.Int32), gpu.Of(gpu.Int64), gpu.Of(gpu.Bool), gpu.Of(gpu.Int16),
		gpu.Of(gpu.HugeInt)
	for _, typ := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Uint64)} {
		for _, n := range upTo(16000, []int{0, 1, 100, 16000, 1 << 18}) {
			columns := [][]gpu.Type{{}, {int32s}, {longs}, {bools, shorts}, {huge, int32s, longs}, {gpu.Of(gpu.String)}}
			digits := []gpu.Digit{{Shift: 24, Bits: 8, Factor: 0x9e3779b97f4a7c15},
				{Shift: 5, Bits: 3, Factor: 0x9e3779b97f4a7c15}, {}, {Bits: 1}, {Shift: 20, Bits: 8},
				{Shift: 7, Bits: 11}}
			if n > 16000 { // to check a row takes longer than to move it
				columns, digits = columns[:1],
					append(digits[:2], gpu.Digit{Shift: 22, Bits: 9, Factor: 0x9e3779b97f4a7c15})
			}
			for _, d := range []distribution{{}, {distinct: 1}, {distinct: 2}, {distinct: 3000, zipf: true},
				{distinct: 5}} {
				key := b.random(typ, n, d)
				if d.distinct == 5 {
					slices.SortFunc(key, func(a, b gpu.Scalar) int { return cmp.Compare(a.Int.Lo, b.Int.Lo) })
				}
				row := make([]gpu.Scalar, n)
				for i := range row {
					row[i] = gpu.IntScalar(int32s, int64(i))
				}
				for _, more := range columns {
					nulls := 0.0
					if len(more) > 1 {
						nulls = 0.2
					}
					values := [][]gpu.Scalar{key, row}
					cols := []gpu.Column{gpu.ColumnOf(typ, key), gpu.ColumnOf(int32s, row)}
					for _, typ := range more {
						values = append(values, b.random(typ, n, distribution{distinct: 100, nulls: nulls}))
						cols = append(cols, gpu.ColumnOf(typ, values[len(values)-1]))
					}
					var up []gpu.Column
					for _, digit := range digits {
						if !b.takes() {
							continue
						}
						if up == nil {
							up = b.up(cols...)
						}
						out, offsets, ends, err := b.q.PartitionUnordered(b.l, up, up[0], digit)
						require.NoError(t, err)
						b.checkUnordered(values, digit, out, offsets, ends)
					}
				}
			}
		}
	}
}

// checkUnordered checks columns that were partitioned by the first of some, of which the second has
// the numbers of rows, and releases them.
func (b *bench) checkUnordered(values [][]gpu.Scalar, digit gpu.Digit, out []gpu.Column, offsets, ends gpu.Column) {
	t, n, typ := b.t, len(values[0]), out[0].Type
	t.Helper()
	from, slack := b.offsets(offsets), ends.Len > 0
	require.Len(t, from, 1<<digit.Bits+1)
	to := from[1:]
	if slack {
		to = b.offsets(ends)
		require.Len(t, to, 1<<digit.Bits)
	}
	// Rows outside of the partitions are unspecified, so only those of the partitions are compared.
	var places []int32
	part := make([]int, 0, n)
	for p := range to {
		if from[p] > to[p] || to[p] > from[p+1] {
			require.Failf(t, "partitions overlap", "partition %d is [%d, %d), the next begins at %d", p, from[p], to[p],
				from[p+1])
		}
		for r := from[p]; r < to[p]; r++ {
			places, part = append(places, int32(r)), append(part, p)
		}
	}
	require.Len(t, places, n)
	got, err := b.q.Gather(b.l, out, b.ids(places), false)
	require.NoError(t, err)
	gpu.ReleaseColumns(out)
	rows := b.ints(got[1])
	seen := make([]bool, n)
	for i, r := range rows {
		if seen[r] {
			require.Failf(t, "a row comes twice", "row %d", r)
		}
		seen[r] = true
		k := values[0][r].Int.Lo * max(digit.Factor, 1)
		if typ.Width() == 4 {
			k &= math.MaxUint32
		}
		if want := int(k >> digit.Shift & (1<<digit.Bits - 1)); want != part[i] {
			require.Failf(t, "wrong partition", "row %d is in partition %d, want %d", r, part[i], want)
		}
	}
	for c := range got {
		want := make([]gpu.Scalar, n)
		for i, r := range rows {
			want[i] = values[c][r]
		}
		requireSame(t, want, b.down(got[c]), got[c].Type, digit)
	}
	gpu.ReleaseColumns(got)
}

func testSort(t *testing.T, open Open) {
	sizes := upTo(3000, []int{0, 1, 65, 3000, 20000})
	largest := sizes[len(sizes)-1]
	for _, typ := range types {
		for _, coded := range codings(typ) {
			t.Run(fmt.Sprint(typ, " coded=", coded), func(t *testing.T) {
				b := setUp(t, open)
				for _, d := range distributions {
					for _, n := range b.sizes() {
						for flags := range 4 {
							if n == largest && flags != 0 || !b.takes() {
								continue
							}
							b.checkSort([]gpu.Type{typ}, [][]gpu.Scalar{b.random(typ, n, d)}, []bool{coded},
								[]int{flags})
						}
					}
				}
			})
		}
	}
	t.Run("several keys", func(t *testing.T) {
		b := setUp(t, open)
		for i := range 40 {
			if !Takes(min(Thin, 4), i) {
				continue
			}
			n := b.rnd.IntN(3000)
			var keyTypes []gpu.Type
			var keys [][]gpu.Scalar
			var coded []bool
			var flags []int
			for range 2 + b.rnd.IntN(4) {
				typ := types[b.rnd.IntN(len(types))]
				d := distributions[b.rnd.IntN(len(distributions))]
				keyTypes = append(keyTypes, typ)
				keys = append(keys, b.random(typ, n, d))
				coded = append(coded, typ.IsVar() && b.rnd.IntN(2) == 0)
				flags = append(flags, b.rnd.IntN(4))
			}
			b.checkSort(keyTypes, keys, coded, flags)
		}
	})
	// Long strings that are equal, or differ after a common prefix.
	t.Run("long texts", func(t *testing.T) {
		b := setUp(t, open)
		text, i := gpu.Of(gpu.String), 0
		for _, length := range []int{56, 63, 64, 65, 72, 700} {
			for _, coded := range []bool{false, true} {
				for _, ends := range []int{1, 3, 300} { // 1: the rounds find no difference
					if i++; !Takes(min(Thin, 9), i) {
						continue
					}
					values := make([]gpu.Scalar, 700)
					for i := range values {
						values[i] = gpu.StringScalar(strings.Repeat("x", length) + fmt.Sprint(b.rnd.IntN(ends)))
						if ends > 1 {
							switch b.rnd.IntN(10) {
							case 0:
								values[i] = gpu.Null(text)
							case 1:
								values[i].Str = values[i].Str[:b.rnd.IntN(length)]
							case 2:
								values[i].Str = "y" + values[i].Str
							}
						}
					}
					number := b.random(gpu.Of(gpu.Int8), len(values), distribution{distinct: 3})
					b.checkSort([]gpu.Type{text, number[0].Type}, [][]gpu.Scalar{values, number}, []bool{coded, false},
						[]int{b.rnd.IntN(4), 0})
				}
			}
		}
	})
	// The bits of keys of 8 bytes begin anywhere in the words that are sorted.
	t.Run("keys of any width", func(t *testing.T) {
		b := setUp(t, open)
		i64 := gpu.Of(gpu.Int64)
		for _, width := range []uint{1, 20, 33, 50, 52, 54, 55, 63} {
			keys := [][]gpu.Scalar{b.random(i64, 300, distribution{}), nil, b.random(i64, 300, distribution{})}
			for range 300 {
				keys[1] = append(keys[1], gpu.IntScalar(i64, b.rnd.Int64N(1<<width-1)))
			}
			b.checkSort([]gpu.Type{i64, i64}, keys[:2], []bool{false, false}, []int{0, 1})
			b.checkSort([]gpu.Type{i64, i64}, keys[1:], []bool{false, false}, []int{1, 0})
		}
	})
}

// compareRows compares two rows by keys. Flags are 1 for descending plus 2 for nulls
// first.
func compareRows(keys [][]gpu.Scalar, flags []int, i, j int) int {
	for k, values := range keys {
		x, y := values[i], values[j]
		if !x.Valid || !y.Valid {
			if x.Valid == y.Valid {
				continue
			}
			if x.Valid == (flags[k]&2 == 0) {
				return -1
			}
			return 1
		}
		if c := x.Compare(y); c != 0 {
			if flags[k]&1 != 0 {
				return -c
			}
			return c
		}
	}
	return 0
}

// checkSort sorts by keys and compares with a stable comparison sort. Flags are 1 for
// descending plus 2 for nulls first.
func (b *bench) checkSort(types []gpu.Type, keys [][]gpu.Scalar, coded []bool, flags []int) {
	b.t.Helper()
	n := len(keys[0])
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	sort.SliceStable(want, func(i, j int) bool { return compareRows(keys, flags, want[i], want[j]) < 0 })
	var in []gpu.SortKey
	for k, values := range keys {
		in = append(in, gpu.SortKey{Column: b.up(column(types[k], values, coded[k]))[0], Descending: flags[k]&1 != 0,
			NullsFirst: flags[k]&2 != 0})
	}
	for _, sort := range []func(*gpu.Lease, []gpu.SortKey) (gpu.Column, error){b.q.Sort, experimental(b.q).MergeSort} {
		ids, err := sort(b.l, in)
		require.NoError(b.t, err)
		require.Equal(b.t, want, b.ints(ids))
		ids.Release()
	}
}
