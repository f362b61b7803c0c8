package window

import (
	"slices"

	"github.com/gstream/gstream/gpu"
)

// rowRange is the rows [from, to) for each row. It is empty if to is before from.
type rowRange struct{ from, to gpu.Column }

// ranges has the frame of each row: one range, or those before, between and after the rows that the
// frame excludes.
func (c *calculation) ranges(f Frame) []rowRange {
	from, to := c.frame(f)
	out, behind := c.rows(), c.next() // what is excluded
	switch f.Exclude {
	case NoOthers:
		return []rowRange{{from, to}}
	case ExcludeGroup, ExcludeTies:
		out, behind = c.start(peers), c.end(peers)
	}
	list := []rowRange{{from, c.least(to, out)}, {c.greatest(from, behind), to}}
	if f.Exclude == ExcludeTies {
		own := rowRange{c.greatest(from, c.rows()), c.least(to, c.next())}
		list = slices.Insert(list, 1, own)
	}
	return list
}

// least and greatest are those of two row ids.
func (c *calculation) least(x, y gpu.Column) gpu.Column {
	p := newProgram(int32Type, int32Type)
	return c.eval(p, p.choose(int32Type, p.op(gpu.OpLt, boolType, 0, 1), 0, 1), x, y)
}

func (c *calculation) greatest(x, y gpu.Column) gpu.Column {
	p := newProgram(int32Type, int32Type)
	return c.eval(p, p.choose(int32Type, p.op(gpu.OpLt, boolType, 0, 1), 1, 0), x, y)
}

// bounds makes the bounds of ranges the next inputs of a program, and returns the columns.
func (p *program) bounds(rows []rowRange) (columns []gpu.Column) {
	for _, r := range rows {
		columns = append(columns, r.from, r.to)
		p.Inputs = append(p.Inputs, int32Type, int32Type)
	}
	return columns
}

// rangeSize is the number of rows of range i, whose bounds are the inputs from first on.
func (p *program) rangeSize(first, i int) int {
	from, to := first+2*i, first+2*i+1
	return p.greatest(p.minus(p.long(to), p.long(from)), p.number(int64Type, 0))
}

// sizes is the number of rows of all ranges, whose bounds are the inputs.
func (p *program) sizes(rows []rowRange) (sum int, bounds []gpu.Column) {
	bounds = p.bounds(rows)
	sum = p.rangeSize(0, 0)
	for i := range rows[1:] {
		sum = p.plus(sum, p.rangeSize(0, i+1))
	}
	return sum, bounds
}

// inFrame has the row of the frame that first_value, last_value and nth_value select, -1 for none.
func (c *calculation) inFrame(f Function, offset gpu.Column) gpu.Column {
	rows := c.ranges(f.Frame)
	var list gpu.Column
	if f.IgnoreNulls { // the ranges are those of a list of the rows with a value
		list = c.withValue(c.cols[f.Value])
		for i, r := range rows {
			rows[i] = rowRange{c.rankIn(list, r.from), c.rankIn(list, r.to)}
		}
	}
	if c.err != nil {
		return gpu.Column{}
	}
	p := newProgram(int64Type)
	in := append([]gpu.Column{offset}, p.bounds(rows)...)
	one, none := p.number(int64Type, 1), p.number(int64Type, -1)
	left := one // how many rows to go, from the first range or from the last
	if f.Kind == NthValue {
		left = p.choose(int64Type, p.op(gpu.OpLt, boolType, 0, one), none, p.bounded(0))
	}
	order := make([]int, len(rows))
	for i := range rows {
		if order[i] = i; f.Kind == LastValue {
			order[i] = len(rows) - 1 - i
		}
	}
	var inside, at []int // of each range
	for _, i := range order {
		size := p.rangeSize(1, i)
		inside = append(inside, p.op(gpu.OpAnd, boolType, p.op(gpu.OpGe, boolType, left, one),
			p.op(gpu.OpLe, boolType, left, size)))
		if f.Kind == LastValue {
			at = append(at, p.minus(p.long(1+2*i+1), left))
		} else {
			at = append(at, p.minus(p.plus(p.long(1+2*i), left), one))
		}
		left = p.minus(left, size)
	}
	id := none
	for k := range slices.Backward(order) {
		id = p.choose(int64Type, inside[k], at[k], id)
	}
	found := rowIDs(c.eval(p, p.cast(int32Type, id), in...))
	if !f.IgnoreNulls {
		return found
	}
	p = newProgram(int32Type)
	row := p.choose(int32Type, p.op(gpu.OpIsNotNull, boolType, 0), 0, p.number(int32Type, -1))
	return rowIDs(c.eval(p, row, c.gather(list, found, true)))
}
