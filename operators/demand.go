package operators

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

// Staying is an operator that keeps memory while strides stream past it.
type Staying interface {
	// Stays returns these bytes, once the operator is finalized. Rows that can spill do not count.
	Stays() int64
}

// Operators that collect rows prepare to spill when less than 1/Crowded of a budget is available.
// They need the rest because collected rows are copied once they are complete.
const Crowded = 2

// Resident is the maximum share of a budget for partitions that stay in memory while strides stream
// past them, over all joins of a pipeline.
const Resident = 0.6

// The rows of all lanes take at least 1/leastHeld of the budget when they spill, since others may
// fill the budget.
const leastHeld = 32

// Crowds reports whether a lane should let its collected rows spill. held returns their bytes.
func (t Task) Crowds(held func() int64) bool {
	limit := t.Lease.Limit()
	return t.Lease.Available() < limit/Crowded && held() >= limit/int64(leastHeld*t.Lanes)
}
