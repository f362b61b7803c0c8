package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// sampledTable writes a Parquet file of 60,000 rows in row groups of 10,000: flag is 'R' in
// a quarter of the rows, id unique, low has 100 values, many about 5,000, and 4 neighbours
// have one run.
func sampledTable(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "t.parquet")
	var rows []string
	for i := range 60000 {
		h := uint32(i+1) * 2654435761 >> 8
		rows = append(rows, fmt.Sprintf(`{"flag": "%c", "id": "k%d", "low": "l%d", "many": "m%d", "run": "r%d"}`,
			"RABC"[h%4], i, h%100, h%5000, i/4))
	}
	var fields []arrow.Field
	for _, name := range []string{"flag", "id", "low", "many", "run"} {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String})
	}
	table := record(t, fields, "["+strings.Join(rows, ",")+"]")
	_, err := New("write").ReadTable("t", table).Select("*").Write(path,
		sinkparquet.Options{RowGroupRows: 10000}).Run(t.Context(), RunOptions{Use: Host})
	require.NoError(t, err)
	return path
}

// TestEstimatesComeFromSamplesWhereStatisticsDoNotTell has conditions and keys on text,
// whose statistics tell neither how many rows are kept nor how many values there are.
func TestEstimatesComeFromSamplesWhereStatisticsDoNotTell(t *testing.T) {
	path := sampledTable(t)
	root := func(b *Builder) *StageExplained {
		p, err := b.WriteTo(&Collector{}).Plan()
		require.NoError(t, err)
		defer p.Close()
		return p.Explain(Host).Root
	}
	for condition, want := range map[string]float64{
		"flag = 'R'":                        15000,
		"flag like '%R%'":                   15000,
		"flag <> 'R' and low like 'l9%'":    4950, // 9 and 90 to 99
		"length(low) = 2":                   6000,
		"id = 'nobody'":                     4, // less than a row of the sample
		"flag || 'x' = 'Rx' and id is null": 0, // the column has no nulls
	} {
		s := root(New("f").Read("t", path).Filter(condition))
		assert.InDelta(t, want, s.Rows, 0.15*want, condition)
		if strings.Contains(condition, "null") {
			continue
		}
		assert.Contains(t, strings.Join(s.Detail, "\n"), "estimated from 8,192 sampled rows", condition)
	}
	for key, want := range map[string]float64{"id": 60000, "low": 60000 * 600, "many": 60000 * 12, "run": 60000 * 4} {
		s := root(New("j").Read("t", path).JoinWith(Join{With: "t", As: "u",
			On: []string{fmt.Sprintf("t.%s = u.%s", key, key)}}).Select("t.flag"))
		assert.InDelta(t, want, s.Rows, 0.25*want, key)
	}
}

// TestASampleThatFailsChangesNoPlan has a condition that fails on rows of the sample.
func TestASampleThatFailsChangesNoPlan(t *testing.T) {
	path := sampledTable(t)
	p, err := New("f").Read("t", path).Filter("length(low) // (length(low) - 2) = 1").WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	s := p.Explain(Host).Root
	assert.NotContains(t, strings.Join(s.Detail, "\n"), "sampled")
	_, err = p.Run(t.Context(), RunOptions{Use: Host})
	require.ErrorContains(t, err, "is divided by zero")
}

// TestArrowTablesAreSampled has an Arrow table of two records, which has no statistics.
func TestArrowTablesAreSampled(t *testing.T) {
	rows := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"k": %d}`, i%10))
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	fields := []arrow.Field{{Name: "k", Type: arrow.PrimitiveTypes.Int64}}
	var records []arrow.Record
	for _, n := range []int{5, 2000} {
		r, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(fields, nil),
			strings.NewReader(rows(n)))
		require.NoError(t, err)
		defer r.Release()
		records = append(records, r)
	}
	table, err := ArrowTable(records[0].Schema(), records...)
	require.NoError(t, err)
	p, err := New("f").ReadTable("t", table).Filter("k % 5 = 3").WriteTo(&Collector{}).Plan()
	require.NoError(t, err)
	defer p.Close()
	s := p.Explain(Host).Root
	assert.InDelta(t, 401, s.Rows, 1)
	assert.Contains(t, s.Detail, "estimated from 2,000 sampled rows")
}

// unsampledTable has statistics, and rows that cannot be read.
type unsampledTable struct{ *planTable }

func (unsampledTable) Sample(ctx context.Context, _ *gpu.Lease, _ []int, _ int) (*gpu.Stride, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no page: %w", source.ErrData)
}

// TestAPlanSaysWhyATableIsNotSampled has a condition that statistics do not answer.
func TestAPlanSaysWhyATableIsNotSampled(t *testing.T) {
	j := New("f").ReadTable("facts", nil).Filter("note like '%x'").Job()
	plan := func(ctx context.Context) (*Plan, error) {
		return newPlan(ctx, j, map[string]source.Table{"facts": unsampledTable{planTables()["facts"].(*planTable)}},
			&Collector{})
	}
	p, err := plan(t.Context())
	require.NoError(t, err)
	defer p.Close()
	require.Equal(t, "fake: no page: "+source.ErrData.Error(), p.Explain(Host).Unsampled)
	require.Contains(t, p.Explain(Host).String(),
		"\n    estimates are guesses, without a sample of a table: fake: no page")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = plan(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
