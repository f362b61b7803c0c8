package gpu

import "fmt"

// CheckMerge says whether MergeMatch can match two sides.
func CheckMerge(build, probe []SortKey, nullSafe []bool) error {
	if len(build) == 0 || len(probe) != len(build) || len(nullSafe) != len(build) {
		return fmt.Errorf("match of %d build keys, %d probe keys and %d rules for nulls", len(build), len(probe), len(nullSafe))
	}
	for k, b := range build {
		p := probe[k]
		if b.Column.Type != p.Column.Type {
			return fmt.Errorf("match of key %d of %v with %v", k, b.Column.Type, p.Column.Type)
		}
		if b.Descending != p.Descending || b.NullsFirst != p.NullsFirst {
			return fmt.Errorf("match of sides that are sorted differently by key %d", k)
		}
	}
	for _, side := range [][]SortKey{build, probe} {
		cols := make([]Column, len(side))
		for k := range side {
			cols[k] = side[k].Column
		}
		if err := CheckKeys(cols); err != nil {
			return err
		}
	}
	return nil
}

// CheckKeys says whether rows can be compared by key columns.
func CheckKeys(keys []Column) error {
	if len(keys) == 0 {
		return fmt.Errorf("no key columns to compare rows by")
	}
	for _, c := range keys {
		if c.Len != keys[0].Len {
			return fmt.Errorf("key columns of %d and %d rows", keys[0].Len, c.Len)
		}
		if c.Dict != nil && !c.Type.IsVar() {
			return fmt.Errorf("keys in a dictionary of %v: only strings are dictionary-coded", c.Type)
		}
	}
	if keys[0].Len > MaxRows {
		return fmt.Errorf("%d rows are more than the %d that row ids can address", keys[0].Len, MaxRows)
	}
	return nil
}

// CheckScatter says whether columns can be scattered by ids to n rows.
func CheckScatter(cols []Column, ids Column, n int) error {
	for _, c := range cols {
		if c.Len != ids.Len {
			return fmt.Errorf("scatter of a column of %d rows by %d ids", c.Len, ids.Len)
		}
	}
	if n < 0 || n > MaxRows {
		return fmt.Errorf("scatter to %d rows: want 0 to %d", n, MaxRows)
	}
	return nil
}
