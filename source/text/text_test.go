package text

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// write makes a file with a text.
func write(t testing.TB, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// rowsOf reads all rows of a table: values as text, NULL for null.
func rowsOf(t testing.TB, table *Table, block int) (rows []string, err error) {
	lease := host.HeapLease("test", 0)
	opt := source.ScanOptions{Lease: lease, StrideRows: 1 << 17}
	for i := range table.Schema().Fields {
		opt.Columns = append(opt.Columns, i)
	}
	opt.Decode.Threads = 3
	r, err := table.Scan(context.Background(), opt)
	require.NoError(t, err)
	if block > 0 {
		r.(*reader).cutting.Lock()
		r.(*reader).cutter.target = block
		r.(*reader).cutting.Unlock()
	}
	for {
		s, err := r.Read(context.Background())
		if err != nil {
			require.NoError(t, r.Close())
			used, _ := lease.Used()
			require.Zero(t, used)
			if err == io.EOF {
				return rows, nil
			}
			return rows, err
		}
		require.NoError(t, s.Check())
		for i := range s.Rows {
			var row []string
			for _, c := range s.Cols {
				v := c.ScalarAt(i)
				row = append(row, v.String())
			}
			rows = append(rows, strings.Join(row, "|"))
		}
		s.Release()
	}
}

// types returns the names and types of the columns.
func types(table *Table) string {
	var out []string
	for _, f := range table.Schema().Fields {
		out = append(out, f.Name+" "+f.Type.String())
	}
	return strings.Join(out, ", ")
}

func TestSamplesAndReads(t *testing.T) {
	for name, c := range map[string]struct {
		text, types, rows string
	}{
		"numbers":   {"a,b\n1,2.5\n-3,4\n", "a BIGINT, b DOUBLE", "1|2.5 -3|4.0"},
		"no header": {"1,x\n2,y\n", "column0 BIGINT, column1 VARCHAR", "1|x 2|y"},
		"quotes":    {"a,b\n\"x,\n\"\"y\"\"\",1\nz,2\n", "a VARCHAR, b BIGINT", "x,\n\"y\"|1 z|2"},
		"escape":    {"a,b\n\"x\\\"y\",1\nz,2\n", "a VARCHAR, b BIGINT", "x\"y|1 z|2"},
		"mixed":     {"a,b\r\n1,2\n3,4\r\n\r\n", "a BIGINT, b BIGINT", "1|2 3|4"},
		"bom":       {"\ufeffa;b\n1;2", "a BIGINT, b BIGINT", "1|2"},
		"dates": {"a\tb\tc\n2020-02-29\t2020-01-02T03:04:05.5\t03:04\n\t\t\n",
			"a DATE, b TIMESTAMP, c TIME", "2020-02-29|2020-01-02 03:04:05.5|03:04:00 NULL|NULL|NULL"},
		"one column": {"a\n1\n\n3\n", "a BIGINT", "1 NULL 3"},
		"cr":         {"a,b\r1,2\r3,4\r", "a BIGINT, b BIGINT", "1|2 3|4"},
		"stray":      {"a,b\n5\" pipe,1\n6,2\n", "a VARCHAR, b BIGINT", "5\" pipe|1 6|2"},
		"empty":      {"", "column0 VARCHAR", ""},
		"duplicate":  {"a,a,A,\n1,2,3,4\n", "a BIGINT, a_1 BIGINT, A_2 BIGINT, column3 BIGINT", "1|2|3|4"},
		"large":      {"a\n9223372036854775808\n1\n", "a HUGEINT", "9223372036854775808 1"},
		"zone":       {"a\n2020-01-02 03:04:05+02\n", "a TIMESTAMP WITH TIME ZONE", "2020-01-02 01:04:05+00"},
		"texts":      {"a,b\nx,y\n", "a VARCHAR, b VARCHAR", "x|y"},
		"zeros":      {"a,b\n007,0.0\n1,-0.0\n", "a VARCHAR, b DOUBLE", "007|0.0 1|-0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := Open([]string{write(t, "x.csv", c.text)}, Options{})
			require.NoError(t, err)
			require.Equal(t, c.types, types(table))
			rows, err := rowsOf(t, table, 0)
			require.NoError(t, err)
			require.Equal(t, c.rows, strings.Join(rows, " "))
		})
	}
}

