package rel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
)

// Check returns an error if a plan does not fit together: a column that an input does not have or that an expression
// takes for another type, a column that both sides of a join have, or inputs of a union that differ.
func Check(o Output) error {
	if err := checkBelow(o.Root, nil); err != nil {
		return err
	}
	return has(o.Root, o.Columns...)
}

// outer has the columns that expressions may use besides those of their inputs: on the right side of a dependent join,
// those of the rows around it.
type outer map[ID]bool

// checkBelow checks a node and all nodes below it.
func checkBelow(root Node, around outer) (err error) {
	Remembered(func(n Node, again func(Node) Node) Node {
		if a, ok := n.(*Apply); ok {
			again(a.Left)
			more := outer{}
			maps.Copy(more, around)
			for _, c := range a.Outer {
				more[c] = true
			}
			err = cmp.Or(err, checkBelow(a.Right, more))
		} else {
			for _, in := range Inputs(n) {
				again(in)
			}
		}
		if wrong := checkNode(n, around); wrong != nil && err == nil {
			err = fmt.Errorf("%s [%s]: %w", describe(n), n.Rel().Origin.Step, wrong)
		}
		return n
	})(root)
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

// fit returns an error if expressions are not over the columns of nodes and of the rows around, and of their types.
func (around outer) fit(exprs []*expr.Expr, ins ...Node) error {
	for _, e := range exprs {
		if err := e.CheckTypes(func(id int) (gpu.Type, bool) {
			for _, in := range ins {
				if r := in.Rel(); r.Has(id) {
					return r.Field(id).Type, true
				}
			}
			if around[id] {
				return ins[0].Rel().Metadata.Column(id).Type, true
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

func checkNode(n Node, around outer) error {
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
		return around.fit(n.Conjuncts, n.In)
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
		return around.fit(n.Exprs, n.In)
	case *Join:
		return checkJoin(n, around)
	case *Unnest:
		if len(n.Lists) == 0 || len(n.Lists) != len(n.Elements) {
			return fmt.Errorf("it has %d lists and makes %d columns", len(n.Lists), len(n.Elements))
		}
		if err := has(n.In, n.Lists...); err != nil {
			return err
		}
		return fresh(n.In, n.Elements...)
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
	case *Values:
		return checkValues(n)
	case *SetOperation:
		if err := sameColumns(n.Rel(), n.Op.String(), n.Left, n.LeftColumns); err != nil {
			return err
		}
		return sameColumns(n.Rel(), n.Op.String(), n.Right, n.RightColumns)
	case *Apply:
		return checkApply(n, around)
	case *Recursive:
		if err := sameColumns(n.Rel(), "recursion", n.Anchor, n.AnchorColumns); err != nil {
			return err
		}
		return sameColumns(n.Rel(), "recursion", n.Step, n.StepColumns)
	case *Outputs:
		for i, in := range n.Ins {
			if err := has(in, n.Of[i]...); err != nil {
				return err
			}
		}
	case *Union:
		if len(n.From) != len(n.Ins) {
			return fmt.Errorf("it has %d inputs and takes columns of %d", len(n.Ins), len(n.From))
		}
		for i, in := range n.Ins {
			if err := sameColumns(n.Rel(), "union", in, n.From[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameColumns returns an error if columns of an input are not as many as those of a node, or of other types.
func sameColumns(n *Relation, what string, in Node, from []ID) error {
	if err := has(in, from...); err != nil {
		return err
	}
	if have, want := len(from), len(n.Columns); have != want {
		return fmt.Errorf("it takes %d columns of an input and has %d", have, want)
	}
	for i, c := range from {
		if have, want := in.Rel().Field(c).Type, n.Field(n.Columns[i]).Type; have != want {
			return fmt.Errorf("column %v is %v in an input and %v in the %s", n.Metadata.Column(n.Columns[i]), have,
				want, what)
		}
	}
	return nil
}

func checkValues(n *Values) error {
	for i, row := range n.Rows {
		if have, want := len(row), len(n.Columns); have != want {
			return fmt.Errorf("row %d has %d values for %d columns", i, have, want)
		}
		for k, v := range row {
			switch f := n.Field(n.Columns[k]); {
			case v.Type != f.Type:
				return fmt.Errorf("row %d has a value of %v for column %v of %v", i, v.Type,
					n.Metadata.Column(n.Columns[k]), f.Type)
			case !v.Valid && !f.Nullable:
				return fmt.Errorf("row %d has a null for column %v, which has none", i, n.Metadata.Column(n.Columns[k]))
			}
		}
	}
	return nil
}

func checkApply(n *Apply, around outer) error {
	if Shares(n.Left, n.Right) {
		return fmt.Errorf("both sides have one column")
	}
	for _, c := range n.Outer {
		if !around[c] {
			if err := has(n.Left, c); err != nil {
				return err
			}
		}
	}
	if (n.Kind == join.Mark) != (n.Mark != None) {
		return fmt.Errorf("only a mark join has a mark")
	}
	if KeepsRight(n.Kind) {
		return fmt.Errorf("the rows of its right side depend on those of the left side, so it cannot keep them all")
	}
	return around.fit(n.Conditions, n.Left, n.Right)
}

func checkJoin(n *Join, around outer) error {
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
	if n.NullAware != nil && len(n.NullAware) != len(n.LeftKeys) {
		return fmt.Errorf("it has %d keys and says of %d whether nulls are unknown", len(n.LeftKeys), len(n.NullAware))
	}
	for i, unknown := range n.NullAware {
		if unknown && (n.NullSafe[i] || n.Kind != join.Anti && n.Kind != join.Mark || n.Range != nil) {
			return fmt.Errorf("a null in a key is unknown only to an anti or a mark join that compares it with =")
		}
	}
	if n.Unknown() && n.Kind == join.Mark && !n.Field(n.Mark).Nullable {
		return fmt.Errorf("its mark may be unknown, but is not nullable")
	}
	if a := n.AsOf; a != nil {
		if n.AllPairs || n.Range != nil || len(n.Residual) > 0 {
			return fmt.Errorf("an ASOF join has keys and times, and no other conditions")
		}
		if err := has(n.Left, a.Left); err != nil {
			return err
		}
		if err := has(n.Right, a.Right); err != nil {
			return err
		}
		if l, r := n.Left.Rel().Field(a.Left).Type, n.Right.Rel().Field(a.Right).Type; l != r {
			return fmt.Errorf("it compares the times %v and %v", l, r)
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
	return around.fit(conditions, n.Left, n.Right)
}

// SameRows returns an error if two plans do not have the same columns: IDs and types, in order.
func SameRows(a, b Output) error {
	if !slices.Equal(a.Columns, b.Columns) {
		return fmt.Errorf("columns %v became %v", a.Columns, b.Columns)
	}
	return has(b.Root, a.Columns...)
}
