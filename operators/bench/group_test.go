package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/operators/groupby"
)

// TestEveryGroupAlgorithmIsMeasured groups by every algorithm, in one stride and in several. The
// benchmark requires that all give the same groups.
func TestEveryGroupAlgorithmIsMeasured(t *testing.T) {
	for name, open := range map[string]func(*testing.T) gpu.Device{"host": openHost, "gpu": openGPU} {
		t.Run(name, func(t *testing.T) {
			d := open(t)
			strides, cases, results := []int{0, 3000},
				[]string{"acceptance: groups: 2^12", "max: max, groups: 2^4",
					"widths: bytes of keys and values, 2^12 groups: 8/8", "2^12 groups by Zipf: 1.5",
					"forms of columns, 2^12 groups: "}, 10
			if name == "gpu" && gputest.ThinOr(t, 9) > 1 {
				strides, cases, results = strides[1:], cases[2:4], 2
			}
			for _, strideRows := range strides {
				seen := map[string]int{}
				opt := Options{Rows: 8000, Runs: 1, Cases: cases, Algorithms: []string{"all"}, StrideRows: strideRows}
				err := Run(context.Background(), d, "groupby", opt, func(r Result) {
					require.Empty(t, r.Group.Error, r.Case)
					require.Positive(t, r.Time)
					require.LessOrEqual(t, r.Group.Groups, int64(4096))
					seen[r.Group.Algorithm]++
				})
				require.NoError(t, err)
				require.Len(t, seen, 1+len(groupby.AlgorithmsOn(d.Properties())))
				for algorithm, n := range seen {
					require.Equal(t, results, n, algorithm)
				}
			}
		})
	}
}

// TestAWrongGroupIsAnError compares a result with one that is not right.
func TestAWrongGroupIsAnError(t *testing.T) {
	b := opened(t, openHost(t))
	g := &groupBench{bench: b}
	defer g.release()
	w := grouping{rows: 100, groups: 7, columns: 1, key: 4, value: 4, kind: gpu.Sum}
	require.NoError(t, g.draw(w))
	var err error
	g.want, err = g.check("hgb-g", true)
	require.NoError(t, err)
	r := Result{Group: &Group{}}
	require.NoError(t, g.measure("sgb-tr", &r))
	require.EqualValues(t, 7, r.Group.Groups)
	g.want = "another"
	require.ErrorIs(t, g.measure("sgb-tr", &r), ErrWrong)
}

func TestChoiceOfGroupings(t *testing.T) {
	count := func(names ...string) int {
		t.Helper()
		w, err := chosenGroupings(names, fullGroups)
		require.NoError(t, err)
		return len(w)
	}
	require.Equal(t, 11, count())
	require.Equal(t, 15, count("zipf"))
	require.Equal(t, len(groupings()), count("all"))
	require.ErrorContains(t, Options{Cases: []string{"zip code"}}.Check("groupby"),
		`no case of the benchmark groupby is named "zip code"`)
	require.ErrorContains(t, Options{Algorithms: []string{"npj"}}.Check("groupby"),
		`no group-by algorithm is named "npj"`)
	require.NoError(t, Options{}.Check("groupby"))
	for _, w := range groupings() {
		require.LessOrEqual(t, w.groups, w.rows, fmt.Sprint(w))
	}
}

// TestGroupsOfAStreamAreMeasured groups strides that come from page-locked memory.
func TestGroupsOfAStreamAreMeasured(t *testing.T) {
	opt := Options{Rows: 9000, Runs: 1, Cases: []string{"from page-locked memory, 3 columns", "random keys: 256"},
		StrideRows: 2000}
	at := map[string]int64{}
	require.NoError(t, Run(context.Background(), openGPU(t), "groupby", opt, func(r Result) {
		require.Empty(t, r.Group.Error, r.Case)
		require.Equal(t, r.Wall, r.Time)
		at[r.Group.At] = r.Group.Groups
	}))
	require.EqualValues(t, 1, at["1"])
	require.EqualValues(t, 256, at["256"])
	require.ErrorIs(t, Run(context.Background(), openHost(t), "groupby", opt, func(Result) {}), ErrNoLink)
}