func TestOptionsSayHowValuesAreWritten(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		opt         Options
		types, rows string
	}{
		"dates": {"a,b\n01/02/2020,03.04.2021 05:06\n,\n", Options{DateFormat: "%m/%d/%Y",
			TimestampFormat: "%d.%m.%Y %H:%M"},
			"a DATE, b TIMESTAMP", "2020-01-02|2021-04-03 05:06:00 NULL|NULL"},
		"a form that the sample has": {"a,b\n13/02/2020,1\n01/02/2020,2\n", Options{},
			"a DATE, b BIGINT", "2020-02-13|1 2020-02-01|2"},
		"a type that is given": {"a,b\n13/02/2020,1.2.2020\n14/02/2020,31.12.2020\n", Options{Types: []gpu.Field{
			{Name: "a", Type: gpu.TimestampOf(gpu.Microsecond, false)}, {Name: "b", Type: gpu.Of(gpu.Date)}},
			TimestampFormat: "%d/%m/%Y"},
			"a TIMESTAMP, b DATE", "2020-02-13 00:00:00|2020-02-01 2020-02-14 00:00:00|2020-12-31"},
		"texts": {"a,b\n13/02/2020,1\n", Options{AllVarchar: true}, "a VARCHAR, b VARCHAR", "13/02/2020|1"},
		"errors": {"a,b\n13/02/2020,1\n14/14/2020,2\n1/1/2020,3\nx\n", Options{IgnoreErrors: true,
			DateFormat: "%d/%m/%Y",
			Types:      []gpu.Field{{Name: "a", Type: gpu.Of(gpu.Date)}}}, "a DATE, b BIGINT",
			"2020-02-13|1 2020-01-01|3"},
		"infinity": {"a\ninfinity\n01/01/2020\n-infinity\n", Options{DateFormat: "%d/%m/%Y"}, "a DATE",
			"infinity 2020-01-01 -infinity"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := Open([]string{write(t, "x.csv", c.text)}, c.opt)
			require.NoError(t, err)
			require.Equal(t, c.types, types(table))
			rows, err := rowsOf(t, table, 0)
			require.NoError(t, err)
			require.Equal(t, c.rows, strings.Join(rows, " "))
		})
	}
	usual, err := Open([]string{write(t, "x.csv", "a,b\n2020-12-31,2020-12-31 10:00:00\n")}, Options{})
	require.NoError(t, err)
	require.Equal(t, make([]*timeFormat, 2), usual.files[0].layout.formats,
		"dates in the usual form have the fast parsers")
	for text, opt := range map[string]Options{
		"dateformat: there is no %Q": {DateFormat: "%Q"},
		"timestampformat: it has %z": {TimestampFormat: "%Y %z"},
		"\"13/02/2020\" is no DATE in the format '%m/%d/%Y'": {DateFormat: "%m/%d/%Y",
			Types: []gpu.Field{{Name: "a", Type: gpu.Of(gpu.Date)}}},
	} {
		table, err := Open([]string{write(t, "x.csv", "a,b\n13/02/2020,1\n")}, opt)
		if err == nil {
			_, err = rowsOf(t, table, 0)
		}
		require.ErrorContains(t, err, text)
	}
}

