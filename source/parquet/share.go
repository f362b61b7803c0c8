package parquet

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/source"
)

// groupsPerShare is the number of row groups of a share from which a table is divided between row groups. Otherwise
// shares also end within row groups.
const groupsPerShare = 4

// Share returns a table with a share of the rows, of several that have about equal numbers of rows. The shares follow
// each other in the order of the rows.
func (t *Table) Share(share, of int) (*Table, error) {
	if of < 1 || share < 0 || share >= of || t.snapshot.Of > 0 {
		return nil, fmt.Errorf("a table has no share %d of %d", share, of)
	}
	out := *t
	out.snapshot.Share, out.snapshot.Of = share, of
	groups := 0
	for _, f := range t.files {
		groups += len(f.groups)
	}
	// bound returns the first row of a share.
	bound := func(i int) int64 { return int64(float64(t.rows) / float64(of) * float64(i)) }
	from, to := bound(share), bound(share+1)
	if share == of-1 {
		to = t.rows
	}
	out.rows = 0
	out.shares = make([][]rowRange, len(t.files))
	at := int64(0)
	for i, f := range t.files {
		for g := range f.groups {
			n := f.groups[g].rows
			r := rowRange{min(max(from-at, 0), n), min(max(to-at, 0), n)}
			if groups/of >= groupsPerShare {
				r = rowRange{0, n}
				if middle := at + n/2; middle < from || middle >= to {
					r.to = 0
				}
			}
			out.shares[i] = append(out.shares[i], r)
			out.rows += r.to - r.from
			at += n
		}
	}
	return &out, nil
}

// ShareOf implements source.Shareable.
func (t *Table) ShareOf(share, of int) (source.Table, error) {
	out, err := t.Share(share, of)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// within returns the parts of ranges that are in another one.
func (r rowRange) within(ranges []rowRange) (out []rowRange) {
	for _, x := range ranges {
		if x = (rowRange{max(x.from, r.from), min(x.to, r.to)}); x.from < x.to {
			out = append(out, x)
		}
	}
	return slices.Clip(out)
}
