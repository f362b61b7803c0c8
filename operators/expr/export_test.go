package expr

// RangeOf returns the ranges of a list, unknown behind its end, as a function.
func RangeOf(list []*Range) func(int) *Range {
	return func(column int) *Range {
		if column >= len(list) {
			return nil
		}
		return list[column]
	}
}