func TestErrorsNameFileLineAndColumn(t *testing.T) {
	long := strings.Repeat("1,2\n", sampleRows) // the sample ends before the mistake
	no, yes := false, true
	for name, c := range map[string]struct {
		text string
		opt  Options
		want string
	}{
		"value": {"a,b\n" + long + "3,x\n", Options{}, "x.csv, line 20482, column 2 (\"b\"): bad data: \"x\" is no " +
			"BIGINT; give the column another type (types: {b: VARCHAR}), or the source a file for such rows (rejects)"},
		"fraction": {"a,b\n" + long + "3.5,1\n", Options{}, `"3.5" is no BIGINT`},
		"few": {"a,b\n\"x\ny\",1\n3\n", Options{},
			"x.csv, line 4: bad data: the row has 1 column, and the file has 2"},
		"many": {"a,b\n" + long + "1,2,3\n", Options{}, "the row has 3 columns, and the file has 2: \"1,2,3\""},
		"quote": {"a,b\n" + long + "\"x\"y,2\n", Options{Quote: `"`, Types: varchar("a")},
			"text between a closing quote"},
		"no end":    {"a,b\n" + long + "\"x,2\n4,5\n", Options{}, "line 20482: bad data: a quote is not closed"},
		"not UTF-8": {"a,b\nx,1\n\xff,2\n", Options{}, "x.csv, line 3: bad data: the text is not UTF-8"},
		"later": {"a,b\n" + long + strings.Repeat("1,2\n", 1<<20) + "\xff,2\n", Options{},
			"line 1069058: bad data: the text is not UTF-8"},
		"delimiter": {"a\n1\n", Options{Delimiter: "ab"}, "it must be one ASCII character"},
		"type": {"a\n1\n", Options{Types: varchar("b")},
			`there is no column "b", whose type is given; the columns are a`},
		"schema": {"a,b\n1,2\n", Options{Header: &yes, Schema: gpu.NewSchema(varchar("b")...)},
			"the header has the columns a, b"},
		"columns": {strings.Repeat("1,", maxColumns) + "1\n", Options{},
			"x.csv, line 1: bad data: a row has 16,385 columns"},
		"million": {strings.Repeat("1,", 1e6) + "1\n", Options{}, "a row has 1,000,001 columns, and at most 16,384"},
		"row": {"a\n1\n\"" + strings.Repeat("x\n", maxRow/2+1), Options{Quote: `"`},
			"line 3: bad data: a row has more than 16777216 bytes; is a quote (\") not closed?"},
		"same": {"a\n1\n", Options{Delimiter: "|", Quote: "|", Header: &no}, "the delimiter cannot be the quote"},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := Open([]string{write(t, "x.csv", c.text)}, c.opt)
			if err == nil {
				_, err = rowsOf(t, table, 0)
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func varchar(name string) []gpu.Field { return []gpu.Field{{Name: name, Type: gpu.Of(gpu.String)}} }

func TestRejectsHaveTheRowsThatCannotBeRead(t *testing.T) {
	text := "a,b,c\n1,2020-01-01,x\nfoo,2020-01-02,\"y\nz\"\n\n3,bad,u\n4,2020-01-03\n5,2020-01-04,v,w\n" +
		"6,2020-01-05,\"p\"q\n7,2020-01-06,\xff\n8,2020-01-07,end\n9,2020-01-08,\"open\n"
	path := write(t, "x.csv", text)
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	opt := Options{Rejects: rejects, Quote: `"`, Delimiter: ",", Schema: gpu.NewSchema(
		gpu.Field{Name: "a", Type: gpu.Of(gpu.Int8)}, gpu.Field{Name: "b", Type: gpu.Of(gpu.Date)},
		gpu.Field{Name: "c", Type: gpu.Of(gpu.String)})}
	for _, block := range []int{0, 1, 20, 64} {
		table, err := Open([]string{path}, opt)
		require.NoError(t, err)
		rows, err := rowsOf(t, table, block)
		require.NoError(t, err)
		require.Equal(t, []string{"1|2020-01-01|x", "8|2020-01-07|end"}, rows)
		got, err := os.ReadFile(rejects)
		require.NoError(t, err)
		require.Equal(t, strings.ReplaceAll(rejectHeader+`
PATH,3,1,a,"""foo"" is no TINYINT","foo,2020-01-02,""y
z"""
PATH,6,2,b,"""bad"" is no DATE","3,bad,u"
PATH,7,,"","the row has 2 columns, and the file has 3","4,2020-01-03"
PATH,8,,"","the row has 4 columns, and the file has 3","5,2020-01-04,v,w"
PATH,9,,"","there is text between a closing quote and the delimiter","6,2020-01-05,""p""q"
PATH,10,,"","the text is not UTF-8","7,2020-01-06,`+"\ufffd"+`"
PATH,12,,"","a quote is not closed","9,2020-01-08,""open
"
`, "PATH", path), string(got))
	}
	require.NoError(t, os.WriteFile(rejects, []byte("a,b\n"), 0o644))
	table, err := Open([]string{path}, opt)
	require.NoError(t, err)
	_, err = table.Scan(context.Background(), source.ScanOptions{Lease: host.HeapLease("test", 0)})
	require.ErrorIs(t, err, os.ErrExist)
	opt.Rejects = path
	_, err = Open([]string{path}, opt)
	require.ErrorContains(t, err, "the file of rejects cannot be a file that is read")
}

func TestSeveralAndCompressedFilesAreOneTable(t *testing.T) {
	var gz, zst bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte("a,b\n3,z\n"))
	require.NoError(t, w.Close())
	z, err := zstd.NewWriter(&zst)
	require.NoError(t, err)
	_, _ = z.Write([]byte("a,b\n4,w"))
	require.NoError(t, z.Close())
	paths := []string{write(t, "1.csv", "a,b\n1,x\n2,y"), write(t, "2.csv.gz", gz.String()),
		write(t, "3.csv.zst", zst.String()), write(t, "4.csv", "a,b\n")}
	table, err := Open(paths, Options{})
	require.NoError(t, err)
	require.False(t, table.RowsExact())
	rows, err := rowsOf(t, table, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"1|x", "2|y", "3|z", "4|w"}, rows)
	for header, want := range map[string]string{"a,c\n": `column 2 of the header must be "b"`,
		"a\n":     "and there is none",
		"a,b,c\n": `the header has the column "c"`} {
		table, err := Open([]string{paths[0], write(t, "5.csv", header)}, Options{})
		require.NoError(t, err)
		_, err = rowsOf(t, table, 0)
		require.ErrorContains(t, err, want)
	}
	table, err = Open([]string{paths[1]}, Options{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(paths[1], gz.Bytes()[:gz.Len()-4], 0o644))
	_, err = rowsOf(t, table, 0)
	require.ErrorIs(t, err, source.ErrChanged)
	_, err = Open([]string{paths[1]}, Options{})
	require.ErrorContains(t, err, "it cannot be decompressed")
}

// TestBlocksEndBetweenRows reads random files in blocks of any size, and compares them with the splitter.
func TestBlocksEndBetweenRows(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := Dialect{Delimiter: ",|; "[r.IntN(4)], Quote: `"'`[r.IntN(2)], Newline: "\n\r"[r.IntN(8)/7]}
		if d.Escape = d.Quote; r.IntN(3) == 0 {
			d.Escape = '\\'
		}
		var text strings.Builder
		columns := 1 + r.IntN(4)
		alphabet := []string{string(d.Delimiter), string(d.Quote), string(d.Escape), "\n", "\r", " ", "x", "ü",
			strings.Repeat("long", 20)}
		fmt.Fprint(&text, strings.Repeat("h"+string(d.Delimiter), columns-1)+"h"+string(d.Newline))
		for range r.IntN(60) {
			for c := range columns {
				if c > 0 {
					text.WriteByte(d.Delimiter)
				}
				if quoted := r.IntN(2) == 0; !quoted {
					text.WriteString(strings.Repeat([]string{"x", "yz", "a\rb", "12345678"}[r.IntN(4)], r.IntN(9)))
					continue
				}
				text.WriteByte(d.Quote)
				for range r.IntN(9) {
					s := alphabet[r.IntN(len(alphabet))]
					if s == string(d.Quote) || s == string(d.Escape) {
						text.WriteByte(d.Escape)
					}
					text.WriteString(s)
				}
				text.WriteByte(d.Quote)
			}
			if r.IntN(4) == 0 && d.Newline == '\n' {
				text.WriteByte('\r')
			}
			text.WriteByte(d.Newline)
		}
		compare(t, d, columns, text.String(), 1+r.IntN(200))
	}
}

// compare reads a text in blocks of a size, and compares the rows with those of the splitter.
func compare(t *testing.T, d Dialect, columns int, text string, block int) {
	var want []string
	bad := 0
	for at := 0; at < len(text); {
		fields, next, what := d.split([]byte(text[at:]), nil)
		row := text[at:min(at+next, len(text))]
		var values []string
		for _, f := range fields {
			values = append(values, d.value([]byte(row), f))
		}
		empty := len(fields) == 1 && strings.Trim(row, "\r\n") == ""
		switch {
		case what != sound || len(fields) != columns && !empty:
			bad++
		case !empty || columns == 1:
			want = append(want, strings.Join(values, "|"))
		}
		at += next
	}
	table := &Table{files: []*file{{path: write(t, "x.csv", text), layout: &layout{dialect: d}}},
		nulls: newNullTexts([]string{}), schema: &gpu.Schema{}, rejecting: true, rowBytes: 10}
	v, err := store.Stat(t.Context(), table.files[0].path)
	require.NoError(t, err)
	table.files[0].address, table.files[0].version, table.size = table.files[0].path, v, v.Size
	for i := range columns {
		table.schema.Fields = append(table.schema.Fields, gpu.Field{Name: fmt.Sprint(i), Type: gpu.Of(gpu.String)})
	}
	table.files[0].layout.names = table.schema.Names()
	got, err := rowsOf(t, table, block)
	require.NoError(t, err)
	require.Equal(t, want, got, "%q in blocks of %d as %+v", text, block, d)
}

func FuzzRows(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a\nb\",\"c\"\"\"\n",
		"a\"b, \"c\" ,\r\n\r\n", "\"x\"y\"z\"\n,", "\\\",\"\\\"\"\n"} {
		f.Add(s, uint8(3), false, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, block uint8, backslash bool, columns uint8) {
		// The reader takes a byte order mark and the empty lines before the header away.
		text = strings.TrimLeft(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), ""), "\r\n\ufeff")
		if text == "" {
			return
		}
		if !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		d := Dialect{Delimiter: ',', Quote: '"', Escape: '"', Newline: '\n'}
		if backslash {
			d.Escape = '\\'
		}
		compare(t, d, int(columns%5)+1, text, int(block)+1)
		table, err := Open([]string{write(t, "x.csv", text)}, Options{})
		if err == nil {
			_, _ = rowsOf(t, table, int(block)+1)
		}
	})
}

