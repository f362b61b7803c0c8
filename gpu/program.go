package gpu

// Program is a list of scalar expressions in the form that devices evaluate:
// straight-line instructions over registers that are each assigned once.
// Register r is input r while r < len(Inputs), and the result of instruction
// r - len(Inputs) after that. Package operators/expr compiles SQL into it; a
// Program is type-checked by its maker and immutable.
type Program struct {
	Inputs  []Type
	Code    []Instr
	Outputs []int // registers, one an output column
}

// Instr is one operation over whole columns, row by row.
type Instr struct {
	Op   Op
	Type Type  // of the result
	Args []int // registers
	// Mask is the Bool register of the rows on which the operation may fail, or
	// -1: an error on a row where the mask is false or null is ignored and the
	// row's result is null. It makes CASE lazy.
	Mask int
	// Value is the operand of OpConst, the pattern of OpLike.
	Value Scalar
	// Set holds the operands of OpIn: not null, of the type of the argument.
	Set []Scalar
	// N is a small operand: digits of OpRound, the DatePart of OpExtract and
	// OpDateTrunc, the escape rune of OpLike (0 is none), the TrimKind.
	N int
	// Text is the source text of the expression, for errors.
	Text string
}

// Op is an operation of a Program. Unless said otherwise a null argument gives a
// null result, both arguments have one SQL type (decimals one scale), and
// decimals may be narrow or wide independently.
type Op uint8
