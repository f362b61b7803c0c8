package groupby

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/gstream/gstream/gpu"
)

// Choice is the algorithm for a stride and a reason in one line.
type Choice struct{ Algorithm, Why string }

// String returns the line that explain shows, "" if there was no choice.
func (c Choice) String() string {
	if c.Why == "" {
		return ""
	}
	return "algorithm " + c.Algorithm + ": " + c.Why
}

// fewRows is a stride that is not worth tables of blocks. They save less than they cost: the wait for the
// number of groups of each stride, and the merge of these groups. With strides from page-locked memory the
// table in device memory keeps 95 % of the link busy or more, and they keep 2 to 15 % less.
var fewRows = 1 << 24

const (
	// cachedGroups is the groups for which a table in device memory is ahead of partitions, if the values
	// take many words.
	cachedGroups = 1 << 15
	// twoPassGroups is the groups for which that table is ahead of two passes over columns of 16 bytes.
	twoPassGroups = 1 << 21
	// unknownGroups is the groups for which rows are partitioned if nothing is known.
	unknownGroups = 1 << 20
	// passBits is the bits of a hash by which a GPU partitions in one pass.
	passBits = 8
	// plannedStride is the rows of a stride of a scan for a GPU.
	plannedStride = 1 << 21
)

// Plan returns the algorithm that a group-by will probably take on a device, by the planner's
// estimates. Properties that are not known count as those of an H200.
func (s Spec) Plan(device gpu.Properties) Choice {
	o := s.state()
	return o.decide(device, plannedStride, o.planned())
}

// planned returns what the planner knows of the key.
func (o *hashGroupBy) planned() domain {
	d := domain{bytes: 8}
	if len(o.Keys) == 1 {
		d = domain{bytes: max(4, o.In.Fields[o.Keys[0]].Type.Width()), dense: o.Hint.Dense, lo: uint64(o.Hint.Lo),
			span: o.span()}
	}
	return d
}

// expected returns how many groups a stride probably has; 0 is not known. The planner's estimate
// comes first, then what strides had.
func (o *hashGroupBy) expected() int { return int(o.expect.Load()) }

// decide returns the algorithm for strides of some rows with keys of a domain.
func (o *hashGroupBy) decide(p gpu.Properties, rows int, keys domain) Choice {
	unfit := o.fitsTables()
	switch {
	case len(o.Keys) == 0 && o.Algorithm != "":
		return Choice{hgbG, "there is no key"}
	case len(o.Keys) == 0: // one group
		return Choice{Algorithm: hgbG}
	case o.Algorithm != "" && o.named(o.Algorithm).tables && unfit != nil:
		return Choice{hgbG, fmt.Sprintf("%s does not take %v", o.Algorithm, unfit)}
	case o.Algorithm != "":
		return Choice{o.Algorithm, "the job says so"}
	case !p.BlockTables: // one table a core is fastest
		return Choice{Algorithm: hgbG}
	case unfit != nil:
		return Choice{hgbG, "tables of blocks do not take " + unfit.Error()}
	case rows < fewRows:
		return Choice{hgbG, "strides of few rows"}
	}
	expect := o.expected()
	groups := "an unknown number of groups"
	if expect > 0 {
		groups = fmt.Sprintf("about %s groups", humanize.Comma(int64(expect)))
	}
	switch {
	case expect <= cachedGroups && o.nulls():
		return Choice{hgbG, groups + " of values with nulls"}
	case o.fitsBlocks(p, expect, keys):
		return Choice{"hgb", groups + " fit tables of blocks"}
	case o.skewed.Load() && o.plainValues():
		return Choice{"hgb", "few have nearly all rows, of " + groups}
	case expect <= cachedGroups && !o.plainValues() && !o.any(gpu.Type.IsFloat),
		expect <= twoPassGroups && o.any(func(t gpu.Type) bool { return t.Wide }) &&
			o.partitionBits(p, expect, keys.bytes) > passBits:
		return Choice{hgbG, groups + " of values of many bytes"}
	}
	return Choice{pgbTR, fmt.Sprintf("%s in %s partitions", groups,
		humanize.Comma(1<<o.partitionBits(p, expect, keys.bytes)))}
}

// fitsBlocks reports whether some groups fit tables of blocks of all rows: all slots of dense keys, half of the
// slots of others, or with keys apart from the aggregates two thirds of a dictionary. Values that are not plain
// integers take so many words that the groups must have twice the room.
func (o *hashGroupBy) fitsBlocks(p gpu.Properties, groups int, keys domain) bool {
	table, dense := o.blockSlots(p, keys.bytes, false), o.blockSlots(p, 0, true)*31/32
	if !o.plainValues() {
		return groups <= table/4 || keys.dense && keys.span < uint64(dense/2)
	}
	dictionary := shared(p) / keys.bytes * 15 / 16
	return groups <= table/2 || keys.dense && keys.span < uint64(dense) || groups <= min(dense*15/16, dictionary*2/3)
}

