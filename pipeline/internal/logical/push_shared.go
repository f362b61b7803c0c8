package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// mostShared is the number of shared steps to which conditions move. Each takes a pass over the plan.
const mostShared = 64

// intoShared moves conditions into the steps that several readers share. A row that no reader keeps is not computed:
// the rows of a step meet the conditions of one of its readers, if all have conditions. Each reader still tests its
// own.
func (down *pushing) intoShared(root rel.Node) rel.Node {
	done := map[*rel.Share]bool{}
	for range mostShared {
		step, conditions := wanted(root, done)
		if step == nil {
			break
		}
		held := rel.NewMaterialized(down.below(step.In, factored(conditions)), step.Share)
		root = rel.Remembered(func(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
			if m, ok := n.(*rel.Materialized); ok && m.Share == held.Share {
				return held
			}
			return rel.WithInputs(n, again)
		})(root)
	}
	return root
}

// wanted returns a step all of whose readers have conditions, and the disjunction of these. It is nil if there is none
// besides those that are done. A step comes before those that are parts of it, which it reads with its conditions.
func wanted(root rel.Node, done map[*rel.Share]bool) (*rel.Materialized, []*expr.Expr) {
	var steps []*rel.Materialized // parts first
	readers, all := map[*rel.Share][]*expr.Expr{}, map[*rel.Share]bool{}
	rel.Visit(root, func(n rel.Node) {
		for _, in := range rel.Inputs(n) {
			m, ok := in.(*rel.Materialized)
			if !ok || done[m.Share] {
				continue
			}
			var conditions []*expr.Expr
			if f, ok := n.(*rel.Filter); ok {
				conditions = slices.DeleteFunc(slices.Clone(f.Conjuncts), (*expr.Expr).MayFail)
			}
			readers[m.Share] = append(readers[m.Share], expr.And(conditions...))
			all[m.Share] = all[m.Share] || len(conditions) == 0
		}
		if m, ok := n.(*rel.Materialized); ok && !done[m.Share] {
			steps = append(steps, m)
		}
	})
	for _, m := range slices.Backward(steps) {
		done[m.Share] = true
		if m != root && !all[m.Share] {
			return m, []*expr.Expr{expr.Or(readers[m.Share]...)}
		}
	}
	return nil, nil
}
