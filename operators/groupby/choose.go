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

// fewRows is the number of rows below which a stride is not worth tables of blocks. They cost a
// wait for the number of groups of each stride, and the merge of these groups, which is more than
// they save. With strides from page-locked memory the table in device memory uses at least 95 % of
// the link's bandwidth, and tables of blocks use 2 to 15 % less.
var fewRows = 1 << 24

const (
	// cachedGroups is the number of groups up to which a table in device memory is faster than
	// partitioning, if the values take many words.
	cachedGroups = 1 << 15
	// twoPassGroups is the number of groups up to which that table is faster than two passes over
	// columns of 16 bytes.
	twoPassGroups = 1 << 21
	// unknownGroups is the number of groups for which rows are partitioned if nothing is known.
	unknownGroups = 1 << 20
	// passBits is the number of hash bits by which a GPU partitions in one pass.
	passBits = 8
	// plannedStride is the number of rows in a stride of a scan for a GPU.
	plannedStride = 1 << 21
)

// Plan returns the algorithm that a group-by will probably use on a device, by the planner's
// estimates. Unknown properties default to those of an H200.
func (s Spec) Plan(device gpu.Properties) Choice {
	o := s.state()
	return o.decide(device, plannedStride, o.planned())
}

// planned returns what the planner knows about the key.
func (o *hashGroupBy) planned() domain {
	d := domain{bytes: 8}
	if len(o.Keys) == 1 {
		d = domain{bytes: max(4, o.In.Fields[o.Keys[0]].Type.Width()), dense: o.Hint.Dense, lo: uint64(o.Hint.Lo),
			span: o.span()}
	}
	return d
}

// expected returns the expected number of groups of a stride, 0 if unknown: at first the planner's
// estimate, then the number of the last stride.
func (o *hashGroupBy) expected() int { return int(o.expect.Load()) }

// decide returns the algorithm for strides with a number of rows and a domain of keys.
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
	case !p.BlockTables: // one table per core is fastest
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

// fitsBlocks reports whether a number of groups fits tables of blocks over all rows. Dense keys may
// take all slots, other keys half of the slots, or, with a dictionary of keys apart from the
// aggregates, two thirds of the dictionary. Values other than plain integers take so many words
// that the groups must fit twice.
func (o *hashGroupBy) fitsBlocks(p gpu.Properties, groups int, keys domain) bool {
	table, dense := o.blockSlots(p, keys.bytes, false), o.blockSlots(p, 0, true)*31/32
	if !o.plainValues() {
		return groups <= table/4 || keys.dense && keys.span < uint64(dense/2)
	}
	dictionary := shared(p) / keys.bytes * 15 / 16
	return groups <= table/2 || keys.dense && keys.span < uint64(dense) || groups <= min(dense*15/16, dictionary*2/3)
}

// nulls reports whether the values may have nulls.
func (o *hashGroupBy) nulls() bool {
	return slices.ContainsFunc(o.accumulated,
		func(m partialAggregate) bool { return m.input >= 0 && o.In.Fields[m.input].Nullable })
}

// any reports whether values of a type are aggregated.
func (o *hashGroupBy) any(is func(gpu.Type) bool) bool {
	return slices.ContainsFunc(o.accumulated,
		func(m partialAggregate) bool {
			return m.input >= 0 && m.kind != gpu.Count && is(o.In.Fields[m.input].Type)
		})
}

// plainValues reports whether all values are integers of 4 or 8 bytes without nulls, by the schema.
func (o *hashGroupBy) plainValues() bool {
	return !slices.ContainsFunc(o.accumulated, func(m partialAggregate) bool {
		if m.input < 0 {
			return false
		}
		f := o.In.Fields[m.input]
		w := f.Type.Width()
		return f.Nullable || m.kind != gpu.Count && (f.Type.IsFloat() || w != 4 && w != 8)
	})
}

// shared returns the bytes of a block's shared memory that tables may take.
func shared(p gpu.Properties) int {
	if p.Shared == 0 {
		return 225 << 10
	}
	return int(p.Shared) - 2048
}

// blockSlots returns the number of slots of a table in a block's shared memory. slot is the size of
// a key in bytes. The carries of a sum take a word, or half a word if halves is set.
func (o *hashGroupBy) blockSlots(p gpu.Properties, slot int, halves bool) int {
	carries := 0
	for _, m := range o.accumulated {
		words, sums := o.words(m)
		slot += 4 * words
		carries += sums
	}
	if halves {
		carries = (carries + 1) / 2
	}
	return shared(p) / max(slot+4*carries, 1)
}

// words returns the number of 32-bit words that a partial aggregate takes in a slot of a block's table, and
// the number of its sums with carries. Values with nulls are counted, too.
func (o *hashGroupBy) words(m partialAggregate) (words, sums int) {
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
	if f.Nullable && !slices.Contains(o.accumulated, partialAggregate{gpu.Count, m.input}) {
		words++
	}
	return words, sums
}

// partitionBits returns the number of hash bits by which rows are partitioned. If the groups of a
// partition take three sixteenths of the slots of a table, most look-ups need one probe. A second
// pass pays off if the groups would take half of the slots after one pass. One more bit then costs
// little, and lets two blocks share a multiprocessor.
func (o *hashGroupBy) partitionBits(p gpu.Properties, groups, bytes int) uint {
	slots := o.blockSlots(p, bytes, false)
	if groups>>passBits > slots/2 {
		return uint(min(bits.Len(uint(groups-1)/uint(slots*3/8))+1, 16))
	}
	return uint(max(1, min(bits.Len(uint(max(groups-1, 0)/(slots*3/16))), passBits)))
}

// took records the algorithm that aggregated a stride, and the number of its groups.
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

// fallback returns the next algorithm for a stride after the error of an algorithm: more groups
// than were expected, keys or values that it does not take, or too little memory.
func (o *hashGroupBy) fallback(c Choice, rows int, err error) Choice {
	if gpu.IsOutOfMemory(err) {
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

// tablesOfAllRows reports whether the algorithm does not partition the rows.
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
