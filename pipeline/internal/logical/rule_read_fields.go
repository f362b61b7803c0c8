package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// field is a column inside of a struct of a scan.
type field struct {
	path []string
	id   rel.ID
}

// hasStructs reports whether a node is a scan with columns inside of structs.
func hasStructs(n rel.Node) bool {
	scan, ok := n.(*rel.Scan)
	return ok && len(scan.Inside()) > 0
}

// readFields replaces the fields of structs in expressions by the columns of scans, as far as these columns are below.
// A struct that nothing else uses is not read then.
func readFields(_ *Estimator, root rel.Node) rel.Node {
	inside := map[rel.ID][]field{}
	rel.Visit(root, func(n rel.Node) {
		scan, ok := n.(*rel.Scan)
		if !ok {
			return
		}
		all := scan.Inside()
		for i, f := range all {
			of := scan.Columns[f.Column]
			inside[of] = append(inside[of], field{f.Path, scan.Columns[len(scan.Columns)-len(all)+i]})
		}
	})
	replaced := func(in *rel.Relation, exprs []*expr.Expr) ([]*expr.Expr, bool) {
		out, changed := make([]*expr.Expr, len(exprs)), false
		for i, e := range exprs {
			out[i] = e.Fields(func(column int, path []string) *expr.Expr {
				for _, f := range inside[column] {
					if slices.Equal(f.path, path) && in.Has(f.id) {
						return in.Expr(f.id)
					}
				}
				return nil
			})
			changed = changed || out[i] != e
		}
		return out, changed
	}
	return rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
		n = rel.WithInputs(n, again)
		switch n := n.(type) {
		case *rel.Filter:
			if exprs, changed := replaced(n.In.Rel(), n.Conjuncts); changed {
				return rel.NewFilter(n.Origin, n.In, exprs)
			}
		case *rel.Project:
			if exprs, changed := replaced(n.In.Rel(), n.Exprs); changed {
				return rel.NewProject(n.Origin, n.In, n.Columns, exprs)
			}
		case *rel.Join:
			if exprs, changed := replaced(n.Rel(), n.Residual); changed {
				spec := n.JoinSpec
				spec.Residual = exprs
				j := rel.NewJoin(n.Origin, n.Left, n.Right, spec)
				j.Order = n.Order
				return j
			}
		}
		return n
	})(root)
}
