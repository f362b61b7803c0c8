package logical

import (
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/job"
)

// starColumns holds the changes that a star makes to columns, by their positions. exprs has the
// expressions that replace columns, and nil for excluded ones. renamed has the new names.
type starColumns struct {
	exprs    map[int]*expr.Expr
	renamed  map[int]string
	replaced map[int]int // the column that each replacement replaces
}

func (c *starColumns) name(r *Relation, j int) string {
	if name, ok := c.renamed[j]; ok {
		return name
	}
	return r.name(j)
}

func (c *starColumns) tables(r *Relation, j int) *expr.Tables {
	if _, ok := c.renamed[j]; ok {
		return nil
	}
	return r.columns[j].tables
}

// starColumns resolves the names in EXCLUDE, REPLACE and RENAME of a star among its
// columns. It is false after a fault.
func (s *stepBinder) starColumns(star *syntax.Star, scope *expr.Scope, in *Relation, among []int,
	sub string) (*starColumns, bool) {
	c := &starColumns{exprs: map[int]*expr.Expr{}, renamed: map[int]string{}, replaced: map[int]int{}}
	ok := true
	used := map[int]string{}
	find := func(n syntax.StarName, what string, many bool) []int {
		found := scope.Find(n, among)
		if _, there := in.findUnreadable(n.Table, n.Name); there && many && len(found) == 0 {
			return nil
		}
		names := make([]string, len(among))
		for i, j := range among {
			names[i] = in.name(j)
		}
		switch {
		case len(found) == 0:
			s.faultf(sub, "%s: * has no column %q%s", what, n.Name, job.DidYouMean(n.Name, names))
			ok = false
		case len(found) > 1 && !many:
			s.faultf(sub, "%s: * has %d columns %q; write the name of a table before it", what, len(found), n.Name)
			ok = false
			return nil
		}
		for _, j := range found {
			if before := used[j]; before != "" {
				s.faultf(sub, "%s: column %q is in %s already", what, n.Name, before)
				ok = false
			}
			used[j] = what
		}
		return found
	}
	for _, n := range star.Exclude {
		for _, j := range find(n, "EXCLUDE", true) {
			c.exprs[j] = nil
		}
	}
	for k, x := range star.Replace {
		for _, j := range find(x.StarName, "REPLACE", false) {
			c.replaced[k] = j
		}
	}
	for _, x := range star.Rename {
		for _, j := range find(x.StarName, "RENAME", false) {
			c.renamed[j] = x.As
		}
	}
	if ok && len(among) > 0 && len(star.Exclude) > 0 &&
		!slices.ContainsFunc(among, func(j int) bool { e, there := c.exprs[j]; return !there || e != nil }) {
		s.faultf(sub, "EXCLUDE leaves no column")
		ok = false
	}
	return c, ok
}
