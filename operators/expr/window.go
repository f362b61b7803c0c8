package expr

import (
	"fmt"
	"slices"
	"sort"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/operators/window"
)

// WindowCall is one call of a window function. The expressions are over the columns below
// the window.
type WindowCall struct {
	Kind window.Kind
	// Aggregate is the aggregate of a window.Aggregate. Its Distinct is never set.
	Aggregate gpu.AggregateKind
	// Value is the first argument, or nil. Offset is the number of ntile, lag, lead and nth_value
	// as a BIGINT. Default is the default of lag and lead.
	Value, Offset, Default *Expr
	IgnoreNulls            bool
	Partition              []*Expr
	Order                  []WindowKey
	Frame                  WindowFrame
	Output                 gpu.Type
	// Group, unless it is nil, is an aggregate of all rows of the partition that only a group-by computes. Its
	// arguments are not in the fields above.
	Group *AggregateCall
	text  string
}

// WindowKey is one key of ORDER BY.
type WindowKey struct {
	Expr                   *Expr
	Descending, NullsFirst bool
}

// WindowFrame is the frame of a window function.
type WindowFrame struct {
	Unit     window.Unit
	From, To WindowBound
	Exclude  window.Exclusion
}

// WindowBound is one end of a frame. Offset counts rows or groups of peers. An end of RANGE with an
// offset is the position of Value among the values of Key, which is ordered like the only key of
// ORDER BY.
type WindowBound struct {
	Kind       window.BoundKind
	Offset     int64
	Key, Value *Expr
}

// String returns the call as SQL.
func (c WindowCall) String() string { return c.text }

// ranking is a window function that is not an aggregate.
type ranking struct {
	kind   window.Kind
	lo, hi int // numbers of arguments
	nulls  bool
}

var rankings = map[string]ranking{
	"row_number": {window.RowNumber, 0, 0, false}, "rank": {window.Rank, 0, 0, false},
	"dense_rank": {window.DenseRank, 0, 0, false}, "rank_dense": {window.DenseRank, 0, 0, false},
	"percent_rank": {window.PercentRank, 0, 0, false}, "cume_dist": {window.CumeDist, 0, 0, false},
	"ntile": {window.Ntile, 1, 1, false}, "lag": {window.Lag, 1, 3, true}, "lead": {window.Lead, 1, 3, true},
	"first_value": {window.FirstValue, 1, 1, true}, "last_value": {window.LastValue, 1, 1, true},
	"nth_value": {window.NthValue, 2, 2, true},
	"first":     {window.FirstValue, 1, 1, true}, "last": {window.LastValue, 1, 1, true},
	"arbitrary": {window.FirstValue, 1, 1, true},
}

// WindowColumn returns the name of the column that replaces call i in the tree that
// BindWindows returns.
func WindowColumn(i int) string { return fmt.Sprintf("$window%d", i) }

// BindWindows finds the window functions in a tree and binds them over s. It returns each distinct
// call once, and the tree with every call replaced by a reference to its WindowColumn, numbered
// from first. The error is a *syntax.Error.
func BindWindows(n syntax.Node, s *Scope, first int) (calls []WindowCall, post syntax.Node, err error) {
	b := &binder{scope: s, src: n.Source()}
	defer func() { err = n.Hides().Hide(err) }()
	seen := map[string][]int{} // calls of the same text, which may mean different columns
	add := func(c *syntax.Call) (syntax.Node, error) {
		call, err := b.window(c)
		if err != nil {
			return nil, err
		}
		key, i := c.String(), len(calls)
		if at := slices.IndexFunc(seen[key], func(j int) bool { return call.Equal(calls[j]) }); at >= 0 {
			i = seen[key][at]
		} else {
			call.text = key
			seen[key] = append(seen[key], i)
			s.written(n, call.expressions()...)
			calls = append(calls, call)
		}
		return &syntax.Name{Base: syntax.At(c), Parts: []string{WindowColumn(first + i)}}, nil
	}
	post, err = syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		c, ok := n.(*syntax.Call)
		if !ok || c.Over == nil {
			return nil, nil
		}
		if tree, err := b.variance(c, aggregates[c.Name], add); tree != nil || err != nil {
			return tree, err
		}
		name, err := add(c)
		if err != nil || c.Name != "ntile" {
			return name, err
		}
		// Of NULL parts it is NULL.
		known := &syntax.Is{Base: syntax.At(c, c.Args[0]), X: c.Args[0], What: "NULL", Not: true}
		return &syntax.Case{Base: syntax.At(c, known, name), Whens: [][2]syntax.Node{{known, name}}}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return calls, post, nil
}

