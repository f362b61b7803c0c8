// Package tasks schedules the tasks of a run: which task runs next, which runs again, and what each one reads. It does
// not know what tasks are, so that a simulation can use it.
package tasks

import (
	"cmp"
	"container/heap"
	"slices"
)

// Consecutive divides items into n consecutive shares of about equal weight. It returns the first item of each share,
// and the number of items. Shares may be empty.
func Consecutive(weights []int64, n int) []int {
	total := 0.0
	for _, w := range weights {
		total += float64(w)
	}
	out, before := []int{0}, 0.0
	for i, w := range weights {
		middle := before + float64(w)/2
		before += float64(w)
		for len(out) < n && middle >= total*float64(len(out))/float64(n) && i > 0 {
			out = append(out, i)
		}
	}
	for len(out) <= n {
		out = append(out, len(weights))
	}
	return out
}

// Packed divides items among at most n shares, so that the heaviest share weighs little: each item, the heaviest first,
// goes to the lightest share (Graham: Bounds on multiprocessing timing anomalies, 1969). Shares have their items in
// ascending order. Items without weight go nowhere, and no share is empty.
func Packed(weights []int64, n int) [][]int {
	var items []int
	for i, w := range weights {
		if w > 0 {
			items = append(items, i)
		}
	}
	slices.SortStableFunc(items, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	out, by := make([][]int, min(n, len(items))), make(lightest, min(n, len(items)))
	for i := range by {
		by[i].share = i
	}
	for _, i := range items {
		out[by[0].share] = append(out[by[0].share], i)
		by[0].sum += weights[i]
		heap.Fix(&by, 0)
	}
	for _, share := range out {
		slices.Sort(share)
	}
	return out
}

// lightest is a heap of shares by the sums of their weights.
type lightest []struct {
	share int
	sum   int64
}

func (l lightest) Len() int { return len(l) }
func (l lightest) Less(i, j int) bool {
	return l[i].sum < l[j].sum || l[i].sum == l[j].sum && l[i].share < l[j].share
}
func (l lightest) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (lightest) Push(any)        {}
func (lightest) Pop() any        { return nil }

// Split is a share of the rows of an item: number Share of Of, in order.
type Split struct{ Item, Share, Of int }

// Shared divides the rows of items, which have an order, among n shares: whole items if there are at least as many, or
// else each is divided. It returns the splits of each share.
func Shared(weights []int64, n int) [][]Split {
	out, m := make([][]Split, n), len(weights)
	if m == 0 {
		return out
	}
	if n > m {
		for i := range m {
			first, end := i*n/m, (i+1)*n/m
			for share := first; share < end; share++ {
				out[share] = []Split{{i, share - first, end - first}}
			}
		}
		return out
	}
	bounds := Consecutive(weights, n)
	for share := range n {
		for i := bounds[share]; i < bounds[share+1]; i++ {
			out[share] = append(out[share], Split{i, 0, 1})
		}
	}
	return out
}

// Even splits items that are too heavy for one of n shares, if they may be split. It returns the weights of the pieces,
// and the split of each.
func Even(weights []int64, n int, may func(item int) bool) (pieces []int64, splits []Split) {
	total := int64(0)
	for _, w := range weights {
		total += w
	}
	most := max(total/int64(2*n), 1) // half a share, so that pieces and other items fill shares evenly
	for i, w := range weights {
		k := 1
		if w > 2*most && may(i) {
			k = int(min((w+most-1)/most, int64(n)))
		}
		for share := range k {
			pieces, splits = append(pieces, w/int64(k)), append(splits, Split{i, share, k})
		}
	}
	return pieces, splits
}
