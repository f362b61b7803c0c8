package gputest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// pairing is the expected result of a matcher: pairs of probe and build rows, in order.
type pairing struct {
	probes, builds int // rows of the sides
	pairs          [][2]int
	ordered        bool // the matcher guarantees the order
}

// most returns the most pairs of one probe row.
func (p *pairing) most() int {
	count, most := make([]int, p.probes), 0
	for _, pair := range p.pairs {
		count[pair[0]]++
		most = max(most, count[pair[0]])
	}
	return most
}

// matched returns which probe rows have a match.
func (p *pairing) matched() []gpu.Scalar {
	out := make([]gpu.Scalar, p.probes)
	for i := range out {
		out[i] = gpu.BoolScalar(false)
	}
	for _, pair := range p.pairs {
		out[pair[0]] = gpu.BoolScalar(true)
	}
	return out
}

// checkMatcher takes the pairs of new matchers one at a time, some at a time and all at once, by
// Next and Join alternately, and gets the matched rows in between.
func (b *bench) checkMatcher(make func() (gpu.Matcher, error), want pairing, what string) {
	t := b.t
	t.Helper()
	rows := func(n int) []gpu.Column {
		ids := []int32{}
		for i := range n {
			ids = append(ids, int32(i))
		}
		return []gpu.Column{b.ids(ids)}
	}
	var probe, build []gpu.Column
	most := want.most()
	for _, limit := range []int{1, 7 + want.probes/8, math.MaxInt} {
		if !b.takes() {
			continue
		}
		if probe == nil {
			probe, build = rows(want.probes), rows(want.builds)
		}
		what := fmt.Sprintf("%s, limit %d", what, limit)
		m, err := make()
		require.NoError(t, err)
		checkMatched := func() {
			t.Helper()
			c, err := m.Matched(b.q, b.l)
			require.NoError(t, err)
			require.Nil(t, c.Valid)
			requireSame(t, want.matched(), b.down(c), "matched rows, "+what)
			c.Release()
		}
		got, calls, more := [][2]int{}, 40, true
		if Thin > 0 {
			calls = 8
		}
		for call := 0; more; call++ {
			if call == calls {
				limit = math.MaxInt // the rest in one call
			}
			if call == 1 {
				checkMatched()
			}
			var cols []gpu.Column
			if call%2 == 0 {
				var p, m2 gpu.Column
				p, m2, more, err = m.Next(b.q, b.l, limit)
				cols = []gpu.Column{p, m2}
			} else {
				var n int
				cols, n, more, err = m.Join(b.q, b.l, probe, build, limit)
				if err == nil {
					require.Len(t, cols, 2)
					require.Equal(t, cols[0].Len, n)
				}
			}
			require.NoError(t, err)
			for _, c := range cols {
				require.True(t, c.Type.Kind == gpu.Int32 && c.Valid == nil && c.Dict == nil, what)
			}
			p, m2 := b.int32s(cols[0]), b.int32s(cols[1])
			require.Len(t, m2, len(p), what)
			require.True(t, len(p) > 0 || !more, "a call makes progress, %s", what)
			if limit < math.MaxInt {
				least := limit
				if !want.ordered && b.dev.Properties().PairOutputs {
					least = max(limit, 1<<17)
				}
				require.LessOrEqual(t, len(p), least+most, what)
			}
			for i := range p {
				got = append(got, [2]int{int(p[i]), int(m2[i])})
			}
		}
		p, m2, more, err := m.Next(b.q, b.l, limit)
		require.NoError(t, err)
		require.True(t, p.Len == 0 && m2.Len == 0 && !more, "no pairs behind the last, %s", what)
		p.Release()
		m2.Release()
		checkMatched()
		m.Release()
		if !want.ordered {
			slices.SortFunc(got, func(x, y [2]int) int { return cmp.Or(x[0]-y[0], x[1]-y[1]) })
		}
		requirePairs(t, want.pairs, got, what)
	}
}

// matcherMemory has the cases of a matcher. prepare makes what the matcher needs, and
// returns how to make the matcher and how to release what it needs.
func matcherMemory(name string,
	prepare func(b *bench) (match func() (gpu.Matcher, error), finish func())) []memoryCase {
	rest := func(b *bench, m gpu.Matcher) func() any {
		return func() any {
			p, build, more, err := m.Next(b.q, b.l, math.MaxInt)
			require.NoError(b.t, err)
			require.False(b.t, more)
			all, err := b.pairsOf(p, build, nil)
			require.NoError(b.t, err)
			defer all.drop()
			return all.rest()
		}
	}
	out := []memoryCase{{name: name, start: func(b *bench) trial {
		match, finish := prepare(b)
		return trial{finish: finish, call: func() (made, error) {
			m, err := match()
			if err != nil {
				if m != nil {
					return made{rest: is(m)}, err
				}
				return made{}, err
			}
			return made{rest: rest(b, m), drop: m.Release}, nil
		}}
	}}}
	for what, call := range map[string]func(b *bench, m gpu.Matcher) (made, error){
		"next": func(b *bench, m gpu.Matcher) (made, error) {
			p, build, _, err := m.Next(b.q, b.l, 100)
			if err != nil {
				return made{cols: nonEmpty(p, build)}, err
			}
			return b.pairsOf(p, build, nil)
		},
		"join": func(b *bench, m gpu.Matcher) (made, error) {
			cols, _, _, err := m.Join(b.q, b.l, pick(b.inputs(), colNumber, colText), pick(b.inputs(), colID, colCoded),
				100)
			return of(cols, err)
		},
		"matched": func(b *bench, m gpu.Matcher) (made, error) { return one(m.Matched(b.q, b.l)) },
	} {
		out = append(out, memoryCase{name: name + ", " + what, start: func(b *bench) trial {
			match, finish := prepare(b)
			m, err := match()
			require.NoError(b.t, err)
			return trial{
				call: func() (made, error) {
					out, err := call(b, m)
					if err != nil || out.rest == nil {
						return out, err
					}
					first, others := out.rest, rest(b, m)
					out.rest = func() any { return fmt.Sprint(first(), "then", others()) }
					return out, nil
				},
				finish: func() { m.Release(); finish() },
			}
		}})
	}
	return out
}

// requireRowsOfAll requires that the first pairs of a matcher, n at a time, are each those of
// one probe row with all n build rows.
func (b *bench) requireRowsOfAll(m gpu.Matcher, n int) {
	t := b.t
	t.Helper()
	for i := range 3 {
		p, build, more, err := m.Next(b.q, b.l, n)
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, n, p.Len)
		rows := b.int32s(p)
		require.Equal(t, []int32{int32(i), int32(i)}, []int32{slices.Min(rows), slices.Max(rows)})
		require.True(t, slices.IsSorted(b.int32s(build)))
	}
}