// misplacedWindow returns the error for a window function where none is allowed.
func (b *binder) misplacedWindow(n *syntax.Call) error {
	if n.Over == nil {
		return b.errorf(n, "%s is a window function: write %s(…) OVER (…)", n.Name, n.Name)
	}
	return b.errorf(n, "the window function %s is not allowed here; window functions belong into select and qualify, "+
		"and not into each other", n.Name)
}

func (b *binder) window(n *syntax.Call) (c WindowCall, err error) {
	f, isRanking := rankings[n.Name]
	agg, isAggregate := aggregates[n.Name]
	switch {
	case !isRanking && !isAggregate:
		names := make([]string, 0, len(rankings)+len(aggregates))
		for name := range rankings {
			names = append(names, name)
		}
		for name := range aggregates {
			names = append(names, name)
		}
		sort.Strings(names)
		if _, scalar := functions[n.Name]; scalar {
			return c, b.errorf(n, "%s is neither a window function nor an aggregate, so it takes no OVER", n.Name)
		}
		return c, b.errorf(n, "there is no window function or aggregate %q%s", syntax.Cut(n.Name, 60),
			syntax.Suggest(n.Name, names))
	case isRanking && len(n.Order) > 0:
		return c, b.errorf(n, "ORDER BY among the arguments of %s is not possible with OVER; order the window", n.Name)
	case isRanking && n.Distinct:
		return c, b.errorf(n, "DISTINCT is not possible in %s with OVER", n.Name)
	case isRanking && n.Filter != nil:
		return c, b.errorf(n, "FILTER is possible after aggregates only, and %s is not one", n.Name)
	case n.IgnoreNulls && !f.nulls:
		return c, b.errorf(n, "IGNORE NULLS is possible for lag, lead, first_value, last_value and nth_value only")
	}
	c.Kind, c.IgnoreNulls = f.kind, n.IgnoreNulls
	if isRanking {
		err = b.ranking(n, f, &c)
	} else {
		err = b.windowAggregate(n, agg, &c)
	}
	if err == nil {
		err = b.over(n, &c)
	}
	return c, err
}

func (b *binder) windowAggregate(n *syntax.Call, f aggregate, c *WindowCall) error {
	call, err := b.aggregate(n, f)
	if err != nil {
		return err
	}
	c.Output = call.Output
	if !call.slides() {
		return b.ofPartition(n, call, c)
	}
	c.Kind, c.Aggregate, c.Value = window.Aggregate, call.Kind, call.Arg
	if s := call.Sorted; s != nil {
		c.Kind, c.Offset, c.IgnoreNulls = s.Kind, s.Key, s.Kind == window.FirstValue // any_value
	}
	return nil
}

// slides reports whether a window function computes the aggregate, for any frame.
func (c AggregateCall) slides() bool {
	if c.Distinct || c.Registers != nil {
		return false
	}
	s := c.Sorted
	if s == nil {
		return true
	}
	kinds := []window.Kind{window.Aggregate, window.FirstValue, window.ArgMin, window.ArgMax}
	return slices.Contains(kinds, s.Kind) && len(s.Order) == 0
}

