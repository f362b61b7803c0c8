package gpu

import "fmt"

// WriteStrategy is the strategy by which the blocks of a GPU write tuples to their partitions (Lutz et
// al., SIGMOD 2022, §4).
type WriteStrategy uint8

// The write strategies.
const (
	// WriteHierarchical collects granules of 64 to 128 bytes in buffers in device memory, and
	// writes full buffers while the next tuples arrive: long writes at any fan-out.
	WriteHierarchical WriteStrategy = iota
	// WriteShared collects tuples in shared memory, and writes aligned granules of 128 bytes, or
	// less if one granule for each partition does not fit shared memory.
	WriteShared
	// WriteLinear sorts some thousand tuples in shared memory, and writes the runs.
	WriteLinear
	// WriteStandard writes each tuple individually.
	WriteStandard
)

// WriteStrategies are the write strategies, the fastest at high fan-outs first.
var WriteStrategies = []WriteStrategy{WriteHierarchical, WriteShared, WriteLinear, WriteStandard}

// String returns the name of the strategy.
func (w WriteStrategy) String() string {
	return [...]string{"hierarchical", "shared", "linear", "standard"}[w]
}

// TuplePass says how a GPU partitions tuples. The zero value is the fastest strategy at high
// fan-outs.
type TuplePass struct {
	Strategy WriteStrategy
	// HostPrefix counts the rows of partitions on the CPU. The host must be able to address the
	// key.
	HostPrefix bool
}

// MaxTupleBits bounds the bits of the digit of PartitionTuples, so that the partitions fit shared
// memory.
const MaxTupleBits = 11

// TupleType returns the type of a column of tuples of a key and a value that each have width bytes,
// 4 or 8. The key is in the low half.
func TupleType(width int) Type {
	if width == 4 {
		return Of(Uint64)
	}
	return Of(HugeInt)
}

// CheckTuples returns an error if a device cannot partition tuples: the errors of Digit.Check and
// more than MaxTupleBits; a value of another width or form than the key; a target column with
// another type or length; memory of another device; more than MaxRows rows; HostPrefix with a key
// that the host cannot address.
func CheckTuples(dev Device, to, key, value Column, d Digit, how TuplePass) error {
	if err := d.Check(key); err != nil {
		return err
	}
	width := key.Type.Width()
	switch {
	case d.Bits > MaxTupleBits:
		return fmt.Errorf("partition of tuples by %d bits: %d is the most", d.Bits, MaxTupleBits)
	case value.Type.IsVar() || value.Type.Width() != width || value.Valid != nil || value.Dict != nil ||
		value.CodeWidth != 0:
		return fmt.Errorf("partition of tuples of a key of %v and a value of %v: want plain values of the same width "+
			"without nulls", key.Type, value.Type)
	case to.Type != TupleType(width) || to.Valid != nil:
		return fmt.Errorf("partition of tuples of a key of %v into a column of %v: want one of %v", key.Type, to.Type,
			TupleType(width))
	case value.Len != key.Len || to.Len != key.Len:
		return fmt.Errorf("partition of tuples of %d keys and %d values into a column of %d", key.Len, value.Len,
			to.Len)
	case key.Len > MaxRows:
		return TooManyRows(key.Len)
	case how.HostPrefix && key.Len > 0 && key.Data.Bytes() == nil:
		return fmt.Errorf("the CPU cannot count the partitions of a key that is in device memory")
	}
	return CheckReach(dev, []Column{to, key, value})
}

// CheckSplit returns an error if a device cannot split tuples: types that do not have half the
// width of a tuple, or memory of another device.
func CheckSplit(dev Device, tuples Column, key, value Type) error {
	for _, t := range []Type{key, value} {
		if t.IsVar() || t.Width() != 4 && t.Width() != 8 || tuples.Type != TupleType(t.Width()) || tuples.Valid != nil {
			return fmt.Errorf("tuples of %v have no keys of %v and values of %v", tuples.Type, key, value)
		}
	}
	return CheckReach(dev, []Column{tuples})
}

// CheckReach returns an error if kernels of a device cannot access the columns: their buffers must
// belong to one of its budgets.
func CheckReach(d Device, cols []Column) error {
	budget, host := d.Budget(), d.HostBudget()
	for i, c := range cols {
		if b := c.foreign(func(b *Buffer) bool { return b.of(budget, host) || b.of(host, nil) }); b != nil {
			return fmt.Errorf("column %d of %v is %s, which this device (%s) cannot reach", i, c.Type, b.owner(),
				d.Properties().Name)
		}
	}
	return nil
}
