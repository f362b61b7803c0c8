package pipeline

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/cuda/cudatest"
	"github.com/gstream/gstream/operators/expr/exprtest"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// TestJSONIsAnnotatedAndTheReportNamesWhatTheCPUEvaluated runs functions of JSON on the CPU and on a GPU. DuckDB reads
// what they write.
func TestJSONIsAnnotatedAndTheReportNamesWhatTheCPUEvaluated(t *testing.T) {
	d := cudatest.Open(t, cuda.Options{Memory: 1 << 28})
	dir := t.TempDir()
	path := filepath.Join(dir, "annotated.parquet")
	writeAnnotated(t, path, 7)
	for use, opt := range map[string]RunOptions{Host: {Use: Host}, CUDA: {Device: d}} {
		out := filepath.Join(dir, use+".parquet")
		r, err := New("json").Read("t", path).Filter("(j -> 'a') > 1").
			Select("j -> 'a' AS value", "j ->> 'a' AS word", "CAST('[' || n || ', 1]' AS INTEGER[]) AS list").
			Write(out, sinkparquet.Options{}).Run(t.Context(), opt)
		require.NoError(t, err)
		var byCPU []string
		for _, s := range r.Stages {
			byCPU = append(byCPU, s.ByCPU...)
		}
		if use == Host {
			require.Empty(t, byCPU)
			require.NotContains(t, r.String(), "the CPU evaluated")
		} else {
			require.Contains(t, byCPU, "json_cast")
			require.Contains(t, byCPU, "json_extract_string")
			require.Contains(t, byCPU, "parse_nested")
			require.Contains(t, r.String(), ": the CPU evaluated json_")
		}
		answer := exprtest.StartDuckDB(t).Ask(exprtest.Question{SQL: "SELECT typeof(value), value::VARCHAR, word, " +
			"list[2]::VARCHAR FROM '" + out + "' ORDER BY word LIMIT 1"})[0]
		require.Empty(t, answer.Error)
		require.Equal(t, "JSON", *answer.Rows[0][0])
		require.Equal(t, "2", *answer.Rows[0][1])
		require.Equal(t, "2", *answer.Rows[0][2])
		require.Equal(t, "1", *answer.Rows[0][3])
	}
}