func TestValuesAreExact(t *testing.T) {
	for typ, values := range map[gpu.Type][]string{
		gpu.Of(gpu.Int8):   {"127", "-128", "-0", "007", "+5", " 5 ", "!128", "!1.5", "!1e1", "!-", "!--1", "!1x"},
		gpu.Of(gpu.Uint16): {"65535", "0", "!65536", "!-1"},
		gpu.Of(gpu.Uint64): {"18446744073709551615", "!18446744073709551616"},
		gpu.Of(gpu.Int64): {"9223372036854775807", "-9223372036854775808", "1234567890123456", "12345678901234567",
			"!9223372036854775808"},
		gpu.Of(gpu.HugeInt): {"170141183460469231731687303715884105727"},
		gpu.DecimalOf(5, 2): {"999.99", "-999.99", "1", "1.5", ".5", "1.555", "1e2",
			"!1000", "!x", "!1.2.3", "0.00", "-0.01"},
		gpu.DecimalOf(18, 6): {"123456789012.123456", "!1234567890123"},
		gpu.DecimalOf(38, 9): {"12345678901234567890123456789.123456789"},
		gpu.Of(gpu.Float64): {"0.1", "-0.0", "0", "1e-7", "9007199254740993", "123456.7890123", "1234567.",
			".1", "1.7976931348623157e308",
			"4.9e-324", "nan", "inf", "12345678.12345678", "0.000001", "!1..2", "!.", "!-", "!1,2"},
		gpu.Of(gpu.Float32): {"0.1", "16777217"},
		gpu.Of(gpu.Bool):    {"true", "F", "yes", "0", "!2"},
		gpu.Of(gpu.Date): {"1970-01-01", "1969-12-31", "2000-02-29", "0001-01-01",
			"9999-12-31", "2020-1-2", "infinity",
			"!2001-02-29", "!2020-04-31", "!2020-00-01", "!2020-13-01"},
		gpu.TimestampOf(gpu.Microsecond, false): {"2020-01-02 03:04:05", "1969-12-31T23:59:59.999999",
			"2020-01-02", "2020-01-02 03:04:05.1", "2020-01-02 03:04:05.1234567",
			"!2020-01-02 25:00:00"},
		gpu.TimestampOf(gpu.Nanosecond, false): {"2020-01-02 03:04:05.123456789", "1700-01-01 00:00:00",
			"!1600-01-01 00:00:00"},
		gpu.TimestampOf(gpu.Second, false):     {"2020-01-02 03:04:05"},
		gpu.TimestampOf(gpu.Microsecond, true): {"2020-01-02 03:04:05+02"},
		gpu.TimeOf(gpu.Microsecond):            {"03:04:05.5", "!25:00:00"},
		gpu.Of(gpu.Binary):                     {`a\x41`, "!ü"},
	} {
		for _, v := range values {
			text, bad := strings.CutPrefix(v, "!")
			table, err := Open([]string{write(t, "x.csv", "a\n"+text+"\n")}, Options{Delimiter: ";", Quote: "none",
				Schema: gpu.NewSchema(gpu.Field{Name: "a", Type: typ})})
			require.NoError(t, err)
			rows, err := rowsOf(t, table, 0)
			if bad {
				require.ErrorContains(t, err, "is no "+typ.String(), v)
				continue
			}
			require.NoError(t, err, v)
			want, ok := host.ParseText(text, typ)
			require.True(t, ok)
			require.Equal(t, []string{want.String()}, rows, v)
		}
	}
}

