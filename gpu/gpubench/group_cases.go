package gpubench

import (
	"fmt"
	"math/bits"
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
	columns           int     // that are aggregated
	key, value        int     // bytes a value, 4 or 8
	kind              gpu.AggregateKind
}

// fullGroups is the number of rows, which Options.Rows replaces.
const fullGroups = 1 << 28

// GroupFamilies are the groups of workloads of the benchmark groupby.
func GroupFamilies() []string {
	return []string{"acceptance", "groups", "max", "zipf", "widths", "columns"}
}

// groupings are the workloads of Wu et al. (SIGMOD 2025, §5.2): two columns of 4 bytes, by keys of
// 4 bytes, of which one thing varies.
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
			add("groups", "every number of groups of dense keys", power(log), func(w *grouping) { w.groups, w.dense = 1<<log, true })
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
			add("widths", "bytes of keys and values, "+power(log)+" groups", fmt.Sprintf("%d/%d", b[0], b[1]), func(w *grouping) { w.groups, w.key, w.value = 1<<log, b[0], b[1] })
		}
		for _, n := range []int{1, 2, 4, 8} {
			add("columns", "columns, "+power(log)+" groups", fmt.Sprint(n), func(w *grouping) { w.groups, w.columns = 1<<log, n })
		}
	}
	return all
}

// scaled returns the workload with rows instead of the full size.
func (w grouping) scaled(rows int) grouping {
	w.rows, w.groups = rows, min(w.groups, rows)
	return w
}

// name says what the workload is.
func (w grouping) name() string {
	name := fmt.Sprintf("%s rows, %s groups, %s of %d columns, %d/%d bytes", size(w.rows), size(w.groups), strings.ToUpper(w.kind.String()), w.columns, w.key, w.value)
	if w.dense {
		name += ", dense"
	}
	if w.zipf > 0 {
		name += fmt.Sprintf(", Zipf %v", w.zipf)
	}
	return name
}

// schema is the key and the values.
func (w grouping) schema() *gpu.Schema {
	fields := []gpu.Field{{Name: "key", Type: integer(w.key)}}
	for i := range w.columns {
		fields = append(fields, gpu.Field{Name: fmt.Sprint("v", i+1), Type: integer(w.value)})
	}
	return gpu.NewSchema(fields...)
}

// spec is the group-by by an algorithm, with the estimates of a planner that knows the table well.
func (w grouping) spec(algorithm string) groupby.Spec {
	in := w.schema()
	s := groupby.Spec{In: in, Keys: []int{0}, Out: gpu.NewSchema(in.Fields[0]), Algorithm: algorithm,
		Hint: gpu.GroupHint{Rows: w.rows, Groups: w.groups, Dense: w.dense, Hi: int64(w.groups - 1)}}
	if algorithm == Chosen {
		s.Algorithm = ""
	}
	for i := range w.columns {
		a := groupby.Aggregate{Kind: w.kind, Input: 1 + i, Output: in.Fields[1+i].Type}
		if w.kind == gpu.Sum {
			a.Output = gpu.SumType(a.Output)
		}
		s.Aggregates = append(s.Aggregates, a)
		s.Out.Fields = append(s.Out.Fields, gpu.Field{Name: in.Fields[1+i].Name, Type: a.Output})
	}
	return s
}

// bytes are those that must be moved at least: the columns are read once, and the groups written.
func (w grouping) bytes(groups int64) int64 {
	out := w.key
	for _, a := range w.spec("").Aggregates {
		out += a.Output.Width()
	}
	return int64(w.rows)*int64(w.key+w.columns*w.value) + groups*int64(out)
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

// grouped draws the rows of a grouping, each a function of its number.
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

// keyAt is the key of a row.
func (g *grouped) keyAt(row int) uint64 {
	number := 0
	if g.zipf != nil {
		number = g.zipf.number(row)
	} else {
		n, _ := bits.Mul64(draw(drawS, uint64(row)), uint64(g.groups))
		number = int(n)
	}
	switch {
	case g.dense:
		return uint64(number)
	case g.key == 4:
		return uint64(spread(uint32(number)))
	}
	return mix64(uint64(number) + 1)
}
