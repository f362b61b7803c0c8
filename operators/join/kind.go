package join

// Kind says which rows a join returns. The probe side is the left side.
type Kind uint8

// The kinds of joins.
const (
	Inner     Kind = iota
	Left           // inner, and probe rows without a match, with nulls for the build side
	Right          // inner, and build rows without a match, with nulls for the probe side
	Full           // left and right
	Semi           // probe rows with at least one match, each once
	Anti           // probe rows without a match
	Mark           // all probe rows, each once, and whether it has a match
	RightSemi      // build rows with at least one match, each once
	RightAnti      // build rows without a match
)

// String returns the SQL word.
func (k Kind) String() string {
	return [...]string{"inner", "left", "right", "full", "semi", "anti", "mark", "right semi", "right anti"}[k]
}

// Pairs reports whether the join returns columns of pairs of rows, and so may return
// columns of its build side.
func (k Kind) Pairs() bool { return k <= Full }

// KeepsProbe and KeepsBuild report whether the join returns rows of a side that have no match, with
// nulls in the columns of the other side.
func (k Kind) KeepsProbe() bool { return k == Left || k == Full }
func (k Kind) KeepsBuild() bool { return k == Right || k == Full }

// OfBuild reports whether the join returns rows of the build side alone, which it does once all rows of the probe side
// have been matched.
func (k Kind) OfBuild() bool { return k == RightSemi || k == RightAnti }
