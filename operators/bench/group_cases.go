package bench

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/groupby"
)

// grouping is a group-by to measure.
type grouping struct {
	family, chart, at string // as in workload
	rows, groups      int
	dense             bool    // the keys are 0 … groups-1
	zipf              float64 // exponent of the frequencies of keys, 0 for uniform
	columns           int     // number of aggregated columns
	key, value        int     // bytes per value, 4 or 8
	kind              gpu.AggregateKind
	form              form
	streams           bool // from page-locked memory
	strideRows        int  // 0: all rows are one stride
}

// form says how the columns differ from plain integers.
type form string

const (
	plain    form = ""
	twoKeys  form = "two keys"
	nulls    form = "nulls"         // a tenth of the keys and values
	texts    form = "strings"       // as keys, by a dictionary
	decimals form = "DECIMAL(38,2)" // values
	doubles  form = "DOUBLE"        // values
)

// fullGroups is the default number of rows, which Options.Rows replaces.
const fullGroups = 1 << 28

// GroupFamilies are the groups of workloads of the benchmark groupby.
func GroupFamilies() []string {
	return []string{"acceptance", "groups", "max", "zipf", "widths", "columns", "forms", "rows", "stream"}
}

// groupings are the workloads of Wu et al. (SIGMOD 2025, §5.2): two columns of 4 bytes and keys of
// 4 bytes, with one parameter varied at a time.
func groupings() (all []grouping) {
	usual := grouping{rows: fullGroups, columns: 2, key: 4, value: 4, kind: gpu.Sum}
	add := func(family, chart, at string, change func(*grouping)) {
		w := usual
		w.family, w.chart, w.at = family, chart, at
		change(&w)
		all = append(all, w)
	}
	power := func(log int) string { return fmt.Sprint("2^", log) }
	for _, log := range []int{4, 12, 14, 16, 20, 24} {
		add("acceptance", "groups", power(log), func(w *grouping) { w.groups = 1 << log })
	}
	for _, log := range []int{4, 12, 14} {
		add("acceptance", "groups of dense keys", power(log), func(w *grouping) { w.groups, w.dense = 1<<log, true })
	}
	for _, log := range []int{12, 20} {
		add("acceptance", "groups of keys of 8 bytes", power(log), func(w *grouping) { w.groups, w.key = 1<<log, 8 })
	}
	for log := 0; log <= 26; log++ {
		add("groups", "every number of groups", power(log), func(w *grouping) { w.groups = 1 << log })
		if log <= 16 {
			add("groups", "every number of groups of dense keys", power(log),
				func(w *grouping) { w.groups, w.dense = 1<<log, true })
		}
	}
	for _, log := range []int{4, 12, 14, 16, 20, 24} {
		add("max", "MAX, groups", power(log), func(w *grouping) { w.groups, w.kind = 1<<log, gpu.Max })
	}
	for _, log := range []int{12, 16, 24} {
		for _, s := range []float64{0, 0.5, 1, 1.5, 2} {
			add("zipf", power(log)+" groups by Zipf", fmt.Sprint(s), func(w *grouping) { w.groups, w.zipf = 1<<log, s })
		}
	}
	for _, log := range []int{12, 20} {
		for _, b := range [][2]int{{4, 4}, {4, 8}, {8, 4}, {8, 8}} {
			add("widths", "bytes of keys and values, "+power(log)+" groups", fmt.Sprintf("%d/%d", b[0], b[1]),
				func(w *grouping) { w.groups, w.key, w.value = 1<<log, b[0], b[1] })
		}
		for _, n := range []int{1, 2, 4, 8} {
			add("columns", "columns, "+power(log)+" groups", fmt.Sprint(n),
				func(w *grouping) { w.groups, w.columns = 1<<log, n })
		}
	}
	for _, log := range []int{4, 8, 10, 12, 16, 20} {
		for _, f := range []form{plain, twoKeys, nulls, texts, decimals, doubles} {
			if f != texts || log <= 16 {
				add("forms", "forms of columns, "+power(log)+" groups", cmp.Or(string(f), "plain"),
					func(w *grouping) { w.groups, w.form = 1<<log, f })
			}
		}
	}
	for _, log := range []int{12, 20} { // more rows than fit 31 bits
		add("rows", "2^31 + 2^20 rows in strides, groups", power(log), func(w *grouping) {
			w.rows, w.strideRows, w.groups = 1<<31+1<<20, 1<<28, 1<<log
		})
	}
	for columns := 1; columns <= 4; columns++ {
		last := 0
		for quarter := 0; quarter <= 4*27; quarter++ {
			groups := int(math.Round(math.Exp2(float64(quarter) / 4)))
			if columns > 1 && quarter%16 != 0 || groups == last {
				continue
			}
			last = groups
			for _, dense := range []bool{true, false} {
				if dense || columns == 1 {
					name := fmt.Sprintf("from page-locked memory, %d columns, ", columns) +
						map[bool]string{true: "compact keys", false: "random keys"}[dense]
					add("stream", name, fmt.Sprint(groups), func(w *grouping) {
						w.rows, w.groups, w.dense, w.columns, w.streams = 335e6, groups, dense, columns-1, true
					})
				}
			}
		}
	}
	return all
}

