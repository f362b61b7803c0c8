package logical

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// groupingSets returns which keys each grouping set of a group step has. It returns nil for a group
// without sets.
func (s *stepBinder) groupingSets(g *job.Group, keys []*expr.Expr, names, texts []string) (sets [][]bool, ok bool) {
	n := len(g.By)
	set := func(has func(key int) bool) {
		list := make([]bool, n)
		for i := range list {
			list[i] = has(i)
		}
		sets = append(sets, list)
	}
	ok = true
	switch {
	case g.Rollup:
		for size := n; size >= 0; size-- {
			set(func(key int) bool { return key < size })
		}
	case g.Cube:
		for left := range 1 << n {
			set(func(key int) bool { return left>>(n-1-key)&1 == 0 })
		}
	}
	for i, list := range g.Sets {
		var found []int
		for j, text := range list {
			sub := fmt.Sprintf(".group.sets[%d][%d]", i, j)
			key := keyNamed(text, names, texts)
			switch {
			case key < 0:
				s.faultf(sub,
					"the grouping set has %s, which is not a key of the group%s; a set lists keys of by, "+
						"by their names", text, job.DidYouMean(text, names))
				ok = false
			case slices.Contains(found, key):
				s.faultf(sub, "the grouping set has the key %s twice", text)
				ok = false
			}
			found = append(found, key)
		}
		set(func(key int) bool { return slices.Contains(found, key) })
	}
	if sets == nil || !ok {
		return nil, ok
	}
	for i, k := range keys {
		sub := fmt.Sprintf(".group.by[%d]", i)
		if !slices.ContainsFunc(sets, func(set []bool) bool { return set[i] }) {
			s.faultf(sub,
				"no grouping set has the key %s, so it would be null in every row; take it out of by, or "+
					"add it to a set", names[i])
			ok = false
		}
		if j := slices.IndexFunc(keys, k.Equal); j < i {
			s.faultf(sub,
				"the keys %s and %s have the same values, so a grouping set cannot leave one of them out; take "+
					"one out of by", names[j], names[i])
			ok = false
		}
	}
	return sets, ok
}

// keyNamed returns the position of the key with a name or an expression, or -1.
func keyNamed(text string, names, texts []string) int {
	text = strings.TrimSpace(text)
	if i := slices.Index(names, text); i >= 0 {
		return i
	}
	if i := slices.Index(texts, text); i >= 0 {
		return i
	}
	return slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) })
}

// mergesSets reports whether the groups of the finest set are computed first, and then merged to
// the groups of the other sets. That reads the rows once, instead of once for each set. It needs a
// set with all keys, and aggregates whose partial results can be merged.
func mergesSets(calls []expr.AggregateCall, sets [][]bool) bool {
	if len(sets) < 2 || !slices.ContainsFunc(sets, func(set []bool) bool { return !slices.Contains(set, false) }) {
		return false
	}
	if needSort(calls) {
		return false
	}
	for _, c := range calls {
		m := partial{kind: c.Kind, arg: c.Arg}
		if c.Kind == gpu.Avg {
			m.kind = gpu.Sum
		}
		if c.Distinct || !m.mergeable() {
			return false
		}
	}
	return true
}

// expandSets returns each row of a node once for each grouping set. Keys that are not in the set
// are null. The last key is the number of the set, so that a null of the data and a key that is
// left out are in different groups. The columns of the node stay as they are, for the arguments of
// aggregates. expandSets also returns the keys, and the groups of the empty sets, which have one
// row even if the node has none.
func (s *stepBinder) expandSets(in rel.Node, keys []*expr.Expr, names []string,
	sets [][]bool) (_ rel.Node, by []*expr.Expr, always [][]gpu.Scalar) {
	in, ids := rel.Extend(in, keys, names)
	var copies []rel.Copy
	for k, id := range ids {
		if !slices.ContainsFunc(sets, func(set []bool) bool { return !set[k] }) {
			continue
		}
		column := s.md.Column(id)
		column.Nullable = true
		ids[k] = s.md.Add(column)
		copies = append(copies, rel.Copy{Out: ids[k], From: id})
	}
	nulls := make([][]rel.ID, len(sets))
	for i, set := range sets {
		for k, has := range set {
			if !has {
				nulls[i] = append(nulls[i], ids[k])
			}
		}
		if slices.Contains(set, true) {
			continue
		}
		var group []gpu.Scalar
		for _, k := range keys {
			group = append(group, gpu.Null(k.Type()))
		}
		always = append(always, append(group, gpu.IntScalar(rel.VariantType, int64(i))))
	}
	number := s.md.Add(rel.Column{Field: gpu.Field{Name: expr.SetColumn, Type: rel.VariantType}})
	n := rel.NewExpand(s.here(), in, copies, nulls, number)
	return n, n.Exprs(append(ids, number)), always
}
