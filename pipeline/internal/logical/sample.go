package logical

import (
	"fmt"

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
	lease     *gpu.Lease
	columns   map[int]gpu.Column
	keys      map[int]keyCount
}

// keyCount is an estimate of the values of a column; zero when unknown.
type keyCount struct {
	distinct float64
	unique   bool // no value occurs twice
}

// sample returns the sample of a table, or nil if the table has none.
func (e *Estimator) sample(t source.Table) *sample {
	if known, ok := e.samples[t]; ok {
		return known
	}
	s, ok := t.(source.Sampler)
	if !ok {
		e.samples[t] = nil
		return nil
	}
	e.samples[t] = &sample{estimator: e, of: t, table: s, schema: t.Schema(), rows: float64(t.Rows()),
		lease: host.HeapLease("sample", sampleMemory), columns: map[int]gpu.Column{}, keys: map[int]keyCount{}}
	return e.samples[t]
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
		stride, err := s.table.Sample(s.estimator.ctx, s.lease, missing, sampleRows)
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
	if s == nil {
		return 0, 0, 0, false
	}
	program, inputs, err := expr.Compile(s.schema, condition)
	if err != nil || len(inputs) == 0 {
		return 0, 0, 0, false
	}
	columns, ok := s.read(inputs)
	if !ok {
		return 0, 0, 0, false
	}
	rows = columns[0].Len
	out, err := host.Evaluate(s.lease, program, columns, rows)
	if err != nil {
		return 0, 0, 0, false
	}
	defer out[0].Release()
	kept, last := 0.0, -1
	for i := range rows {
		if v := out[0].ScalarAt(i); v.Valid && v.Int.Lo != 0 {
			kept++
			if i/blockRows > last {
				last = i / blockRows
				blocks++
			}
		}
	}
	if kept == 0 {
		kept = 0.5 // rare rows need not be in a sample
	}
	return kept / float64(rows), blocks / float64((rows-1)/blockRows+1), rows, true
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
