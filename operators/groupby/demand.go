package groupby

import (
	"math"

	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// tableGroups returns the maximum number of groups of a lane's table between strides. With several
// lanes, whose groups are merged anyway, the table stays within a core's cache, unless the lane has many
// rows of each group.
func (o *hashGroupBy) tableGroups(budget int64, lanes int) int {
	most := max(1, int(grant.GroupTables.Among(budget, lanes)/o.groupBytes()))
	if lanes > 1 {
		most = min(most, max(flushGroups, o.boundIn(lanes)))
	}
	return most
}

// boundIn returns the planner's bound of the groups if each lane has many rows of each group, otherwise 0.
func (o *hashGroupBy) boundIn(lanes int) int {
	if o.Hint.Most > o.Hint.Rows/(directRows*lanes) {
		return 0
	}
	return o.Hint.Most
}

// always reports whether all groups spill. A single group has no keys to be partitioned by.
func (o *hashGroupBy) always(t operators.Task) bool { return t.Spill.Always() && len(o.Keys) > 0 }

// groupBytes is about the size of a group in a table, in bytes.
func (o *hashGroupBy) groupBytes() int64 {
	const index = 16 // slots and their hashes
	return int64(o.partials.RowBytes()) + index
}

// Demand implements operators.Demanding. Rows of partial aggregates spill. Tables that are indexed
// by the key do not, nor does the table of a single lane that need not flush it.
func (o *hashGroupBy) Demand(e operators.Expected) operators.Demand {
	if len(o.Keys) == 0 || e.Out < 1 {
		return operators.Demand{}
	}
	group := max(float64(o.groupBytes()), e.OutBytes/e.Out)
	flushed := func(room float64) float64 {
		return group * partialRows(e.Rows, e.Out, float64(o.tableGroups(int64(min(room, math.MaxInt64/2)), e.Lanes)),
			e.Lanes)
	}
	d := operators.Demand{Bytes: flushed(math.Inf(1))}
	if o.offset != nil {
		d.Bytes = group * float64(e.Lanes) * (float64(o.span()) + 1)
	}
	d.Spilled = func(room float64) float64 {
		if o.directIn(int64(room), e.Lanes) || e.Lanes == 1 && group*e.Out <= grant.GroupTables.Part(room) {
			return 0
		}
		return max(0, flushed(room)-spill.Room(room))
	}
	return d
}

// partialRows estimates the number of rows of partial aggregates that lanes make from rows in
// random order. A lane flushes its table when it has table groups, which takes −groups·ln(1 −
// table/groups) rows.
func partialRows(rows, groups, table float64, lanes int) float64 {
	if groups <= table {
		return min(rows, groups*float64(lanes))
	}
	reduction := -math.Log1p(-table/groups) * groups / table
	return max(min(groups, rows), rows/reduction)
}
