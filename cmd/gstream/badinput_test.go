package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/source"
)

// allColumns is a job that reads every byte of the table and writes to missing folders.
const allColumns = `vars: {data: .}
sources: {orders: '${data}/orders.parquet'}
output: {parquet: new/folder/out.parquet}
`

// pageBody returns the offset of the bytes of a column's first page.
func pageBody(t *testing.T, file []byte, column int) int {
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	chunk := f.Metadata().RowGroups[0].Columns[column].MetaData
	at := chunk.DataPageOffset
	if d := chunk.DictionaryPageOffset; d > 0 {
		at = min(at, d)
	}
	r := bytes.NewReader(file[at:])
	var h format.PageHeader
	require.NoError(t, thrift.NewDecoder(new(thrift.CompactProtocol).NewReader(r)).Decode(&h))
	return len(file) - r.Len()
}

func footerAt(file []byte) int {
	return len(file) - 8 - int(binary.LittleEndian.Uint32(file[len(file)-8:]))
}

func TestDamagedFilesAreRefused(t *testing.T) {
	orders, err := os.ReadFile(data + "/orders.parquet")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change  func(b []byte) []byte
		message string
	}{
		"truncated file":         {func(b []byte) []byte { return b[:len(b)/2] }, "truncated"},
		"empty file":             {func([]byte) []byte { return nil }, "empty"},
		"wrong magic":            {func(b []byte) []byte { copy(b, "PK\x03\x04"); return b }, "not a Parquet file"},
		"wrong magic at the end": {func(b []byte) []byte { copy(b[len(b)-4:], "ABCD"); return b }, "damaged"},
		"no footer":              {func(b []byte) []byte { return append(b[:footerAt(b)], b[len(b)-8:]...) }, "footer"},
		"bytes changed in the footer": {func(b []byte) []byte {
			for i := footerAt(b) + 3; i < len(b)-8; i += 7 {
				b[i] ^= 0x5a
			}
			return b
		}, "footer"},
		"bytes changed in a page": {func(b []byte) []byte {
			for i := pageBody(t, b, 0) + 5; i < pageBody(t, b, 0)+500; i++ {
				b[i] = 0xff
			}
			return b
		}, `row group 0, column "o_orderkey"`},
		"page that decompresses to more than it says": {func(b []byte) []byte {
			// A Snappy block begins with the size of its contents as a varint.
			at := pageBody(t, b, 0)
			for b[at]&0x80 != 0 {
				b[at] = 0xff
				at++
			}
			b[at] = 0x7f
			return b
		}, `row group 0, column "o_orderkey"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "job.yaml")
			require.NoError(t, os.WriteFile(path, []byte(allColumns), 0o644))
			folder := t.TempDir()
			file := filepath.Join(folder, "orders.parquet")
			require.NoError(t, os.WriteFile(file, c.change(bytes.Clone(orders)), 0o644))
			for _, command := range []string{"run", "lint"} {
				code, stdout, stderr := gstream(command, path, "--set", "data="+folder)
				if command == "lint" && code == exitOK {
					continue // it does not read pages
				}
				assert.Equal(t, exitData, code, stderr)
				assert.Empty(t, stdout)
				assert.Contains(t, stderr, file)
				assert.Contains(t, stderr, c.message)
				assert.NotContains(t, stderr, "goroutine")
				leavesNothing(t, path)
			}
		})
	}
}

func TestWrongInputsAreRefused(t *testing.T) {
	abs, err := filepath.Abs("../../source/parquet/testdata/unreadable.parquet")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		job      string // @ is the folder of the example's tables
		code     int
		messages []string
	}{
		"schema mismatch": {"sources: {t: [@/orders.parquet, @/nation.parquet]}\n", exitData,
			[]string{"nation.parquet", "o_orderkey"}},
		"missing column": {"sources: {t: @/orders.parquet}\nsteps:\n  - select:\n      - o_orderkey\n      - " +
			"o_orderky + 1 as next\n", exitJob,
			[]string{"job.yaml:5:9: select 1: ", `"o_orderky"`, `did you mean "o_orderkey"?`}},
		"misspelled key": {"sources: {t: @/orders.parquet}\nsteps:\n  - flter: o_orderkey = 1\n", exitJob,
			[]string{`job.yaml:3:5: unknown key "flter" (did you mean "filter"?)`}},
		"unset variable": {"vars:\n  day:\nsources: {t: @/orders.parquet}\nsteps:\n" +
			"  - filter: o_orderdate = date '${day}'\n", exitJob,
			[]string{"job.yaml:5:13: ", "day", "--set day=VALUE"}},
		"unset environment variable": {"sources: {t: '${env:GSTREAM_TEST_UNSET}'}\n", exitJob,
			[]string{"job.yaml:1:14: ", "GSTREAM_TEST_UNSET"}},
		"missing file": {"sources: {t: @/none.parquet}\n", exitIO,
			[]string{"job.yaml:1:14: ", "none.parquet"}},
		"path through a file": {"sources: {t: @/orders.parquet/x.parquet}\n", exitIO,
			[]string{"job.yaml:1:14: ", "orders.parquet/x.parquet"}},
		"glob without a match": {"sources: {t: '@/none-*.parquet'}\n", exitIO,
			[]string{"job.yaml:1:14: ", "none-*.parquet"}},
		"unreadable column": {"sources: {t: " + abs + "}\nsteps: [{select: [id, span]}]\n", exitJob,
			[]string{"job.yaml:2:23: ", `"span"`, "converted type"}},
		"unreadable key": {"sources: {t: " + abs + "}\nsteps: [{join: {with: t, using: spans}}]\n", exitJob,
			[]string{`"spans"`, "converted type"}},
		"value that does not fit": {"sources: {t: @/orders.parquet}\nsteps: [{select: [o_orderkey::utinyint as k]}]\n",
			exitData, []string{"select 1", "UTINYINT"}},
		"output below a file": {"sources: {t: @/nation.parquet}\noutput: {parquet: job.yaml/out.parquet}\n",
			exitIO, []string{"job.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			tables, err := filepath.Abs(data)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "job.yaml")
			job := strings.ReplaceAll(c.job, "@", tables)
			if !strings.Contains(job, "output:") {
				job += "output: {parquet: new/folder/out.parquet}\n"
			}
			require.NoError(t, os.WriteFile(path, []byte(job), 0o644))
			code, stdout, stderr := gstream("run", path)
			assert.Equal(t, c.code, code, stderr)
			assert.Empty(t, stdout)
			for _, m := range c.messages {
				assert.Contains(t, stderr, m)
			}
			leavesNothing(t, path)
		})
	}
}

func TestColumnsThatCannotBeReadAreNamedUntilASelectLeavesThemOut(t *testing.T) {
	abs, err := filepath.Abs("../../source/parquet/testdata/unreadable.parquet")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "job.yaml")
	job := "sources: {t: " + abs + "}\noutput: {parquet: new/folder/out.parquet}\n"
	require.NoError(t, os.WriteFile(path, []byte(job), 0o644))
	for _, command := range []string{"run", "lint", "explain"} {
		code, _, stderr := gstream(command, path)
		require.Equal(t, exitJob, code, stderr)
		assert.Contains(t, stderr,
			`job.yaml:1:14: t: column "span" (FIXED_LEN_BYTE_ARRAY) of t cannot be read: its converted type 30 is not supported; `+
				`column "spans" (FIXED_LEN_BYTE_ARRAY[])`)
		assert.Contains(t, stderr, "as in select: [id, after")
		leavesNothing(t, path)
	}
	require.NoError(t, os.WriteFile(path, []byte(job+"steps: [{select: [id, after]}]\n"), 0o644))
	code, _, stderr := gstream("run", path)
	require.Equal(t, exitOK, code, stderr)
	_, stdout, _ := gstream("inspect", filepath.Join(filepath.Dir(path), "new/folder/out.parquet"))
	assert.Contains(t, stdout, "  id BIGINT OPTIONAL\n  after VARCHAR OPTIONAL\n")
	_, stdout, _ = gstream("inspect", abs)
	assert.Contains(t, stdout, "  span FIXED_LEN_BYTE_ARRAY REQUIRED (cannot be read: its converted type 30 is not "+
		"supported)\n")
}

func TestUnreadableFilesAreRefused(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every file")
	}
	path, _ := jobFile(t, "  - limit: 1", "")
	file := filepath.Join(t.TempDir(), "orders.parquet")
	require.NoError(t, os.WriteFile(file, nil, 0o000))
	code, _, stderr := gstream("run", path, "--set", "data="+filepath.Dir(file))
	assert.Equal(t, exitIO, code, stderr)
	assert.Contains(t, stderr, file+": permission denied")
	require.NoError(t, os.Chmod(path, 0))
	code, _, stderr = gstream("run", path)
	assert.Equal(t, exitIO, code, stderr)
	leavesNothing(t, path)
}

func TestJobFileThatIsAFolderIsAnInputError(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := gstream("run", dir)
	assert.Equal(t, exitIO, code, stderr)
	assert.Contains(t, stderr, dir)
}

func TestFullDiskLeavesNothing(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs a small disk: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(disk, 0)) }()
	for _, options := range []string{"", ", rows_per_file: 1000"} {
		path, _ := jobFile(t, "  - select: ['*']", options)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		out := filepath.Join(disk, "new", "out.parquet")
		require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("out.parquet"), []byte(out)), 0o644))
		code, stdout, stderr := gstream("run", path)
		assert.Equal(t, exitIO, code, stderr)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "no space left on device")
		assert.Contains(t, stderr, disk)
		leavesNothing(t, path)
		left, err := os.ReadDir(disk)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
}

func TestReportThatCannotBeWrittenIsRefusedBeforeTheRun(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	code, _, stderr := gstream("run", path, "--report", filepath.Join(filepath.Dir(path), "none", "report.json"))
	assert.Equal(t, exitIO, code, stderr)
	assert.Contains(t, stderr, "--report")
	leavesNothing(t, path)
}

func TestReportGoesIntoWhatIsNoFile(t *testing.T) {
	path, _ := jobFile(t, "  - limit: 1", "")
	code, _, stderr := gstream("run", path, "--report", os.DevNull)
	assert.Equal(t, exitOK, code, stderr)
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeDevice)
}

func TestReportOfAFailedRunIsWritten(t *testing.T) {
	path, _ := jobFile(t, "  - sort: o_comment", "")
	report := filepath.Join(t.TempDir(), "report.json")
	code, _, stderr := gstream("run", path, "--host-memory", "2MiB", "--report", report)
	assert.Equal(t, exitMemory, code, stderr)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"done": false`)
	leavesNothing(t, path)
}

func TestDefectsHaveAnExitCodeOfTheirOwn(t *testing.T) {
	assert.Equal(t, exitDefect, exitCode(fmt.Errorf("stage: %w", errors.Join(pipeline.ErrDefect, context.Canceled))))
}

func TestAChangedInputHasTheExitCodeOfWhatARetryMayHelp(t *testing.T) {
	assert.Equal(t, exitIO, exitCode(fmt.Errorf("stage: %w", source.ErrChanged)))
}
