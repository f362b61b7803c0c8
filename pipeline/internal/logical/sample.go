package logical

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/source"
)

// sampleRows is the number of rows of a sample. The share of them that passes a condition is
// accurate to some hundredths.
const sampleRows = 8192

// sampleMemory bounds the memory of the sample of a table. If it does not suffice, there is no
// sample.
const sampleMemory = 64 << 20

// smallRows is the number of rows up to which all rows of a table tell which of them pass a filter, if they are one row
// group. It takes some milliseconds. Conditions on a dimension may select a part of the range of its key: the days of a
// year, of which the facts have five, and the dimension two hundred.
const smallRows = 1 << 17

// smallRange is the width of a range up to which its values are counted.
const smallRange = 1 << 20

// minUnique is the number of values from which a sample without equal values counts as a column
// without equal values.
const minUnique = 1000

// sample holds some rows of a table, the same rows for all columns. A column is read when it is
// needed. A column that cannot be read is not sampled.
type sample struct {
	estimator *Estimator
	of        source.Table
	table     source.Sampler
	schema    *gpu.Schema
	rows      float64 // of the table
	most      int     // rows of the sample
	lease     *gpu.Lease
	columns   map[int]gpu.Column
	keys      map[int]keyCount
	integers  map[int][]int64 // of columns of small tables
}

// keyCount is an estimate of the values of a column; zero when unknown.
type keyCount struct {
	distinct float64
	unique   bool // no value occurs twice
}

// sample returns the sample of a table, or nil if the table has none.
func (e *Estimator) sample(t source.Table) *sample {
	return e.sampleOf(t, sampleRows, e.samples)
}

// smallTable returns all rows of a small table, nil for other tables.
func (e *Estimator) smallTable(t source.Table) *sample {
	switch rows := t.Rows(); {
	case rows <= sampleRows:
		return e.sample(t)
	case rows > smallRows:
		return nil
	}
	return e.sampleOf(t, smallRows, e.small)
}

func (e *Estimator) sampleOf(t source.Table, most int, known map[source.Table]*sample) *sample {
	if s, ok := known[t]; ok {
		return s
	}
	s, ok := t.(source.Sampler)
	if !ok {
		known[t] = nil
		return nil
	}
	known[t] = &sample{estimator: e, of: t, table: s, schema: source.SchemaInside(t),
		rows: float64(t.Rows()), most: most,
		lease: host.HeapLease("sample", sampleMemory), columns: map[int]gpu.Column{}, keys: map[int]keyCount{},
		integers: map[int][]int64{}}
	return known[t]
}

