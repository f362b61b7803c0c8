package cuda

import "github.com/gstream/gstream/gpu"

// loadText is LOAD_TEXT of order.cuh.
const loadText = loadWide + 1

// orderColumn and orderKey are OrderColumn and OrderKey of order.cuh.
type orderColumn struct {
	data, valid uint64
	texts       texts
}

type orderKey struct {
	left, right                            orderColumn
	load, descending, nullsFirst, nullSafe int32
}

// orderKeys returns the keys by which kernels compare the rows of two sides.
func orderKeys(left, right []gpu.SortKey) []orderKey {
	keys := make([]orderKey, len(left))
	for i, k := range left {
		c := k.Column
		keys[i] = orderKey{left: orderColumnOf(c), right: orderColumnOf(right[i].Column), load: loadOf(c.Type),
			descending: flag(k.Descending), nullsFirst: flag(k.NullsFirst)}
		if c.Type.IsVar() {
			keys[i].load = loadText
		}
	}
	return keys
}

func orderColumnOf(c gpu.Column) orderColumn {
	out := orderColumn{data: addr(c.Data), valid: addr(c.Valid)}
	if c.Type.IsVar() {
		out.texts = textsOf(c)
	}
	return out
}

// plainKey returns the kind of kernel that compares keys: k4 or k8, which compare the
// bits of one column of 4 or 8 bytes without nulls, or any.
func plainKey(keys []gpu.SortKey) string {
	c := keys[0].Column
	t := c.Type
	switch {
	case len(keys) > 1 || c.Valid != nil || t.IsVar() || t.IsFloat():
	case t.Width() == 4:
		return "k4"
	case t.Width() == 8:
		return "k8"
	}
	return "any"
}
