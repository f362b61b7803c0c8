package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// arrowScript writes files of every type by PyArrow, with the argument write, and otherwise compares files.
const arrowScript = `
import datetime as dt, decimal, sys
import pyarrow as pa, pyarrow.ipc as ipc, pyarrow.parquet as pq

def load(path):
    with open(path, 'rb') as f:
        text = f.read()
    reader = ipc.open_file if text[:6] == b'ARROW1' else ipc.open_stream
    t = reader(pa.BufferReader(text)).read_all()
    t.validate(full=True)
    return t

def made(n):
    words = ['', 'a', 'grüße', 'longer than twelve bytes', 'x' * 40]
    def null(f, t):
        return pa.array([None if i % 7 == 3 else f(i * 31 % 97) for i in range(n)], type=t)
    day = dt.date(2020, 1, 1)
    return pa.table({
        'i8': null(lambda x: x - 50, pa.int8()), 'u64': null(lambda x: x * 2**50, pa.uint64()),
        'b': null(lambda x: x % 2 == 0, pa.bool_()), 'f32': null(lambda x: x / 4, pa.float32()),
        'd': null(lambda x: day + dt.timedelta(x), pa.date32()),
        'd64': null(lambda x: day + dt.timedelta(x), pa.date64()),
        't32': null(lambda x: x, pa.time32('s')), 't64': null(lambda x: x, pa.time64('us')),
        'ts': null(lambda x: x * 2**40, pa.timestamp('us')),
        'dec': null(lambda x: decimal.Decimal(x) / 100, pa.decimal128(20, 2)),
        's': null(lambda x: words[x % 5], pa.string()), 'ls': null(lambda x: words[x % 5], pa.large_string()),
        'sv': null(lambda x: words[x % 5], pa.string_view()),
        'bin': null(lambda x: words[x % 5].encode(), pa.binary()), 'fsb': null(lambda x: b'%04d' % x, pa.binary(4)),
        'dict': null(lambda x: words[x % 5], pa.string()).dictionary_encode(),
        'li': null(lambda x: list(range(x % 5)), pa.list_(pa.int32())),
        'lv': null(lambda x: list(range(x % 5)), pa.list_view(pa.int32())),
        'fsl': null(lambda x: [1.5, x], pa.list_(pa.float64(), 2)),
        'st': null(lambda x: {'a': x, 'b': words[x % 5]}, pa.struct([('a', pa.int64()), ('b', pa.string())])),
        'mp': null(lambda x: [(words[k], k) for k in range(x % 5)], pa.map_(pa.string(), pa.int64())),
        'ld': null(lambda x: [words[k] for k in range(x % 5)], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        'ree': pa.RunEndEncodedArray.from_arrays(pa.array(range(10, n + 1, 10), pa.int32()),
            pa.array([words[k % 5] for k in range(n // 10)])),
        'nul': pa.nulls(n)})

if sys.argv[1] == 'write':
    t = made(1000)
    for codec in (None, 'lz4', 'zstd'):
        o = ipc.IpcWriteOptions(compression=codec)
        with ipc.new_file('%s.arrow' % codec, t.schema, options=o) as w:
            w.write_table(t, max_chunksize=70)
        with ipc.new_stream('%s.arrows' % codec, t.schema, options=o) as w:
            w.write_table(t, max_chunksize=170)
else:
    want = made(1000)
    for path in sys.argv[2:]:
        got = load(path)
        assert got.num_rows == want.num_rows and got.column_names == want.column_names, (path, got.num_rows)
        for c in want.column_names:
            x, y = want[c].to_pylist(), got[c].to_pylist()
            assert x == y, (path, c, [(i, p, q) for i, (p, q) in enumerate(zip(x, y)) if p != q][:3])
`

func TestPyArrowAndGstreamReadTheArrowFilesOfEachOther(t *testing.T) {
	python := os.Getenv("GSTREAM_PYTHON")
	if python == "" {
		t.Skip("GSTREAM_PYTHON names no Python with PyArrow")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		cmd := exec.Command(python, append([]string{"-c", arrowScript}, args...)...)
		var text bytes.Buffer
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &text, &text
		require.NoError(t, cmd.Run(), "%s", &text)
	}
	run("write")
	names := []string{"compare"}
	for i, in := range []string{"None.arrow", "lz4.arrow", "zstd.arrow", "None.arrows", "lz4.arrows", "zstd.arrows"} {
		codec := []string{"none", "lz4", "zstd"}[i%3]
		out := fmt.Sprintf("out%d.%s", i, []string{"arrow", "feather", "ipc", "arrows"}[i%4])
		j := &Job{Name: "copy", Sources: map[string]Source{"t": {Arrow: Paths{Path(filepath.Join(dir, in))}}}}
		j.Output.Arrow, j.Output.Compression = Path(filepath.Join(dir, out)), codec
		report, err := runJob(t, j)
		require.NoError(t, err)
		require.Equal(t, int64(1000), report.Output.Rows)
		names = append(names, out)
	}
	run(names...)
}

func runJob(t *testing.T, j *Job) (*Report, error) {
	p, err := NewPlan(j)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Run(context.Background(), RunOptions{Use: Host})
}

func TestArrowInSQL(t *testing.T) {
	dir := t.TempDir()
	run := func(text string) error {
		b, err := (&Session{Dir: dir}).builder(text, nil)
		if err != nil {
			return err
		}
		_, err = b.Run(t.Context(), RunOptions{Use: Host})
		return err
	}
	require.NoError(t, run("COPY (SELECT x, [x] AS l FROM range(10) AS r(x)) TO 'a.arrow' (COMPRESSION zstd)"))
	require.NoError(t, run("COPY (SELECT sum(x) AS s, count(*) AS n FROM 'a.arrow') TO 'b.arrows'"))
	require.NoError(t, run("COPY (FROM read_arrow(['b.arrows']) WHERE s = 45 AND n = 10) TO 'c' (FORMAT arrow)"))
	require.ErrorContains(t, run("COPY (FROM 'a.arrow') TO 'd.arrow' (COMPRESSION gzip)"),
		`compression "gzip" is not one of Arrow's`)
	require.ErrorContains(t, run("COPY (FROM 'a.arrow') TO 'd.arrow' (HEADER)"), "COPY of Arrow has no option HEADER")
	require.ErrorContains(t, run("FROM read_arrow('a.arrow', strict = true)"), "read_arrow has no option strict")
	report, err := runJob(t, &Job{Sources: map[string]Source{"c": {Arrow: Paths{Path(filepath.Join(dir, "c"))}}},
		Output: Output{Arrow: Path(filepath.Join(dir, "e.arrow"))}})
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Output.Rows)
}
