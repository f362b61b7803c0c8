package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink"
)

// rowTarget passes the rows of a run to a rowWriter.
type rowTarget struct {
	rows  rowWriter
	most  int64 // rows to show; further rows are only counted
	seen  atomic.Int64
	total int64
}

func (t *rowTarget) Create(schema *gpu.Schema, _ pipeline.TargetOptions) (sink.Sink, error) {
	return t, t.rows.begin(schema)
}

func (t *rowTarget) Describe() string { return "standard output" }

func (t *rowTarget) Write(_ context.Context, s *gpu.Stride) error {
	defer s.Release()
	cells := make([]gpu.Scalar, len(s.Cols))
	for i := range s.Rows {
		if t.seen.Add(1) > t.most {
			continue
		}
		for c := range cells {
			cells[c] = s.Cols[c].ScalarAt(i)
		}
		if err := t.rows.row(cells); err != nil {
			return err
		}
	}
	return nil
}

func (t *rowTarget) shown() int64                 { return min(t.seen.Load(), t.most) }
func (t *rowTarget) Commit(context.Context) error { return nil }
func (t *rowTarget) Abort() error                 { return nil }
func (t *rowTarget) Stats() sink.Stats            { return sink.Stats{Rows: t.seen.Load()} }

// rowWriter prints rows. end is called after success, with the number of printed rows, and with that
// of all rows or -1 if it is unknown.
type rowWriter interface {
	begin(schema *gpu.Schema) error
	row(cells []gpu.Scalar) error
	end(shown, total int64) error
}

// noRows prints nothing.
type noRows struct{}

func (noRows) begin(*gpu.Schema) error { return nil }
func (noRows) row([]gpu.Scalar) error  { return nil }
func (noRows) end(int64, int64) error  { return nil }

// rowFormats are the values of gstream show --format.
var rowFormats = []string{"table", "csv", "json", "markdown"}

// newRowWriter returns the writer of a format. width is the width of a table, negative if it is
// unbounded.
func newRowWriter(format string, w *bufio.Writer, width int) (rowWriter, error) {
	switch format {
	case "table":
		return &tableWriter{w: w, width: width}, nil
	case "csv":
		return &csvWriter{w: w}, nil
	case "json":
		return &jsonWriter{w: w}, nil
	case "markdown":
		return &markdownWriter{w: w}, nil
	}
	return nil, usageError(fmt.Errorf("--format %s: must be table, csv, json or markdown", format))
}

// cellText returns the text of a value that is not null, as DuckDB prints it.
func cellText(f gpu.Field, v gpu.Scalar) string {
	switch {
	case f.Annotation == gpu.UUID && len(v.Str) == 16:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v.Str[:4], v.Str[4:6], v.Str[6:8], v.Str[8:10], v.Str[10:])
	case f.Annotation == gpu.UTC:
		return v.String() + "+00"
	}
	return v.String()
}

// visibleText returns the text of a value for people. A null is NULL. The text NULL is quoted, and a
// quoted NULL gets another pair of quotes.
func visibleText(f gpu.Field, v gpu.Scalar) string {
	if !v.Valid {
		return "NULL"
	}
	text := cellText(f, v)
	if f.Type.Kind == gpu.String && strings.Trim(text, "'") == "NULL" {
		text = "'" + text + "'"
	}
	return escapeText(text)
}

// visibleName returns the name of a column for people.
func visibleName(name string) string {
	if name == "" {
		return `""`
	}
	return escapeText(name)
}

// tableWriter prints a table that fits a terminal.
type tableWriter struct {
	w      *bufio.Writer
	width  int // negative if unbounded
	schema *gpu.Schema
	cells  [][]string
}

func (t *tableWriter) begin(schema *gpu.Schema) error {
	t.schema = schema
	var names, types []string
	for _, f := range schema.Fields {
		names, types = append(names, t.bounded(visibleName(f.Name))), append(types, f.TypeName())
	}
	t.cells = [][]string{names, types}
	return nil
}

// bounded cuts a text to the width of the table, so that long strings take no memory.
func (t *tableWriter) bounded(s string) string {
	if t.width < 0 {
		return s
	}
	return fit(s, t.width)
}

