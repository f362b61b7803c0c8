package operators

// Expected is what a plan expects of an operator that holds rows.
type Expected struct {
	// Rows is the number of rows that the operator collects, and Bytes their size. For a join
	// they are of the build side, and ProbeBytes is the size of the probe side.
	Rows, Bytes, ProbeBytes float64
	// Out is the number of rows of the result, and OutBytes their size.
	Out, OutBytes float64
	Lanes         int
}

// Demand is the memory for what an operator holds, in bytes, by what is expected of it.
type Demand struct {
	Bytes float64 // if there is room for all
	Fixed float64 // of these, the bytes that cannot spill
	// Spilled returns the bytes that spill with a room of some bytes. It is nil if nothing can.
	Spilled func(room float64) float64
}

// Demanding is an operator that tells before a run how much memory it will want.
type Demanding interface {
	Demand(Expected) Demand
}

// Staying is an operator that holds memory while strides stream past it.
type Staying interface {
	// Stays returns the bytes, once the operator is finalized. What can spill does not count.
	Stays() int64
}

// Crowded is the share of a budget, one part in so many, that is available when operators that
// collect rows prepare for these to spill. Rows in memory are copied when they are complete.
const Crowded = 2

// Resident is the share of a budget that the partitions take at most that stay in memory, of all joins
// of a pipeline, when strides stream past them.
const Resident = 0.6

// leastHeld is the share of the budget, one part in so many, that the rows of all lanes take at
// least when they spill: others fill it.
const leastHeld = 32

// Crowds reports whether a lane that has collected rows should let them spill. held returns
// their bytes.
func (t Task) Crowds(held func() int64) bool {
	limit := t.Lease.Limit()
	return t.Lease.Available() < limit/Crowded && held() >= limit/int64(leastHeld*t.Lanes)
}
