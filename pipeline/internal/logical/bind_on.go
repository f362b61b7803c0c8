package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/join"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// joinedBySubquery is a join with subqueries in its condition. They are computed for the pairs of rows. An inner join
// keeps the pairs for which the condition is true. For any other one, the sides whose rows decide get numbers, and are
// joined with the pairs by these. The right side may use the columns `outer` of the left one.
func (b *queryBinder) joinedBySubquery(t *syntax.JoinedTable, l *level, left, right *Relation,
	outer []rel.ID) (*Relation, error) {
	kind := sqlJoins[t.Kind]
	x, y := numberedSide{all: left, pairs: left}, numberedSide{all: right, pairs: right}
	if kind != join.Inner && kind != join.Right {
		x = b.numberedSide(left)
	}
	if kind == join.Right || kind == join.Full {
		y = b.numberedSide(right)
	}
	both := &Relation{columns: slices.Concat(x.all.columns, y.all.columns),
		unreadable: slices.Concat(left.unreadable, right.unreadable)}
	pairs, err := b.paired(t.Right, x.pairs, y.pairs, outer)
	if err != nil {
		return nil, err
	}
	on := &level{outer: l.outer, names: pairs, node: pairs.node, free: l.free, catalog: l.catalog}
	e, err := b.bound(on, t.On)
	if err == nil {
		e, err = truth(t.On, e, "ON")
	}
	if err != nil {
		return nil, err
	}
	matched := rel.NewFilter(b.here(), on.node, expr.Conjuncts(e))
	byNumber := func(kind join.Kind, left, right rel.Node, x, y rel.ID) *rel.Join {
		spec := rel.JoinSpec{Kind: kind, LeftKeys: []rel.ID{x}, RightKeys: []rel.ID{y}, NullSafe: []bool{false}}
		return rel.NewJoin(b.here(), left, right, spec)
	}
	switch kind {
	case join.Inner:
		return both.over(matched), nil
	case join.Right:
		return both.over(byNumber(kind, matched, y.all.node, y.inPairs, y.number)), nil
	case join.Left:
		return both.over(byNumber(kind, x.all.node, matched, x.number, x.inPairs)), nil
	case join.Full:
		n := byNumber(join.Left, x.all.node, matched, x.number, x.inPairs)
		return both.over(byNumber(kind, n, y.all.node, y.inPairs, y.number)), nil
	}
	return x.all.over(byNumber(kind, x.all.node, matched, x.number, x.inPairs)), nil
}

// numberedSide is a side of a join that is read twice: those of its rows that are in pairs, and all of them, which have
// columns of their own. A number identifies a row in both.
type numberedSide struct {
	all, pairs      *Relation
	number, inPairs rel.ID
}

func (b *queryBinder) numberedSide(r *Relation) numberedSide {
	n, number := ranked(b.here(), r.node, nil, nil)
	held := rel.NewMaterialized(n, &rel.Share{Step: b.name})
	ids := append(r.ids(), number)
	again, copies := rel.Renamed(held, ids, "")
	last := len(copies) - 1
	return numberedSide{all: r.of(again, copies[:last]), pairs: r.over(held), number: copies[last], inPairs: number}
}