func (t *tableWriter) row(cells []gpu.Scalar) error {
	texts := make([]string, len(cells))
	for c, v := range cells {
		// Only bytes that may be visible are escaped. A character has at most 4 bytes, and some
		// characters have no width.
		if most := 16 * (t.width + 1); t.width >= 0 && v.Type.IsVar() && len(v.Str) > most {
			for !utf8.RuneStart(v.Str[most]) && most > 0 {
				most--
			}
			v.Str = strings.Clone(v.Str[:most])
			texts[c] = fit(visibleText(t.schema.Fields[c], v)+"…", t.width)
			continue
		}
		texts[c] = t.bounded(visibleText(t.schema.Fields[c], v))
	}
	t.cells = append(t.cells, texts)
	return nil
}

const (
	columnGap  = 2
	leastWidth = 12 // to which names, types and strings may be cut
)

func (t *tableWriter) end(shown, total int64) error {
	columns, widths := t.layout()
	var b strings.Builder
	line := func(texts func(column int) string) {
		b.Reset()
		for i, c := range columns {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", columnGap))
			}
			text := "…"
			if c >= 0 {
				text = fit(texts(c), widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-textWidth(text)))
			if c >= 0 && t.schema.Fields[c].Type.IsNumeric() {
				text = pad + text
			} else {
				text += pad
			}
			b.WriteString(text)
		}
		t.w.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
	for i, row := range t.cells {
		line(func(c int) string { return row[c] })
		if i == 1 {
			for k, w := range widths {
				if k > 0 {
					t.w.WriteString(strings.Repeat(" ", columnGap))
				}
				t.w.WriteString(strings.Repeat("─", w))
			}
			t.w.WriteString("\n")
		}
	}
	fmt.Fprintf(t.w, "\n%s; ", rowCount(shown, total))
	all, some := t.schema.Len(), 0
	for _, c := range columns {
		if c >= 0 {
			some++
		}
	}
	if some < all {
		fmt.Fprintf(t.w, "%d of ", some)
	}
	t.w.WriteString(plural(int64(all), "column"))
	if some < all {
		t.w.WriteString(" (--width -1 shows all)")
	}
	_, err := t.w.WriteString("\n")
	return err
}

// layout chooses the columns and their widths. Column -1 stands for the columns in the middle that
// do not fit.
func (t *tableWriter) layout() (columns, widths []int) {
	all := t.schema.Len()
	natural, least := make([]int, all), make([]int, all)
	for i, row := range t.cells {
		for c, text := range row {
			w := textWidth(text)
			natural[c] = max(natural[c], w)
			if i < 2 || t.schema.Fields[c].Type.IsVar() {
				w = min(w, leastWidth)
			}
			least[c] = max(least[c], w)
		}
	}
	limit := t.width
	if limit < 0 {
		limit = math.MaxInt32
	}
	left, right, used := 0, 0, 0 // columns taken from either end, and their width
	for left+right < all {
		next := left
		if right < left {
			next = all - 1 - right
		}
		room := limit - used - least[next]
		if left+right+1 < all {
			room -= 1 + columnGap // for the others, or for …
		}
		if room < 0 {
			break
		}
		used += least[next] + columnGap
		if next == left {
			left++
		} else {
			right++
		}
	}
	for c := range left {
		columns = append(columns, c)
	}
	if left+right < all {
		if left == 0 { // no column fits, so the first one is cut
			columns, left = []int{0}, 1
			least[0] = max(1, limit-1-columnGap)
			if all == 1 {
				least[0] = max(1, limit)
			}
			natural[0] = least[0]
		}
		if left+right < all {
			columns = append(columns, -1)
		}
	}
	for c := all - right; c < all; c++ {
		columns = append(columns, c)
	}
	return columns, spread(columns, natural, least, limit)
}

