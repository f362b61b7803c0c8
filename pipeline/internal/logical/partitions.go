package logical

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

// Wanted reports for each of n parts of a table, such as its files, whether a plan needs rows of
// it. parts maps the names of columns that are constant within each part to their values, one for
// each part. A part is not needed if a condition over such columns alone, which can move to the
// scan, is not true for it. A condition whose evaluation fails rules out no part.
func Wanted(o rel.Output, t source.Table, n int, parts map[string][]gpu.Scalar) []bool {
	wanted := make([]bool, n)
	scan := func(in rel.Node, conjuncts []*expr.Expr) bool {
		s, ok := in.(*rel.Scan)
		if ok && s.Table == t {
			for i, keep := range partsWith(s, conjuncts, n, parts) {
				wanted[i] = wanted[i] || keep
			}
		}
		return ok
	}
	rel.Remembered(func(in rel.Node, again func(rel.Node) rel.Node) rel.Node {
		if f, ok := in.(*rel.Filter); ok && scan(f.In, f.Conjuncts) || scan(in, nil) {
			return in
		}
		return rel.WithInputs(in, again)
	})(pushDown(o.Root))
	return wanted
}

// partsWith returns the parts on which the conditions may be true.
func partsWith(scan *rel.Scan, conjuncts []*expr.Expr, n int, parts map[string][]gpu.Scalar) []bool {
	keep := make([]bool, n)
	for i := range keep {
		keep[i] = true
	}
	schema := scan.Table.Schema()
	lease := host.HeapLease("parts", 0)
	for _, c := range conjuncts {
		program, inputs, err := expr.Compile(schema, c.Remap(scan.At))
		columns := make([]gpu.Column, len(inputs))
		for i, input := range inputs {
			values, ok := parts[schema.Fields[input].Name]
			if !ok {
				columns = nil
				break
			}
			columns[i] = gpu.ColumnOf(schema.Fields[input].Type, values)
		}
		if err != nil || len(columns) == 0 {
			continue
		}
		out, err := host.Evaluate(lease, program, columns, n)
		if err != nil {
			continue
		}
		for i := range keep {
			v := out[0].ScalarAt(i)
			keep[i] = keep[i] && v.Valid && v.Int.Lo != 0
		}
	}
	return keep
}
