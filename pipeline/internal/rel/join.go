package rel

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/join"
)

// JoinSpec describes the join of two relations: key columns of equal type of each side.
type JoinSpec struct {
	Kind                join.Kind
	LeftKeys, RightKeys []ID
	NullSafe            []bool
	// NullAware says for each key of an anti or a mark join whether its comparison with a null is unknown, as in NOT
	// IN. The Mark is null then, and an anti join drops the row, unless another pair matches or no pair could. nil
	// is no key.
	NullAware []bool
	// Residual are conditions on pairs of rows with equal keys. Pairs on which one is not true do not match.
	Residual []*expr.Expr
	// AllPairs says that the key is the same in all rows: all pairs of rows are compared.
	AllPairs bool
	// Range finds the pairs instead of keys; nil for a join with keys.
	Range     *Range
	AsOf      *AsOf       // keeps the nearest of the pairs of each left row; nil for all pairs
	Algorithm string      // "" leaves the choice to the join
	Mark      ID          // the column of a mark join
	Kept      []join.Kind // what the join was: conditions drop the rows that it kept
	Build     Build       // the zero Build leaves the choice to the estimator
	Fixed     bool        // the join keeps its position in a chain
}

// Side is a side of a join.
type Side uint8

// The sides.
const (
	NoSide Side = iota
	LeftSide
	RightSide
)

// Build tells which side of a join is built, and why. The rows of the other side stream.
type Build struct {
	Side   Side
	Reason BuildReason
	// BuildRows and ProbeRows are the estimated rows of the sides, of FewerRows, RangeKey and OnceForAll.
	BuildRows, ProbeRows float64
}

// BuildReason is the reason to build a side of a join.
type BuildReason uint8

// The reasons.
const (
	StreamsLeft     BuildReason = iota // the join can only stream its left side, or is faster so
	AskedFor                           // the job names the side
	RowPerPartition                    // the side has a row for each partition of a window
	FewerRows                          // the side has fewer rows, by estimate
	RangeKey                           // the side has the key of the Range
	OnceForAll                         // all iterations of a recursion can use what the side builds
)

// ChainOrder tells why a chain of inner joins has its order.
type ChainOrder struct {
	Tables    int
	Reordered bool // it is not the order as written
	Greedy    bool // the cheapest join was taken again and again; otherwise all orders were compared
	// Rows and WrittenRows are the rows that the joins make and their build sides hold, by estimate: in this order, and
	// in the order as written.
	Rows, WrittenRows float64
}

// Range is the condition of a join without an equality that a key of one side is between
// bounds of the other side. The side of the key is built.
type Range struct {
	Left                     bool // the key is on the left side
	Key                      ID   // of its side
	Lower, Upper             ID   // of the other side; None for none
	LowerStrict, UpperStrict bool // the key does not equal the bound
	Conditions               []*expr.Expr
	Text                     string // such as "lo <= x < hi"
}

// AsOf is the condition of an ASOF join: of the right rows with equal keys, a left row is paired with the nearest in
// time. The right side is built.
type AsOf struct {
	Left, Right ID     // the times
	Forward     bool   // the first right row that is not before the left row; otherwise the last that is not after it
	Strict      bool   // equal times do not match
	Text        string // such as "l.t >= r.t"
}

// KeepsLeft reports whether a kind of join returns left rows without a match.
func KeepsLeft(k join.Kind) bool {
	return k == join.Left || k == join.Full || k == join.Anti || k == join.Mark
}

// KeepsRight reports whether a kind of join returns right rows without a match.
func KeepsRight(k join.Kind) bool { return k == join.Right || k == join.Full }

// Unknown reports whether a comparison with a null is unknown in some key of the join.
func (s *JoinSpec) Unknown() bool { return slices.Contains(s.NullAware, true) }

// What returns the kind of the join in the words of the query.
func (n *Join) What() string {
	if n.Kind == join.Inner && n.AllPairs && len(n.Residual) == 0 {
		return "cross"
	}
	if n.AsOf != nil {
		return "asof " + n.Kind.String()
	}
	return n.Kind.String()
}

// Conditions describes what is compared.
func (n *Join) Conditions() (list []string) {
	for i := range min(len(n.LeftKeys), len(n.RightKeys), len(n.NullSafe)) { // Check describes what does not fit
		if n.AllPairs {
			break
		}
		l, r := n.Metadata.Column(n.LeftKeys[i]), n.Metadata.Column(n.RightKeys[i])
		left, right := l.Name, r.Name
		if left == right {
			left, right = l.String(), r.String()
		}
		op := "="
		if n.NullSafe[i] {
			op = "IS NOT DISTINCT FROM"
		}
		text := fmt.Sprintf("%s %s %s", left, op, right)
		if i < len(n.NullAware) && n.NullAware[i] {
			text += " or unknown"
		}
		list = append(list, text)
	}
	if n.Range != nil {
		list = append(list, "range: "+n.Range.Text)
	}
	if n.AsOf != nil {
		list = append(list, "nearest: "+n.AsOf.Text)
	}
	for _, p := range n.Residual {
		text := p.String()
		if o := p.Origin(); o != nil && o.Step != n.Origin.Step {
			text += ", from " + o.Step
		}
		list = append(list, text)
	}
	for _, k := range n.Kept {
		list = append(list, fmt.Sprintf("was a %v join, but a condition drops the rows without a match that it kept",
			k))
	}
	if n.AllPairs {
		list = append(list, "compares all pairs of rows: there is no equality of the two sides")
		if len(n.Residual) == 0 {
			list = []string{"all pairs of rows"}
		}
	}
	return list
}