// scaled returns the workload with so many rows instead of the full size.
func (w grouping) scaled(rows int) grouping {
	if !w.streams && w.strideRows == 0 || rows != fullGroups {
		w.rows = rows
	}
	w.groups = min(w.groups, w.rows)
	return w
}

// name describes the workload.
func (w grouping) name() string {
	name := fmt.Sprintf("%s rows, %s groups, %s of %d columns, %d/%d bytes", size(w.rows), size(w.groups),
		strings.ToUpper(w.kind.String()), w.columns, w.key, w.value)
	if w.dense {
		name += ", dense"
	}
	if w.form != plain {
		name += ", " + string(w.form)
	}
	if w.streams {
		name += ", streamed"
	}
	if w.zipf > 0 {
		name += fmt.Sprintf(", Zipf %v", w.zipf)
	}
	return name
}

// schema has the key and the values.
func (w grouping) schema() *gpu.Schema {
	fields := []gpu.Field{{Name: "key", Type: integer(w.key), Nullable: w.form == nulls}}
	switch w.form {
	case texts:
		fields[0].Type = gpu.Of(gpu.String)
	case twoKeys:
		fields = append(fields, gpu.Field{Name: "key2", Type: integer(w.key)})
	}
	value := integer(w.value)
	switch w.form {
	case decimals:
		value = gpu.DecimalOf(38, 2)
	case doubles:
		value = gpu.Of(gpu.Float64)
	}
	for i := range w.columns {
		fields = append(fields, gpu.Field{Name: fmt.Sprint("v", i+1), Type: value, Nullable: w.form == nulls})
	}
	return gpu.NewSchema(fields...)
}

// keys is the number of key columns.
func (w grouping) keys() int {
	if w.form == twoKeys {
		return 2
	}
	return 1
}

// spec is the group-by with an algorithm, and with accurate estimates.
func (w grouping) spec(algorithm string) groupby.Spec {
	in := w.schema()
	keys := w.keys()
	s := groupby.Spec{In: in, Out: gpu.NewSchema(slices.Clone(in.Fields[:keys])...), Algorithm: algorithm,
		Hint: gpu.GroupHint{Rows: w.rows, Groups: w.groups, Dense: w.dense && !w.streams, Hi: int64(w.groups - 1)}}
	for i := range keys {
		s.Keys = append(s.Keys, i)
	}
	if algorithm == Chosen {
		s.Algorithm = ""
	}
	if w.streams {
		s.Hint.Groups = 0
		s.Aggregates = []groupby.Aggregate{{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)}}
		s.Out.Fields = append(s.Out.Fields, gpu.Field{Name: "count", Type: gpu.Of(gpu.Int64)})
	}
	for i := keys; i < in.Len(); i++ {
		a := groupby.Aggregate{Kind: w.kind, Input: i, Output: in.Fields[i].Type}
		if w.kind == gpu.Sum {
			a.Output = gpu.SumType(a.Output)
		}
		s.Aggregates = append(s.Aggregates, a)
		s.Out.Fields = append(s.Out.Fields, gpu.Field{Name: in.Fields[i].Name, Type: a.Output,
			Nullable: in.Fields[i].Nullable})
	}
	return s
}

// bytes returns the bytes that must be moved: the columns are read once, and the groups written
// once.
func (w grouping) bytes(groups int64) int64 {
	bytes := func(s *gpu.Schema) (sum int64) {
		for _, f := range s.Fields {
			sum += int64(max(f.Type.Width(), 4)) // a code of a string
		}
		return sum
	}
	s := w.spec("")
	if w.streams { // over the link
		return int64(w.rows) * bytes(s.In)
	}
	return int64(w.rows)*bytes(s.In) + groups*bytes(s.Out)
}

// chosenGroupings returns the workloads of some names; see pickCases.
func chosenGroupings(names []string, rows int) ([]grouping, error) {
	var all []grouping
	for _, w := range groupings() {
		all = append(all, w.scaled(rows))
	}
	return pickCases("groupby", names, GroupFamilies(), all, func(w grouping) (family, text string) {
		return w.family, w.family + ": " + w.chart + ": " + w.at + ": " + w.name()
	})
}

var groupAlgorithms = named{"group-by", groupby.Algorithms, groupby.AlgorithmsOn}

// grouped generates the rows of a grouping. Each is a function of its number.
type grouped struct {
	grouping
	zipf *zipf
}

func newGrouped(w grouping) grouped {
	g := grouped{grouping: w}
	if w.zipf > 0 {
		g.zipf = newZipf(w.groups, w.zipf)
	}
	return g
}

// numberAt is the number of the key of a row.
func (g *grouped) numberAt(row int) int {
	if g.zipf != nil {
		return g.zipf.number(row)
	}
	n, _ := bits.Mul64(draw(drawS, uint64(row)), uint64(g.groups))
	return int(n)
}

// keyAt is the key of a row.
func (g *grouped) keyAt(row int) uint64 {
	number := g.numberAt(row)
	switch {
	case g.dense:
		return uint64(number)
	case g.key == 4:
		return uint64(spread(uint32(number)))
	}
	return mix64(uint64(number) + 1)
}