// nulls reports whether there may be nulls among the values.
func (o *hashGroupBy) nulls() bool {
	return slices.ContainsFunc(o.measured,
		func(m measure) bool { return m.input >= 0 && o.In.Fields[m.input].Nullable })
}

// any reports whether values of a type are aggregated.
func (o *hashGroupBy) any(is func(gpu.Type) bool) bool {
	return slices.ContainsFunc(o.measured,
		func(m measure) bool { return m.input >= 0 && m.kind != gpu.Count && is(o.In.Fields[m.input].Type) })
}

// plainValues reports whether all values are integers of 4 or 8 bytes without nulls, by the schema.
func (o *hashGroupBy) plainValues() bool {
	return !slices.ContainsFunc(o.measured, func(m measure) bool {
		if m.input < 0 {
			return false
		}
		f := o.In.Fields[m.input]
		w := f.Type.Width()
		return f.Nullable || m.kind != gpu.Count && (f.Type.IsFloat() || w != 4 && w != 8)
	})
}

// shared returns the shared memory of a block that tables may take.
func shared(p gpu.Properties) int {
	if p.Shared == 0 {
		return 225 << 10
	}
	return int(p.Shared) - 2048
}

// blockSlots returns the slots of a table in the shared memory of a block, for keys of some bytes, where sums carry
// into whole words or into halves.
func (o *hashGroupBy) blockSlots(p gpu.Properties, slot int, halves bool) int {
	carries := 0
	for _, m := range o.measured {
		words, sums := o.words(m)
		slot += 4 * words
		carries += sums
	}
	if halves {
		carries = (carries + 1) / 2
	}
	return shared(p) / max(slot+4*carries, 1)
}

// words returns the words of 32 bits that a table of a block has of a measure, and how many sums with
// carries. Values with nulls are also counted.
func (o *hashGroupBy) words(m measure) (words, sums int) {
	if m.input < 0 || m.kind == gpu.Count {
		return 1, 0
	}
	f := o.In.Fields[m.input]
	words = max(1, f.Type.Width()/4)
	if m.kind == gpu.Sum {
		if sums = 1; f.Type.Wide || f.Type.IsFloat() {
			words, sums = 4, 2
		}
	}
	if f.Nullable && !slices.Contains(o.measured, measure{gpu.Count, m.input}) {
		words++
	}
	return words, sums
}

// partitionBits returns the bits of the hash by which rows of some groups are partitioned. A group is found
// at once if those of a partition take three sixteenths of the slots of a table. The second pass is worth
// it if they would take half. One more bit costs little then, and lets two blocks share a multiprocessor.
func (o *hashGroupBy) partitionBits(p gpu.Properties, groups, bytes int) uint {
	slots := o.blockSlots(p, bytes, false)
	if groups>>passBits > slots/2 {
		return uint(min(bits.Len(uint(groups-1)/uint(slots*3/8))+1, 16))
	}
	return uint(max(1, min(bits.Len(uint(max(groups-1, 0)/(slots*3/16))), passBits)))
}

// took notes which algorithm took a stride, and how many groups there were.
func (o *hashGroupBy) took(c Choice, groups int) {
	o.expect.Store(int64(groups))
	if c.Why == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.ContainsFunc(o.chosen, func(x Choice) bool { return x.Algorithm == c.Algorithm }) {
		o.chosen = append(o.chosen, c)
	}
}

// fallback returns the next algorithm for a stride that one could not take, by its error: it had more
// groups than were expected, or too little memory.
func (o *hashGroupBy) fallback(c Choice, rows int, err error) Choice {
	if gpu.IsRefusal(err) {
		return Choice{hgbG, c.Algorithm + " had too little memory"}
	}
	if errors.Is(err, gpu.ErrUnfit) {
		o.unfit.Store(&err)
		return Choice{hgbG, "tables of blocks do not take " + err.Error()}
	}
	more := max(16*o.expected(), unknownGroups)
	if o.Algorithm != "" && c.tablesOfAllRows() || more > rows/2 && !c.tablesOfAllRows() {
		return Choice{hgbG, "more groups than fit " + c.Algorithm}
	}
	o.expect.Store(int64(more))
	o.skewed.Store(false)
	if c.Algorithm == "hgb" {
		c.Algorithm = pgbTR
	}
	return Choice{c.Algorithm, "more groups than were expected"}
}

// tablesOfAllRows reports whether all rows are one partition.
func (c Choice) tablesOfAllRows() bool { return c.Algorithm == "hgb" || c.Algorithm == "hgb-t" }

// Choice implements operators.Choosing.
func (o *hashGroupBy) Choice() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []string
	for _, c := range o.chosen {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "; ")
}