// ofPartition binds an aggregate that is the same for all rows of a partition, because its frame is the partition.
func (b *binder) ofPartition(n *syntax.Call, call AggregateCall, c *WindowCall) error {
	w := n.Over
	whole := w.Frame == nil && len(w.Order) == 0
	if f := w.Frame; f != nil {
		whole = f.From.Kind == syntax.UnboundedPreceding && f.To.Kind == syntax.UnboundedFollowing && f.Exclude == ""
	}
	if !whole {
		what := n.Name
		switch {
		case len(n.Order) > 0:
			what += " with ORDER BY among its arguments"
		case n.Distinct:
			what += " of DISTINCT values"
		}
		return b.errorf(n, "%s is possible with OVER only for all rows of a partition; leave out ORDER BY and the "+
			"frame of the window, or write ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", what)
	}
	c.Kind, c.Group = window.Aggregate, &call
	if s := call.Sorted; s != nil && s.Kind == window.StringAgg && len(s.Order) == 0 && !call.Distinct {
		var err error
		s.Order, err = b.orderKeys(w.Order)
		return err
	}
	return nil
}

// ranking binds the arguments of a function that is not an aggregate.
func (b *binder) ranking(n *syntax.Call, f ranking, c *WindowCall) (err error) {
	if n.Star || len(n.Args) < f.lo || len(n.Args) > f.hi {
		return b.errorf(n, "%s takes %s, found %s", n.Name, arity(f.lo, f.hi), found(n))
	}
	args := make([]*Expr, len(n.Args))
	for i, a := range n.Args {
		if args[i], err = b.bind(a); err != nil {
			return err
		}
	}
	c.Output = gpu.Of(gpu.Int64)
	switch f.kind {
	case window.RowNumber, window.Rank, window.DenseRank:
		return nil
	case window.PercentRank, window.CumeDist:
		c.Output = gpu.Of(gpu.Float64)
		return nil
	case window.Ntile:
		if c.Offset, err = b.windowOffset(n, n.Args[0], args[0]); err != nil {
			return err
		}
		if v, ok := c.Offset.Constant(); ok && v.Valid && v.Int.Sign() <= 0 {
			return b.errorf(n.Args[0], "the argument of ntile must be greater than zero")
		}
		return nil
	}
	if args[0].literal == nullLiteral {
		args[0] = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	c.Value = typed(args[0])
	if len(args) > 1 {
		if c.Offset, err = b.windowOffset(n, n.Args[1], args[1]); err != nil {
			return err
		}
	}
	if len(args) > 2 {
		if c.Default, err = b.convert(n.Args[2], args[2], c.Value.typ, false); err != nil {
			return err
		}
		if c.Value, c.Default, err = sameStorage(b.scope.Fold, c.Value, c.Default); err != nil {
			return b.errorf(n.Args[2], "%v", err)
		}
	}
	c.Output = c.Value.typ
	return nil
}

// found describes the number of arguments of a call.
func found(n *syntax.Call) string {
	if n.Star {
		return "*"
	}
	return fmt.Sprint(len(n.Args))
}

// windowOffset returns an argument that counts rows as a BIGINT.
func (b *binder) windowOffset(n *syntax.Call, at syntax.Node, x *Expr) (*Expr, error) {
	if x.literal != nullLiteral && !x.typ.IsInteger() {
		return nil, b.errorf(at, "%s needs a whole number here, found %v", n.Name, x.typ)
	}
	return b.convert(at, x, gpu.Of(gpu.Int64), false)
}

// over binds the window of a call.
func (b *binder) over(n *syntax.Call, c *WindowCall) error {
	w := n.Over
	if w.Name != "" {
		return b.errorf(n, "there is no window %q; write what it stands for: OVER (PARTITION BY … ORDER BY …)", w.Name)
	}
	for _, k := range w.Partition {
		e, err := b.windowKey(k)
		if err != nil {
			return err
		}
		if _, constant := e.Constant(); !constant {
			c.Partition = append(c.Partition, e)
		}
	}
	var err error
	if c.Order, err = b.orderKeys(w.Order); err != nil {
		return err
	}
	c.Frame = WindowFrame{Unit: window.Range, From: WindowBound{Kind: window.UnboundedPreceding},
		To: WindowBound{Kind: window.CurrentRow}}
	if w.Frame == nil {
		return nil
	}
	c.Frame.Unit = map[string]window.Unit{"ROWS": window.Rows, "RANGE": window.Range,
		"GROUPS": window.Groups}[w.Frame.Unit]
	if c.Frame.From, err = b.frameBound(w, w.Frame.From, c.Frame.Unit); err == nil {
		c.Frame.To, err = b.frameBound(w, w.Frame.To, c.Frame.Unit)
	}
	c.Frame.Exclude = map[string]window.Exclusion{syntax.CurrentRow: window.ExcludeRow, "GROUP": window.ExcludeGroup,
		"TIES": window.ExcludeTies}[w.Frame.Exclude]
	if c.Frame.Unit == window.Range && len(c.Order) == 0 { // see rangeBound
		c.Frame.Unit = window.Groups
	}
	return err
}

// orderKeys binds the keys of ORDER BY.
func (b *binder) orderKeys(order []syntax.OrderKey) (keys []WindowKey, err error) {
	for _, k := range order {
		e, err := b.windowKey(k.X)
		if err != nil {
			return nil, err
		}
		if _, constant := e.Constant(); !constant {
			keys = append(keys, WindowKey{e, k.Descending, k.NullsFirst})
		}
	}
	return keys, nil
}

// windowKey binds a key of PARTITION BY or ORDER BY. A number is not the position of a column here,
// but a constant, for which all rows are equal.
func (b *binder) windowKey(n syntax.Node) (*Expr, error) {
	e, err := b.bind(n)
	if err != nil {
		return nil, err
	}
	if e.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Int32))), nil
	}
	return b.lengthOf(n, typed(e))
}