// read returns columns of the sampled rows. It is false if one cannot be read.
func (s *sample) read(columns []int) ([]gpu.Column, bool) {
	var missing []int
	for _, c := range columns {
		if _, ok := s.columns[c]; !ok {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		stride, err := s.table.Sample(s.estimator.ctx, s.lease, missing, s.most)
		if err != nil && s.estimator.err == nil {
			s.estimator.err = fmt.Errorf("%s: %w", s.of.Describe(), err)
		}
		for i, c := range missing {
			s.columns[c] = gpu.Column{}
			if err == nil {
				s.columns[c] = stride.Cols[i]
			}
		}
	}
	out := make([]gpu.Column, len(columns))
	for i, c := range columns {
		if out[i] = s.columns[c]; out[i].Len == 0 {
			return nil, false
		}
	}
	return out, true
}

// blockRows is the number of consecutive rows of a block, a part of a page.
const blockRows = 1024

// selectivity returns the fraction of the sampled rows on which a condition is true, that of the blocks of rows in
// which it is true for at least one row, and the number of rows. It is false if the condition cannot be evaluated on
// them.
func (s *sample) selectivity(condition *expr.Expr) (fraction, blocks float64, rows int, ok bool) {
	p := s.evaluate(condition)
	if p == nil {
		return 0, 0, 0, false
	}
	fraction, blocks = p.share()
	return fraction, blocks, p.all, true
}

// passing is the rows of a sample on which a condition is true.
type passing struct {
	*sample
	rows []int
	all  int // rows of the sample
}

// evaluate returns the rows on which a condition is true, nil if it cannot be evaluated on them.
func (s *sample) evaluate(condition *expr.Expr) *passing {
	if s == nil {
		return nil
	}
	program, inputs, err := expr.Compile(s.schema, condition)
	if err != nil || len(inputs) == 0 {
		return nil
	}
	columns, ok := s.read(inputs)
	if !ok {
		return nil
	}
	p := &passing{sample: s, all: columns[0].Len}
	out, err := host.Evaluate(s.lease, program, columns, p.all)
	if err != nil {
		return nil
	}
	defer out[0].Release()
	for i := range p.all {
		if v := out[0].ScalarAt(i); v.Valid && v.Int.Lo != 0 {
			p.rows = append(p.rows, i)
		}
	}
	return p
}

// pass is evaluate, and nil unless the sample is the table.
func (s *sample) pass(condition *expr.Expr) *passing {
	if p := s.evaluate(condition); p != nil && p.all == int(s.rows) {
		return p
	}
	return nil
}

// share returns the fraction of the rows that pass, and that of the blocks of rows of which at least one passes.
func (p *passing) share() (rows, blocks float64) {
	last := -1
	for _, i := range p.rows {
		if i/blockRows > last {
			last = i / blockRows
			blocks++
		}
	}
	kept := max(float64(len(p.rows)), 0.5) // rare rows need not be in a sample
	return kept / float64(p.all), blocks / float64((p.all-1)/blockRows+1)
}

// narrowed returns the statistics of a column with a bound for the rows that pass: their bound, the values of all rows
// within it, and the share of these that have no row that passes.
func (p *passing) narrowed(c ColumnStats) ColumnStats {
	values := p.integersOf(c.column)
	lo, hi := int64(math.MaxInt64), int64(math.MinInt64)
	for _, i := range p.rows {
		if i < len(values) && values[i] != none {
			lo, hi = min(lo, values[i]), max(hi, values[i])
		}
	}
	if lo > hi || uint64(hi)-uint64(lo) >= smallRange {
		return c
	}
	seen := make([]bool, hi-lo+1)
	count := func(v int64) (new float64) {
		if v < lo || v > hi || seen[v-lo] {
			return 0
		}
		seen[v-lo] = true
		return 1
	}
	left, all, rows := 0.0, 0.0, 0.0
	for _, i := range p.rows {
		left += count(values[i])
	}
	all = left
	for _, v := range values {
		all += count(v)
		if v >= lo && v <= hi {
			rows++
		}
	}
	c.bound = &expr.Range{Lo: gpu.Int128From(lo), Hi: gpu.Int128From(hi)}
	c.distinct, c.counted, c.unique, c.ruledOut = all, true, rows == all, 1-left/all
	return c
}

// none is a null among integers.
const none = math.MinInt64

// integersOf returns the values of a column, if they are integers of at most 64 bits.
func (s *sample) integersOf(column int) []int64 {
	if values, ok := s.integers[column]; ok {
		return values
	}
	var values []int64
	if t := s.schema.Fields[column].Type; integerLike(t) && !t.Wide {
		if columns, ok := s.read([]int{column}); ok {
			values = make([]int64, columns[0].Len)
			for i := range values {
				if values[i] = none; columns[0].IsValid(i) {
					values[i] = columns[0].ScalarAt(i).Int.Int64()
				}
			}
		}
	}
	s.integers[column] = values
	return values
}

// count estimates the different values of a column from those of the sampled rows.
func (s *sample) count(column int) keyCount {
	if s == nil {
		return keyCount{}
	}
	if k, ok := s.keys[column]; ok {
		return k
	}
	var k keyCount
	if columns, ok := s.read([]int{column}); ok {
		k = s.countValues(columns[0])
	}
	s.keys[column] = k
	return k
}

func (s *sample) countValues(values gpu.Column) keyCount {
	if values.Type.IsVar() {
		return estimateKeys(s.rows, values, func(v gpu.Scalar) string { return v.Str })
	}
	if values.Type.IsFloat() {
		return estimateKeys(s.rows, values, func(v gpu.Scalar) float64 { return v.Float })
	}
	return estimateKeys(s.rows, values, func(v gpu.Scalar) gpu.Int128 { return v.Int })
}

// estimateKeys estimates the number of different values of a table, which has that many rows, from
// the values of a sample.
func estimateKeys[K comparable](rows float64, values gpu.Column, key func(gpu.Scalar) K) keyCount {
	seen := make(map[K]int32, values.Len)
	n, runs := 0, 0 // values that are not null, runs of equal ones
	var last K
	for i := range values.Len {
		if !values.IsValid(i) {
			continue
		}
		v := key(values.ScalarAt(i))
		if n++; n == 1 || v != last {
			runs++
		}
		last = v
		seen[v]++
	}
	d := float64(len(seen))
	if n == 0 {
		return keyCount{distinct: 1}
	}
	all := rows * float64(n) / float64(values.Len) // values of the table
	once, twice := 0.0, 0.0
	for _, times := range seen {
		switch times {
		case 1:
			once++
		case 2:
			twice++
		}
	}
	switch {
	case values.Len >= int(rows): // the sample is the table
		return keyCount{d, int(d) == n}
	case int(d) == n:
		return keyCount{all, n >= minUnique}
	case runs <= int(d)+1: // equal values lie together, so each run of the table has its own
		return keyCount{min(all, all*d/float64(n)), false}
	case once == 0:
		return keyCount{d, false}
	}
	// Chao's estimate of the values that the sample has missed.
	return keyCount{min(all, d+once*once/(2*max(twice, 1))), false}
}
