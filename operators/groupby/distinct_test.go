package groupby

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
)

// buildTexts is a build side of a join: two texts for each row, with few distinct values. The codes of a
// stride are its row numbers, for both texts.
type buildTexts struct {
	names, colors *gpu.Dictionary
}

func (b buildTexts) stride(in *gpu.Schema, codes []int32, null func(row int) bool) *gpu.Stride {
	valid := make([]byte, gpu.BitmapBytes(len(codes)))
	for i := range codes {
		if !null(i) {
			valid[i/8] |= 1 << (i % 8)
		}
	}
	data := gpu.WrapBytes(gpu.BytesOf(codes))
	column := func(d *gpu.Dictionary) gpu.Column {
		return gpu.Column{Type: gpu.Of(gpu.String), Len: len(codes), Data: data, Dict: d}.Retain()
	}
	s := &gpu.Stride{Schema: in, Rows: len(codes), Cols: []gpu.Column{column(b.names), column(b.colors)}}
	s.Cols[1].Valid = gpu.WrapBytes(valid)
	return s
}

func newBuildTexts(rows, names, colors int) buildTexts {
	dict := func(prefix string, n int) *gpu.Dictionary {
		values := make([]gpu.Scalar, rows)
		for i := range values {
			values[i] = gpu.StringScalar(fmt.Sprint(prefix, i%n))
		}
		return &gpu.Dictionary{Values: gpu.ColumnOf(gpu.Of(gpu.String), values)}
	}
	return buildTexts{dict("name ", names), dict("color ", colors)}
}

// TestTextsOfABuildSideAreNumbered groups by texts of a build side whose rows come in turn, so that no stride
// repeats a key. All lanes know the number of build rows: they do not bypass their tables. All parts of the
// result have the same dictionaries of distinct values. Texts of another build side come in the end.
func TestTextsOfABuildSideAreNumbered(t *testing.T) {
	text, long := gpu.Of(gpu.String), gpu.Of(gpu.Int64)
	in := gpu.NewSchema(gpu.Field{Name: "name", Type: text}, gpu.Field{Name: "color", Type: text, Nullable: true})
	const buildRows, names, colors, strides, lanes = 1 << 17, 1 << 16, 7, 20, 2
	for _, others := range []int{0, 1} {
		op, err := New(Spec{In: in, Keys: []int{0, 1},
			Hint:       gpu.GroupHint{Rows: strides * buildRows, Most: buildRows + 1},
			Aggregates: []Aggregate{{Kind: gpu.CountAll, Input: -1, Output: long}},
			Out:        gpu.NewSchema(in.Fields[0], in.Fields[1], gpu.Field{Name: "n", Type: long})})
		require.NoError(t, err)
		dev, err := host.Open(host.Options{Threads: lanes})
		require.NoError(t, err)
		q, err := dev.NewQueue("test")
		require.NoError(t, err)
		l := dev.Budget().Lease("test")
		ctx := context.Background()
		task := operators.Task{Device: dev, Queue: q, Lease: l, StrideRows: buildRows, Lanes: lanes}
		want := map[string]int{}
		push := func(lane operators.Local, texts buildTexts, number int) {
			codes := make([]int32, buildRows)
			for i := range codes {
				codes[i] = int32((i + number) % texts.names.Values.Len)
			}
			null := func(i int) bool { return codes[i]%5 == 0 }
			for i := range codes {
				color := texts.colors.Values.ScalarAt(int(codes[i]))
				if null(i) {
					color = gpu.Null(text)
				}
				want[texts.names.Values.ScalarAt(int(codes[i])).String()+"/"+color.String()]++
			}
			require.NoError(t, lane.Push(ctx, number, texts.stride(in, codes, null)))
		}
		texts := newBuildTexts(buildRows, names, colors)
		for i := range lanes {
			lane, err := op.NewLocal(task)
			require.NoError(t, err)
			for n := range strides / lanes {
				push(lane, texts, i+lanes*n)
			}
			require.Zero(t, lane.(*local).bypassed, "the groups are at most the build rows")
			if i < others {
				push(lane, newBuildTexts(1000, 300, 2), strides+i)
			}
			require.NoError(t, lane.Combine(ctx))
			require.NoError(t, lane.Close())
		}
		require.NoError(t, op.Finalize(ctx, task))
		require.Greater(t, op.Parts(), 1)
		got := map[string]int{}
		dictionaries := map[*gpu.Dictionary]bool{}
		for part := range op.Parts() {
			require.NoError(t, op.Emit(ctx, task, part, func(s *gpu.Stride) error {
				for r := range s.Rows {
					key := s.Cols[0].ScalarAt(r).String() + "/" + s.Cols[1].ScalarAt(r).String()
					got[key] += int(s.Cols[2].ScalarAt(r).Int.Lo)
				}
				for _, c := range s.Cols[:2] {
					dictionaries[c.Dict] = true
				}
				s.Release()
				return nil
			}))
		}
		require.Equal(t, want, got)
		if others == 0 {
			require.Len(t, dictionaries, 2)
			for d := range dictionaries {
				require.True(t, d.Distinct)
				require.Contains(t, []int{names, colors}, d.Values.Len)
			}
		}
		require.NoError(t, op.Close())
		require.NoError(t, q.Close())
		require.NoError(t, l.Close(), "the operator releases everything")
		require.NoError(t, dev.Close())
	}
}