var boundKinds = map[string]window.BoundKind{syntax.UnboundedPreceding: window.UnboundedPreceding,
	syntax.Preceding:  window.Preceding,
	syntax.CurrentRow: window.CurrentRow, syntax.Following: window.Following,
	syntax.UnboundedFollowing: window.UnboundedFollowing}

func (b *binder) frameBound(w *syntax.Window, n syntax.FrameBound, unit window.Unit) (out WindowBound, err error) {
	out.Kind = boundKinds[n.Kind]
	if n.Offset == nil {
		return out, nil
	}
	if unit == window.Range {
		return b.rangeBound(w, n, out)
	}
	e, err := b.bind(n.Offset)
	if err == nil && e.literal != nullLiteral {
		if !e.typ.IsNumeric() {
			return out, b.errorf(n.Offset, "the offset of %s must be a number, found %v", n.Kind, e.typ)
		}
		e, err = b.convert(n.Offset, e, gpu.Of(gpu.Int64), false)
	}
	if err != nil {
		return out, err
	}
	v, constant := e.Constant()
	switch {
	case !constant:
		return out, b.errorf(n.Offset, "the offset of %s must be a constant", n.Kind)
	case !v.Valid:
		return out, b.errorf(n.Offset, "the offset of %s cannot be NULL", n.Kind)
	case v.Int.Sign() < 0:
		return out, b.errorf(n.Offset, "the offset of %s cannot be negative, found %v", n.Kind, v)
	}
	out.Offset = v.Int.Int64()
	return out, nil
}

