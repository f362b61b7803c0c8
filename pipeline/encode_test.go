package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/pipeline/internal/physical"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// encodedPlans returns the stages of testdata/plans, encoded, by the names of the files.
func encodedPlans(t testing.TB) map[string][]byte {
	files, err := filepath.Glob("testdata/plans/*.yaml")
	require.NoError(t, err)
	out := map[string][]byte{}
	for _, file := range files {
		p, err := newPlan(t.Context(), planJob(t, file), planTables(), nil)
		if err != nil {
			continue // a plan of faults
		}
		out[strings.TrimSuffix(filepath.Base(file), ".yaml")], err = json.Marshal(p.stages)
		require.NoError(t, err)
	}
	return out
}

// TestEncodedPlans decodes plans, which are the same then, and compares some with the files of an earlier version: a
// change of them needs another planVersion.
func TestEncodedPlans(t *testing.T) {
	plans := encodedPlans(t)
	require.Greater(t, len(plans), 25)
	for name, data := range plans {
		var p physical.Plan
		require.NoError(t, json.Unmarshal(data, &p), name)
		again, err := json.Marshal(&p)
		require.NoError(t, err)
		require.JSONEq(t, string(data), string(again), name)
	}
	golden, err := filepath.Glob("testdata/encoded/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, golden)
	for _, file := range golden {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		require.Contains(t, plans, name)
		if *update {
			require.NoError(t, os.WriteFile(file, append(plans[name], '\n'), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(plans[name]), "%s: set another planVersion", name)
	}
}

// TestDecodedPlansAreRefused has data that are no plan, and files that are not those of the plan.
func TestDecodedPlansAreRefused(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.parquet"), filepath.Join(dir, "out.parquet")
	_, err := New("in").ReadTable("t", thousand(t)).Write(in, sinkparquet.Options{}).Run(t.Context(),
		RunOptions{Use: Host})
	require.NoError(t, err)
	plan := func(b *Builder) []byte {
		p, err := b.Plan()
		require.NoError(t, err)
		defer p.Close()
		data, err := p.Encode()
		require.NoError(t, err)
		return data
	}
	data := plan(New("job").Read("t", in).Filter("k < 10").Group([]string{"g"}, "sum(k) as s").Write(out,
		sinkparquet.Options{}))
	p, err := DecodePlan(data)
	require.NoError(t, err)
	require.Equal(t, []string{"g", "s"}, p.Schema().Names())
	_, err = p.Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	require.NoError(t, p.Close())

	for change, want := range map[string]string{
		`"version":3 "version":1`:                       "it has version 1, and this program reads version 3",
		`"Inputs":[0],"Filters" "Inputs":[1],"Filters"`: "stage 1 reads stage 1, which is not before it",
		`"Does":"filter" "Does":"sieve"`:                `it does "sieve"`,
		`"Keep":[0,1] "Keep":[0,9]`:                     "its input does not have its columns",
		`"Options":{} "Options":{"compression":"best"}`: "compression",
		`"Source":"t" "Source":"u"`:                     `there is no table "u"`,
		`}],"Outputs":[2] }],"Outputs":[99]`:            "a program returns register 99",
		`"Root":3 "Root":9`:                             "output 0 has no last stage of its own",
	} {
		from, to, _ := strings.Cut(change, " ")
		require.Contains(t, string(data), from)
		_, err := DecodePlan([]byte(strings.Replace(string(data), from, to, 1)))
		require.ErrorContains(t, err, want, change)
	}
	for _, wrong := range []string{"", "{}", "[]", `{"version":1}`} {
		_, err := DecodePlan([]byte(wrong))
		require.ErrorContains(t, err, "decode the plan: ", wrong)
	}
	require.NoError(t, os.Chtimes(in, time.Time{}, time.Now().Add(time.Hour)))
	_, err = DecodePlan(data)
	require.ErrorIs(t, err, source.ErrChanged)
	require.NoError(t, os.Remove(in))
	_, err = DecodePlan(data)
	require.ErrorIs(t, err, os.ErrNotExist)

	own, err := New("own").ReadTable("t", thousand(t)).Write(out, sinkparquet.Options{}).Plan()
	require.NoError(t, err)
	_, err = own.Encode()
	require.ErrorContains(t, err, `the source "t" is no Parquet file`)
	own, err = New("own").ReadTable("t", thousand(t)).WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	_, err = own.Encode()
	require.ErrorContains(t, err, "its output is no Parquet file")
}

// TestChangedPlansAreRefusedOrFit changes each kind of value of encoded plans, and leaves it out.
func TestChangedPlansAreRefusedOrFit(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	t.Parallel()
	changed := map[string]bool{}         // by the path without positions
	thin := min(gputest.ThinOr(t, 5), 5) // 16 changes, of which each path has others
	for _, data := range encodedPlans(t) {
		eachChange(t, data, changed, thin, func(path string, data []byte) {
			require.NotPanics(t, func() {
				var p physical.Plan
				if json.Unmarshal(data, &p) == nil {
					require.NotEmpty(t, p.Outputs[0].Root.Name())
				}
			}, "%s: %s", path, data)
		})
	}
	require.Greater(t, len(changed), 100)
}

// eachChange calls a function with JSON in which one value is another one, or left out: each kind of value, by its path
// without positions, unless it is among those that were changed before.
func eachChange(t testing.TB, data []byte, changed map[string]bool, thin int, f func(path string, data []byte)) {
	var all any
	require.NoError(t, json.Unmarshal(data, &all))
	try := func(path string) {
		data, err := json.Marshal(all)
		require.NoError(t, err)
		f(path, data)
	}
	tried := 0
	var visit func(path string, v any, set func(any))
	visit = func(path string, v any, set func(any)) {
		if !changed[path] {
			changed[path] = true
			for _, to := range []any{nil, -1, 0, 1, 99, 1 << 40, 1.5, "", "x", false, true, []any{}, []any{nil},
				[]any{0}, []any{99}, map[string]any{}} {
				if tried++; gputest.Takes(thin, tried) {
					set(to)
					try(path)
				}
			}
			set(v)
		}
		switch v := v.(type) {
		case map[string]any:
			for name, in := range v {
				at := path + "." + name
				if !changed[at] {
					delete(v, name)
					try(at)
					v[name] = in
				}
				visit(at, in, func(to any) { v[name] = to })
			}
		case []any:
			for i, in := range v {
				visit(path+"[]", in, func(to any) { v[i] = to })
			}
		}
	}
	visit("", all, func(to any) { all = to })
}

// Whatever the data, decoding ends with a plan that fits together or an error.
func FuzzDecodedStages(f *testing.F) {
	for _, data := range encodedPlans(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var p physical.Plan
		if json.Unmarshal(data, &p) == nil {
			require.NotEmpty(t, p.Outputs[0].Root.Name())
		}
	})
}
