package operators

import "github.com/gstream/gstream/gpu/grant"

// Expected has a plan's estimates for an operator that keeps rows.
type Expected struct {
	// Rows is the number of rows that the operator collects, and Bytes their size. For a join they
	// refer to the build side, and ProbeBytes is the size of the probe side.
	Rows, Bytes, ProbeBytes float64
	// Out is the number of rows of the result, and OutBytes their size.
	Out, OutBytes float64
	Lanes         int
}

// Demand is the memory that an operator is expected to need, in bytes.
type Demand struct {
	Bytes float64 // if nothing spills
	Fixed float64 // the part of Bytes that cannot spill
	// Spilled returns the bytes that spill if room bytes of memory are available. It is nil if
	// nothing can spill.
	Spilled func(room float64) float64
}

// Demanding is an operator that estimates before a run how much memory it will need.
type Demanding interface {
	Demand(Expected) Demand
}

// Resident is an operator that keeps memory while strides stream past it.
type Resident interface {
	// ResidentBytes returns these bytes, once the operator is finalized. Rows that can spill do not count.
	ResidentBytes() int64
}

// Reusable is an operator that may be used again, once it is finalized and a pipeline has ended: for the strides of
// another pipeline, with new lanes.
type Reusable interface {
	// Reusable reports whether no lane has left anything in the operator.
	Reusable() bool
}

// Grant is the memory that the runner lets an operator use. Task.Share returns how much of it the operator
// may take for one purpose.
type Grant struct {
	// Budget is the size in bytes that shares are parts of. 0 means the whole budget of the task's lease.
	Budget int64
	// Joins is the number of joins of a pipeline that share memory, including this one; 0 means
	// 1. During a build it counts the joins that are not yet finalized. On the probe side it counts
	// all joins.
	Joins int
	// Resident bounds the bytes of a join out of core that may stay in memory; 0 means its part of
	// grant.Resident.
	Resident int64
	// Frugal is set in a run that was restarted because it was denied memory. A join then keeps at
	// most Resident, even if everything fits.
	Frugal bool
}

// Budget returns the bytes that the shares of a task are parts of.
func (t Task) Budget() int64 {
	if t.Grant.Budget > 0 {
		return t.Grant.Budget
	}
	return t.Lease.Limit()
}

// Share returns the bytes of a share, or of one lane's or one join's part if it is divided among these.
func (t Task) Share(s grant.Share) int64 {
	n := 1
	if s.Per == grant.Lane || s.Per == grant.LaneJoin {
		n = max(t.Lanes, 1)
	}
	if s.Per == grant.Join || s.Per == grant.LaneJoin {
		n *= max(t.Grant.Joins, 1)
	}
	return s.Among(t.Budget(), n)
}

// ShouldSpill reports whether a lane should let its collected rows spill. held returns their bytes.
func (t Task) ShouldSpill(held func() int64) bool {
	return t.Lease.Available() < t.Share(grant.SpillBelow) && held() >= t.Share(grant.SpillRows)
}
