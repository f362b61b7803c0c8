package cuda

import (
	"math"

	"github.com/gstream/gstream/gpu"
)

// failure is a row on which an instruction failed.
type failure struct{ instr, row int }

// failureBatch is the rows that the host evaluates at a time. Within them the host
// reports the first instruction that fails, not the first row.
const failureBatch = 2048

// canFail reports whether instruction i may have rows without a result.
func (e *evaluation) canFail(i int) bool { return e.p.Code[i].CanFail(e.typeOf) }

// expectFailures makes the array of failures if some instruction can fail.
func (e *evaluation) expectFailures() {
	for i := range e.p.Code {
		if r := len(e.in) + i; e.needed[r] && !e.done[r] && e.canFail(i) {
			size := int64(len(e.p.Code)) * 4
			e.failures = e.alloc(size)
			e.fill(e.failures, 0, size, 0xff)
			return
		}
	}
}

// failureSlot returns the address at which instruction i records the first row that fails.
func (e *evaluation) failureSlot(i int) uint64 {
	if e.failures == nil {
		return 0
	}
	return addr(e.failures) + uint64(i)*4
}

// failure returns the failure that the host would report, or nil. It is in the first
// batch with a failure: the first instruction that failed there, and its first row. The
// array has only the first failure of each instruction, which is enough: an instruction
// that failed in an earlier batch makes that batch the first.
func (e *evaluation) failure() *failure {
	if e.failures == nil {
		return nil
	}
	rows := make([]uint32, len(e.p.Code))
	if !e.read(e.failures, 0, gpu.BytesOf(rows)) {
		return nil
	}
	var first *failure
	for i, row := range rows {
		if row != math.MaxUint32 && (first == nil || int(row)/failureBatch < first.row/failureBatch) {
			first = &failure{instr: i, row: int(row)}
		}
	}
	return first
}

// explain returns the error of an instruction on a row. It evaluates the arguments of the
// instruction for only that row.
func (q *queue) explain(l *gpu.Lease, p *gpu.Program, in []gpu.Column, at failure) error {
	failed := &p.Code[at.instr]
	row := make([]gpu.Column, 0, len(in))
	defer func() { gpu.ReleaseColumns(row) }()
	for _, c := range in {
		one, err := q.Slice(l, c, at.row, at.row+1)
		if err != nil {
			return err
		}
		row = append(row, one)
	}
	part := &gpu.Program{Inputs: p.Inputs, Code: p.Code[:at.instr], Outputs: failed.Args}
	cols, again, err := q.evaluate(l, part, row, 1)
	if err == nil && again != nil {
		err = gpu.FailedIn(failed.Text, "row %d failed, but does not when it is evaluated alone", at.row)
	}
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(cols)
	args := make([]gpu.Scalar, len(cols))
	for k, c := range cols {
		if args[k], err = q.scalar(l, c); err != nil {
			return err
		}
	}
	return rowError(failed, args)
}

// scalar reads the only row of a column.
func (q *queue) scalar(l *gpu.Lease, c gpu.Column) (v gpu.Scalar, err error) {
	o := q.begin("evaluate", l)
	defer end(o, &v, &err)
	one := gpu.Column{Type: c.Type, Len: 1}
	if c.Valid != nil {
		one.Valid = o.local(c.Valid, 0, 8)
		if o.failed() || !one.IsValid(0) { // the code of a null may be out of range
			return gpu.Null(c.Type), o.err
		}
	}
	i := int64(0)
	if c.Dict != nil {
		i = int64(gpu.Values[int32](o.local(c.Data, 0, 4), 1)[0])
		c = c.Dict.Values
	}
	switch w := int64(c.Type.Width()); {
	case c.Type.Kind == gpu.Bool:
		one.Data = o.local(c.Data, i/8, 1)
		one.Data.Bytes()[0] >>= i % 8
	case c.Type.IsVar():
		at := gpu.Values[int32](o.local(c.Offsets, i*4, 8), 2)
		one.Data = o.local(c.Data, int64(at[0]), int64(at[1]-at[0]))
		one.Offsets = gpu.WrapBytes(gpu.BytesOf([]int32{0, at[1] - at[0]}))
	default:
		one.Data = o.local(c.Data, i*w, w)
	}
	if o.failed() {
		return v, o.err
	}
	return one.ScalarAt(0), nil
}

// local reads n bytes of device memory into a buffer of the Go heap that is aligned for
// any view. After an error the buffer is zero.
func (o *op) local(b *gpu.Buffer, off, n int64) *gpu.Buffer {
	mem := gpu.BytesOf(make([]gpu.Int128, n/16+1))[:n]
	o.read(b, off, mem)
	return gpu.WrapBytes(mem)
}

// rowError returns the error of an instruction for its arguments on a row.
func rowError(in *gpu.Instr, args []gpu.Scalar) error {
	t := in.Type
	failed := in.Failed
	switch {
	case in.Op == gpu.OpCast && args[0].Type.Kind == gpu.String:
		return failed("cannot read %.60q as %v%s", args[0].Str, t, t.ExpectedText())
	case in.Op == gpu.OpCast:
		return failed("the %v %s does not fit %v", args[0].Type, args[0], t)
	case in.Op == gpu.OpSelect:
		v := args[2]
		if args[0].Valid && args[0].Int.Lo != 0 {
			v = args[1]
		}
		return failed("%v does not fit %v", v.Int.Format(int(t.Scale)), t)
	case (in.Op == gpu.OpQuo || in.Op == gpu.OpMod) && args[1].Int.Sign() == 0 && args[1].Float == 0:
		return failed("%s is divided by zero; with nullif(divisor, 0) the result is null", args[0])
	}
	if in.Op == gpu.OpParseTime {
		return failed("%s", gpu.UnreadableTime(args[0].Str, in.Value.Str))
	}
	if in.Op == gpu.OpAssert {
		if len(args) > 1 {
			return failed("%s", args[1].Str)
		}
		return failed("%s", in.Value.Str)
	}
	text := ""
	for k, v := range args {
		if k > 0 {
			text += " and "
		}
		text += v.String()
	}
	if in.Op == gpu.OpMakeDate {
		return failed("there is no date of the year, month and day %s", text)
	}
	if t.Kind == gpu.Decimal && !t.Wide && t.Precision > gpu.MaxNarrowPrecision {
		return failed("the result for %s does not fit 64 bits, although the column statistics of the file promised "+
			"so: the file is damaged or its statistics are wrong", text)
	}
	return failed("the result for %s is out of the range of %s; cast an operand to a larger type", text, t)
}