func TestScanLeavesNoMemoryAfterADenial(t *testing.T) {
	path := write(t, "x.csv", "a,b\n"+strings.Repeat("1,some text that takes memory\n", 60000))
	table, err := Open([]string{path}, Options{})
	require.NoError(t, err)
	opt := source.ScanOptions{Columns: []int{0, 1}, StrideRows: 1000, Decode: source.DecodeOptions{Threads: 2}}
	opt.Lease = host.HeapLease("test", table.LeastMemory(opt)-1)
	_, err = table.Scan(context.Background(), opt)
	require.ErrorIs(t, err, gpu.ErrBudget)
	opt.Lease = host.HeapLease("test", table.LeastMemory(opt))
	r, err := table.Scan(context.Background(), opt)
	require.NoError(t, err)
	rows := 0
	for {
		s, err := r.Read(context.Background())
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		require.LessOrEqual(t, s.Rows, 1000)
		rows += s.Rows
		s.Release()
	}
	require.Equal(t, 60000, rows)
	require.NoError(t, r.Close())
	used, _ := opt.Lease.Used()
	require.Zero(t, used)
}

// TestDeniedMemoryLosesNoRows denies some reservations, so that blocks are cut and parsed in several attempts.
func TestDeniedMemoryLosesNoRows(t *testing.T) {
	var text strings.Builder
	text.WriteString("a,b\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "%d,\"%s\n\"\n", i, strings.Repeat("x", i%200))
	}
	table, err := Open([]string{write(t, "x.csv", text.String())}, Options{})
	require.NoError(t, err)
	budget := gpu.NewBudget("host", gpu.HostMemory, 0, heap{})
	var calls atomic.Int64
	budget.SetFault(func(bool) error {
		if calls.Add(1)%17 == 0 {
			return gpu.ErrBudget
		}
		return nil
	})
	budget.SetPatience(time.Millisecond)
	lease := budget.Lease("test")
	r, err := table.Scan(context.Background(), source.ScanOptions{Columns: []int{0, 1}, StrideRows: 500, Lease: lease,
		Decode: source.DecodeOptions{Threads: 1}})
	require.NoError(t, err)
	r.(*reader).cutting.Lock()
	r.(*reader).cutter.target = 100
	r.(*reader).cutting.Unlock()
	rows := 0
	for {
		s, err := r.Read(context.Background())
		if err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		for i := range s.Rows {
			require.EqualValues(t, rows+i, s.Cols[0].ScalarAt(i).Int.Int64())
		}
		rows += s.Rows
		s.Release()
	}
	require.Equal(t, 3000, rows)
	require.NoError(t, r.Close())
	require.NoError(t, lease.Close())
}

type heap struct{}

func (heap) Allocate(n int64) ([]byte, uintptr, error) {
	return gpu.BytesOf(make([]gpu.Int128, (n+15)/16)), 0, nil
}
func (heap) Free([]byte, uintptr, int64) {}
