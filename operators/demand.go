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
