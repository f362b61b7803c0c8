package exprtest

import (
	"bufio"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

//go:embed testdata/duckdb.py
var script string

// DuckDB is a process that evaluates SQL.
type DuckDB struct {
	t   testing.TB
	in  *json.Encoder
	out *json.Decoder
}

// Question is a query for DuckDB.
type Question struct {
	SQL      string `json:"sql"`
	Optimize bool   `json:"optimize"`
}

// Answer is the result of a query: its types and rows, or the error and the name of its
// class. A value is nil for null, otherwise in the form of Value.
type Answer struct {
	Types []string    `json:"types"`
	Rows  [][]*string `json:"rows"`
	Error string      `json:"error"`
	Class string      `json:"class"`
}

// StartDuckDB starts the interpreter that GSTREAM_PYTHON names. It must have duckdb and
// pyarrow. Without the variable the test is skipped. The process ends with the test.
func StartDuckDB(t testing.TB) *DuckDB {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON does not name a Python with duckdb and pyarrow")
	}
	path := filepath.Join(t.TempDir(), "answers.py") // not duckdb.py, which would be imported instead of the module
	require.NoError(t, os.WriteFile(path, []byte(script), 0o666))
	cmd := exec.Command(python, path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		_, _ = io.Copy(io.Discard, out)
		require.NoError(t, cmd.Wait())
	})
	return &DuckDB{t, json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
}

// Run runs statements that make the tables of all later questions. None may fail.
func (d *DuckDB) Run(sql ...string) {
	d.t.Helper()
	d.request(map[string]any{"run": sql})
}

// Execute executes statements, which may fail. Their answers have no rows.
func (d *DuckDB) Execute(sql ...string) []Answer {
	d.t.Helper()
	return d.request(map[string]any{"execute": sql})
}

// Reset makes an empty database.
func (d *DuckDB) Reset() {
	d.t.Helper()
	d.request(map[string]any{"reset": true})
}

// Ask evaluates queries, each alone.
func (d *DuckDB) Ask(questions ...Question) []Answer {
	d.t.Helper()
	answers := d.request(map[string]any{"ask": questions})
	require.Len(d.t, answers, len(questions))
	return answers
}

func (d *DuckDB) request(r map[string]any) []Answer {
	d.t.Helper()
	require.NoError(d.t, d.in.Encode(r), "DuckDB's process has ended")
	var answers []Answer
	require.NoError(d.t, d.out.Decode(&answers), "DuckDB's process has ended")
	return answers
}

// Value returns a value in the form of an Answer.
func Value(s gpu.Scalar) *string {
	if !s.Valid {
		return nil
	}
	var v string
	switch {
	case s.Type.Kind == gpu.Bool:
		v = fmt.Sprint(s.Int.Lo != 0)
	case s.Type.IsFloat() && math.IsNaN(s.Float):
		v = "nan"
	case s.Type.IsFloat():
		v = fmt.Sprintf("%016x", math.Float64bits(s.Float))
	case s.Type.Kind == gpu.String:
		v = s.Str
	case s.Type.IsNested():
		v = s.String() // DuckDB's text
	case s.Type.Kind == gpu.Binary:
		v = hex.EncodeToString([]byte(s.Str))
	default:
		v = s.Int.String()
	}
	return &v
}