// spread sets the columns to the widths of their strings, or else to the widest common bound at which
// the table fits.
func spread(columns, natural, least []int, limit int) []int {
	widths := make([]int, len(columns))
	set := func(bound int) (total int) {
		for i, c := range columns {
			widths[i] = 1
			if c >= 0 {
				widths[i] = min(natural[c], max(least[c], bound))
			}
			total += widths[i] + columnGap
		}
		return total - columnGap
	}
	widest := 0
	for _, c := range columns {
		if c >= 0 {
			widest = max(widest, natural[c])
		}
	}
	lo, hi := 0, widest // the table fits with lo; the first columns fit with least
	for lo < hi {
		if mid := (lo + hi + 1) / 2; set(mid) <= limit {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	set(lo)
	return widths
}

// glyphs measures text as terminals show it, independent of the locale.
var glyphs = &runewidth.Condition{}

// textWidth returns the width of a text without control characters, in terminal columns.
func textWidth(s string) int {
	if isASCII(s) { // most are, and this is far faster
		return len(s)
	}
	return glyphs.StringWidth(s)
}

// fit cuts a text to a width. A text that is cut ends with ….
func fit(s string, width int) string {
	width = max(width, 1)
	if !isASCII(s) {
		return glyphs.Truncate(s, width, "…")
	}
	if len(s) <= width {
		return s
	}
	return s[:width-1] + "…"
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// csvWriter prints CSV as in RFC 4180, but ends lines with \n. A null is empty.
type csvWriter struct {
	w      *bufio.Writer
	schema *gpu.Schema
}

func (c *csvWriter) begin(schema *gpu.Schema) error {
	c.schema = schema
	for i, f := range schema.Fields {
		c.field(i, f.Name, false)
	}
	return c.w.WriteByte('\n')
}

func (c *csvWriter) row(cells []gpu.Scalar) error {
	for i, v := range cells {
		if v.Valid {
			c.field(i, cellText(c.schema.Fields[i], v), false)
		} else {
			c.field(i, "", true)
		}
	}
	return c.w.WriteByte('\n')
}

func (c *csvWriter) field(i int, text string, null bool) {
	if i > 0 {
		c.w.WriteByte(',')
	}
	if !null && (text == "" || strings.ContainsAny(text, "\",\r\n") || text[0] == ' ' || text[len(text)-1] == ' ') {
		text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	c.w.WriteString(text)
}

func (c *csvWriter) end(int64, int64) error { return nil }

// jsonWriter prints an array with an object for each row. Numbers have all their digits; numbers that
// JSON cannot express are strings.
type jsonWriter struct {
	w      *bufio.Writer
	schema *gpu.Schema
	names  []string
	some   bool
}

func (j *jsonWriter) begin(schema *gpu.Schema) error {
	j.schema = schema
	for _, f := range schema.Fields {
		j.names = append(j.names, jsonString(f.Name)+":")
	}
	return j.w.WriteByte('[')
}

func (j *jsonWriter) row(cells []gpu.Scalar) error {
	if j.some {
		j.w.WriteString(",\n")
	}
	j.some = true
	for i, v := range cells {
		j.w.WriteByte("{,"[min(i, 1)])
		j.w.WriteString(j.names[i])
		j.w.WriteString(jsonValue(j.schema.Fields[i], v))
	}
	return j.w.WriteByte('}')
}

func (j *jsonWriter) end(int64, int64) error {
	_, err := j.w.WriteString("]\n")
	return err
}

func jsonValue(f gpu.Field, v gpu.Scalar) string {
	switch {
	case !v.Valid:
		return "null"
	case v.Type.Kind == gpu.Decimal:
		return v.Int.Format(int(v.Type.Scale))
	case v.Type.IsInteger(), v.Type.Kind == gpu.Bool, v.Type.IsFloat() && !math.IsNaN(v.Float) &&
		!math.IsInf(v.Float, 0):
		return v.String()
	}
	return jsonString(cellText(f, v))
}

// jsonString returns a text in quotes, with invisible characters escaped.
func jsonString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && escapeText(string(r)) == string(r):
			b.WriteRune(r)
		default:
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, u)
			}
		}
	}
	b.WriteByte('"')
	return b.String()
}

// markdownWriter prints a table of Markdown with pipes.
type markdownWriter struct {
	w      *bufio.Writer
	schema *gpu.Schema
}

func (m *markdownWriter) begin(schema *gpu.Schema) error {
	m.schema = schema
	for _, f := range schema.Fields {
		m.w.WriteString("| " + markdownText(visibleName(f.Name)) + "<br>" + f.TypeName() + " ")
	}
	m.w.WriteString("|\n")
	for _, f := range schema.Fields {
		if f.Type.IsNumeric() {
			m.w.WriteString("|---:")
		} else {
			m.w.WriteString("|---")
		}
	}
	_, err := m.w.WriteString("|\n")
	return err
}

func (m *markdownWriter) row(cells []gpu.Scalar) error {
	for i, v := range cells {
		m.w.WriteString("| " + markdownText(visibleText(m.schema.Fields[i], v)) + " ")
	}
	_, err := m.w.WriteString("|\n")
	return err
}

func (m *markdownWriter) end(shown, total int64) error {
	if shown == total {
		return nil
	}
	_, err := fmt.Fprintf(m.w, "\n%s\n", rowCount(shown, total))
	return err
}

// markdownText escapes what Markdown would interpret as markup.
func markdownText(s string) string { return markdownEscapes.Replace(s) }

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`)