// rangeBound binds an end of RANGE with an offset: the key of the order plus or minus the offset.
// The key is cast if the result has another type. With a constant key all rows are peers; the bound
// is then an offset of 0 groups, or of 1 group if the offset leads away from the key.
func (b *binder) rangeBound(w *syntax.Window, n syntax.FrameBound, out WindowBound) (WindowBound, error) {
	if len(w.Order) != 1 {
		return out, b.errorf(n.Offset, "RANGE with an offset needs exactly one key of ORDER BY, found %d", len(w.Order))
	}
	if err := b.checkRangeOffset(n); err != nil {
		return out, err
	}
	k := w.Order[0]
	op := "+"
	if (n.Kind == syntax.Preceding) != k.Descending {
		op = "-"
	}
	sum := &syntax.Binary{Base: syntax.At(n.Offset, k.X, n.Offset), Op: op, L: k.X, R: n.Offset}
	value, err := b.bind(sum)
	if err != nil {
		return out, err
	}
	key, err := b.windowKey(k.X)
	if err != nil {
		return out, err
	}
	values := []*Expr{key, typed(value)}
	if err := b.unify([]syntax.Node{k.X, sum}, values, "the key and the bound of RANGE"); err != nil {
		return out, err
	}
	if out.Key, out.Value, err = sameStorage(b.scope.Fold, values[0], values[1]); err != nil {
		return out, b.errorf(n.Offset, "%v", err)
	}
	if _, constant := key.Constant(); constant {
		from, _ := out.Key.Constant()
		to, _ := out.Value.Constant()
		if from.Valid && to.Valid && from.Compare(to) != 0 {
			out.Offset = 1
		}
		out.Key, out.Value = nil, nil
	}
	return out, nil
}

// checkRangeOffset returns an error unless the offset of RANGE is a constant that is neither
// NULL nor negative.
func (b *binder) checkRangeOffset(n syntax.FrameBound) error {
	negative := false
	e, err := b.bindAny(n.Offset)
	if err != nil {
		return err
	}
	if e.isInterval() {
		if e, err = b.apart(n.Offset, e); err != nil {
			return err
		}
		for _, part := range e.args {
			v, constant := part.Constant()
			if !constant || !v.Valid {
				return b.errorf(n.Offset, "the offset of %s must be a constant", n.Kind)
			}
			negative = negative || v.Int.Sign() < 0
		}
	} else {
		v, constant := e.Constant()
		switch {
		case !constant:
			return b.errorf(n.Offset, "the offset of %s must be a constant", n.Kind)
		case !v.Valid:
			return b.errorf(n.Offset, "the offset of %s cannot be NULL", n.Kind)
		case !e.typ.IsNumeric():
			return b.errorf(n.Offset, "the offset of %s must be a number or an INTERVAL, found %v", n.Kind, e.typ)
		}
		negative = v.Compare(zeroOf(v.Type)) < 0
	}
	if negative {
		return b.errorf(n.Offset, "the offset of %s cannot be negative", n.Kind)
	}
	return nil
}

func zeroOf(t gpu.Type) gpu.Scalar {
	if t.IsFloat() {
		return gpu.FloatScalar(t, 0)
	}
	return gpu.IntScalar(t, 0)
}

// Equal reports whether two calls over the same schema are the same.
func (c WindowCall) Equal(d WindowCall) bool {
	bound := func(x, y WindowBound) bool {
		return x.Kind == y.Kind && x.Offset == y.Offset && sameExpr(x.Key, y.Key) && sameExpr(x.Value, y.Value)
	}
	group := (c.Group == nil) == (d.Group == nil) && (c.Group == nil || c.Group.Equal(*d.Group))
	return group && c.Kind == d.Kind && c.Aggregate == d.Aggregate && c.IgnoreNulls == d.IgnoreNulls &&
		c.SameWindow(d) && sameExpr(c.Value, d.Value) && sameExpr(c.Offset, d.Offset) &&
		sameExpr(c.Default, d.Default) && c.Frame.Unit == d.Frame.Unit && c.Frame.Exclude == d.Frame.Exclude &&
		bound(c.Frame.From, d.Frame.From) && bound(c.Frame.To, d.Frame.To)
}

// SameWindow reports whether two calls have the same partitions and the same order.
func (c WindowCall) SameWindow(d WindowCall) bool {
	return slices.EqualFunc(c.Partition, d.Partition, (*Expr).Equal) &&
		slices.EqualFunc(c.Order, d.Order, WindowKey.equal)
}

func (k WindowKey) equal(l WindowKey) bool {
	return k.Descending == l.Descending && k.NullsFirst == l.NullsFirst && k.Expr.Equal(l.Expr)
}

// sameExpr is Equal for expressions that may be nil.
func sameExpr(x, y *Expr) bool { return (x == nil) == (y == nil) && (x == nil || x.Equal(y)) }
