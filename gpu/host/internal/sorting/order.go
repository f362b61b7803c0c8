package sorting

import (
	"bytes"
	"cmp"

	"github.com/gstream/gstream/gpu"
)

// Comparison compares row i of one side with row j of the other. Its result is like that
// of bytes.Compare.
type Comparison func(i, j int) int

// CompareRows compares the rows of two sides by sort keys of the same types, in the order
// of Sort. Nulls are equal.
func CompareRows(left, right []gpu.SortKey) Comparison {
	keys := make([]Comparison, len(left))
	for k := range left {
		keys[k] = CompareKey(left[k], right[k].Column)
	}
	if len(keys) == 1 {
		return keys[0]
	}
	return func(i, j int) int {
		for _, compare := range keys {
			if c := compare(i, j); c != 0 {
				return c
			}
		}
		return 0
	}
}

// CompareKey is CompareRows for one key of the left side and a column of the right side.
func CompareKey(k gpu.SortKey, right gpu.Column) Comparison {
	left := k.Column
	compare := CompareColumns(left, right)
	if k.Descending {
		ascending := compare
		compare = func(i, j int) int { return -ascending(i, j) }
	}
	if left.Valid == nil && right.Valid == nil {
		return compare
	}
	return func(i, j int) int {
		x, y := left.IsValid(i), right.IsValid(j)
		switch {
		case x && y:
			return compare(i, j)
		case x == y:
			return 0
		case x == k.NullsFirst:
			return 1
		}
		return -1
	}
}

// CompareColumns compares values, ascending.
func CompareColumns(left, right gpu.Column) Comparison {
	switch t := left.Type; {
	case t.IsVar():
		return func(i, j int) int { return bytes.Compare(left.VarValue(i), right.VarValue(j)) }
	case t.Kind == gpu.Bool:
		x, y := left.Data.Bytes(), right.Data.Bytes()
		return func(i, j int) int { return int(x[i>>3]>>(i&7)&1) - int(y[j>>3]>>(j&7)&1) }
	case t.Kind == gpu.Float32:
		return compareBy(left, right, func(x, y float32) int { return gpu.CompareFloat(float64(x), float64(y)) })
	case t.Kind == gpu.Float64:
		return compareBy(left, right, gpu.CompareFloat)
	case t.Wide:
		return compareBy(left, right, gpu.Int128.Cmp)
	case t.IsUnsigned():
		switch t.Width() {
		case 1:
			return compareBy(left, right, cmp.Compare[uint8])
		case 2:
			return compareBy(left, right, cmp.Compare[uint16])
		case 4:
			return compareBy(left, right, cmp.Compare[uint32])
		}
		return compareBy(left, right, cmp.Compare[uint64])
	default:
		switch t.Width() {
		case 1:
			return compareBy(left, right, cmp.Compare[int8])
		case 2:
			return compareBy(left, right, cmp.Compare[int16])
		case 4:
			return compareBy(left, right, cmp.Compare[int32])
		}
		return compareBy(left, right, cmp.Compare[int64])
	}
}

func compareBy[T any](left, right gpu.Column, compare func(x, y T) int) Comparison {
	x, y := gpu.Values[T](left.Data, left.Len), gpu.Values[T](right.Data, right.Len)
	return func(i, j int) int { return compare(x[i], y[j]) }
}
