package rel

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
)

// Check returns an error if a plan does not fit together: a column that an input does not have or that an expression
// takes for another type, a column that both sides of a join have, or inputs of a union that differ.
func Check(o Output) (err error) {
	Visit(o.Root, func(n Node) {
		if wrong := checkNode(n); wrong != nil && err == nil {
			err = fmt.Errorf("%s [%s]: %w", describe(n), n.Rel().Origin.Step, wrong)
		}
	})
	if err == nil {
		err = has(o.Root, o.Columns...)
	}
	return err
}

// has returns an error if a node does not have all of some columns.
func has(in Node, ids ...ID) error {
	r := in.Rel()
	for _, id := range ids {
		if !r.Has(id) {
			return fmt.Errorf("it uses column %v (%d), which %s does not have", r.Metadata.Column(id), id, describe(in))
		}
	}
	return nil
}

// fit returns an error if expressions are not over the columns of nodes, and of their types.
func fit(exprs []*expr.Expr, ins ...Node) error {
	for _, e := range exprs {
		if err := e.CheckTypes(func(id int) (gpu.Type, bool) {
			for _, in := range ins {
				if r := in.Rel(); r.Has(id) {
					return r.Field(id).Type, true
				}
			}
			return gpu.Type{}, false
		}); err != nil {
			return err
		}
	}
	return nil
}

// fresh returns an error if an input has one of the columns that a node makes.
func fresh(in Node, made ...ID) error {
	for _, id := range made {
		if in.Rel().Has(id) {
			return fmt.Errorf("it makes column %v (%d), which its input has", in.Rel().Metadata.Column(id), id)
		}
	}
	return nil
}

func columnsOf(keys []SortKey) (ids []ID) {
	for _, k := range keys {
		ids = append(ids, k.Column)
	}
	return ids
}

func checkNode(n Node) error {
	r := n.Rel()
	seen := map[ID]bool{}
	for _, c := range r.Columns {
		if seen[c] {
			return fmt.Errorf("it has column %v (%d) twice", r.Metadata.Column(c), c)
		}
		seen[c] = true
	}
	switch n := n.(type) {
	case *Filter:
		return fit(n.Conjuncts, n.In)
	case *Project:
		if len(n.Exprs) != len(n.Columns) {
			return fmt.Errorf("it computes %d of %d columns", len(n.Exprs), len(n.Columns))
		}
		for i, c := range n.Columns {
			if from, bare := n.Exprs[i].IsColumn(); n.In.Rel().Has(c) && !(bare && from == c) {
				return fmt.Errorf("it computes column %v (%d), which its input has", r.Metadata.Column(c), c)
			}
			if have, want := n.Exprs[i].Type(), r.Field(c).Type; have != want {
				return fmt.Errorf("it computes %v as column %v of %v", have, r.Metadata.Column(c), want)
			}
		}
		return fit(n.Exprs, n.In)
	case *Join:
		return checkJoin(n)
	case *Expand:
		for _, c := range n.Copies {
			if err := has(n.In, c.From); err != nil {
				return err
			}
			if err := fresh(n.In, c.Out); err != nil {
				return err
			}
		}
		for _, nulls := range n.Variants {
			for _, c := range nulls {
				if !slices.ContainsFunc(n.Copies, func(copied Copy) bool { return copied.Out == c }) {
					return fmt.Errorf("a variant has null for column %v, which is no copy", r.Metadata.Column(c))
				}
			}
		}
	case *Group:
		used := slices.Clone(n.Keys)
		for _, a := range n.Aggregates {
			used = append(used, a.Columns()...)
			if err := fresh(n.In, a.Out); err != nil {
				return err
			}
		}
		return has(n.In, used...)
	case *Window:
		used := slices.Concat(n.Partition, columnsOf(n.Order))
		for _, f := range n.Functions {
			used = append(used, f.Columns()...)
		}
		if len(n.Functions) != len(n.Out) {
			return fmt.Errorf("it has %d functions and makes %d columns", len(n.Functions), len(n.Out))
		}
		return has(n.In, used...)
	case *Sort:
		return has(n.In, columnsOf(n.Keys)...)
	case *Union:
		if len(n.From) != len(n.Ins) {
			return fmt.Errorf("it has %d inputs and takes columns of %d", len(n.Ins), len(n.From))
		}
		for i, in := range n.Ins {
			if err := has(in, n.From[i]...); err != nil {
				return err
			}
			if have, want := len(n.From[i]), len(n.Columns); have != want {
				return fmt.Errorf("it takes %d columns of an input and has %d", have, want)
			}
			for k, c := range n.From[i] {
				if have, want := in.Rel().Field(c).Type, r.Field(n.Columns[k]).Type; have != want {
					return fmt.Errorf("column %v is %v in an input and %v in the union",
						r.Metadata.Column(n.Columns[k]), have, want)
				}
			}
		}
	}
	return nil
}

func checkJoin(n *Join) error {
	if Shares(n.Left, n.Right) {
		return fmt.Errorf("both sides have one column")
	}
	if err := has(n.Left, n.LeftKeys...); err != nil {
		return err
	}
	if err := has(n.Right, n.RightKeys...); err != nil {
		return err
	}
	if len(n.LeftKeys) != len(n.RightKeys) || len(n.LeftKeys) != len(n.NullSafe) {
		return fmt.Errorf("it has %d and %d keys", len(n.LeftKeys), len(n.RightKeys))
	}
	for i, k := range n.LeftKeys {
		if a, b := n.Left.Rel().Field(k).Type, n.Right.Rel().Field(n.RightKeys[i]).Type; a != b {
			return fmt.Errorf("it compares %v and %v", a, b)
		}
	}
	conditions := n.Residual
	if g := n.Range; g != nil {
		key, bounds := n.Right, n.Left
		if g.Left {
			key, bounds = n.Left, n.Right
		}
		if err := has(key, g.Key); err != nil {
			return err
		}
		for _, c := range []ID{g.Lower, g.Upper} {
			if c == None {
				continue
			}
			if err := has(bounds, c); err != nil {
				return err
			}
		}
		conditions = slices.Concat(conditions, g.Conditions)
	}
	return fit(conditions, n.Left, n.Right)
}

// SameRows returns an error if two plans do not have the same columns: IDs and types, in order.
func SameRows(a, b Output) error {
	if !slices.Equal(a.Columns, b.Columns) {
		return fmt.Errorf("columns %v became %v", a.Columns, b.Columns)
	}
	return has(b.Root, a.Columns...)
}
