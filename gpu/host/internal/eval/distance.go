package eval

import (
	"slices"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
)

// distances has the working memory for the distance of two strings x and y: their code points, or
// bytes if both are ASCII, and rows of a matrix with a column for each of y.
type distances struct {
	bytes [2][]byte
	runes [2][]rune
	rows  []int32
}

// distance runs OpDistance.
func (f *frame) distance(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	a, b := f.vecs[s.Args[0]].str[:f.n], f.vecs[s.Args[1]].str[:f.n]
	f.raw(v)
	d := distances{}
	defer func() { f.searched = 0 }()
	for i, x := range a {
		if v.valid != nil && v.valid[i>>6]>>(i&63)&1 == 0 {
			continue
		}
		y := b[i]
		if need := 4 * (len(y) + 2); cap(d.rows) < need {
			d.rows = make([]int32, need+need/4)
		}
		r := float64(0)
		if ascii(x) && ascii(y) {
			d.bytes[0], d.bytes[1] = append(d.bytes[0][:0], x...), append(d.bytes[1][:0], y...)
			r = distance(gpu.Distance(s.N), d.bytes[0], d.bytes[1], d.rows)
		} else {
			for k, text := range []string{x, y} {
				d.runes[k] = d.runes[k][:0]
				for _, r := range text {
					d.runes[k] = append(d.runes[k], r)
				}
			}
			r = distance(gpu.Distance(s.N), d.runes[0], d.runes[1], d.rows)
		}
		if v.typ.Kind == gpu.Float64 {
			dst[float64](f, v)[i] = r
		} else {
			dst[int64](f, v)[i] = int64(r)
		}
		if size := d.size(); size != f.searched {
			f.searched = size
			if f.count(); f.err != nil {
				return f.err
			}
		}
	}
	return nil
}

func (d *distances) size() int64 {
	size := 4 * cap(d.rows)
	for k := range 2 {
		size += cap(d.bytes[k]) + 4*cap(d.runes[k])
	}
	return int64(size)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// distance computes a distance of characters. It may reorder them.
func distance[T byte | rune](d gpu.Distance, x, y []T, rows []int32) float64 {
	switch d {
	case gpu.Levenshtein:
		return float64(levenshtein(x, y, rows))
	case gpu.DamerauLevenshtein:
		return float64(damerauLevenshtein(x, y, rows))
	case gpu.Hamming:
		return float64(hamming(x, y))
	case gpu.Jaccard:
		return jaccard(x, y)
	}
	return jaro(x, y, rows, d == gpu.JaroWinkler)
}

// levenshtein returns the least number of characters to insert, delete or replace.
func levenshtein[T byte | rune](x, y []T, row []int32) int64 {
	for j := range len(y) + 1 {
		row[j] = int32(j)
	}
	for i := range len(x) {
		diagonal := row[0]
		row[0]++
		for j := range len(y) {
			cost := diagonal
			if x[i] != y[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return int64(row[len(y)])
}

// damerauLevenshtein also swaps neighbouring characters, even if others have been deleted or
// inserted between them, in linear memory (Zhao and Sahni: String correction using the
// Damerau-Levenshtein distance, 2019).
func damerauLevenshtein[T byte | rune](x, y []T, rows []int32) int64 {
	n := len(y) + 2
	// before and row are of two rows of the matrix, from column -1 on; saved has values of
	// earlier rows by column, last the row before in which x had the character of the column.
	before, row, saved, last := rows[:n], rows[n:2*n], rows[2*n:3*n], rows[3*n:4*n]
	far := int32(max(len(x), len(y)) + 1)
	for j := range n {
		before[j], saved[j], last[j] = far, far, -1
		row[j] = int32(j - 1)
	}
	row[0] = far
	for i := int32(1); i <= int32(len(x)); i++ {
		before, row = row, before
		lastColumn, two, kept := int32(-1), row[1], far
		row[1] = i
		for j := int32(1); j <= int32(len(y)); j++ {
			v := min(before[j], row[j], before[j+1])
			if x[i-1] == y[j-1] {
				v = min(before[j], row[j]+1, before[j+1]+1)
				lastColumn, kept = j, two
				saved[j+1] = before[j-1]
			} else {
				v++
				if j-lastColumn == 1 {
					v = min(v, saved[j+1]+i-last[j+1])
				} else if i-last[j+1] == 1 {
					v = min(v, kept+j-lastColumn)
				}
			}
			two = row[j+1]
			row[j+1] = v
		}
		for j := range len(y) {
			if y[j] == x[i-1] {
				last[j+2] = i
			}
		}
	}
	return int64(row[n-1])
}

// hamming counts the positions at which two strings of equal length differ.
func hamming[T byte | rune](x, y []T) (n int64) {
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			n++
		}
	}
	return n
}

// jaccard returns the number of distinct characters in both strings, divided by the number in either.
// It sorts them.
func jaccard[T byte | rune](x, y []T) float64 {
	slices.Sort(x)
	slices.Sort(y)
	x, y = slices.Compact(x), slices.Compact(y)
	both := 0
	for i, j := 0, 0; i < len(x) && j < len(y); {
		switch {
		case x[i] < y[j]:
			i++
		case x[i] > y[j]:
			j++
		default:
			both, i, j = both+1, i+1, j+1
		}
	}
	return float64(both) / float64(len(x)+len(y)-both)
}

// jaro returns the Jaro similarity, or that of Winkler, which favours a common prefix.
func jaro[T byte | rune](x, y []T, row []int32, winkler bool) float64 {
	if len(x) == 0 || len(y) == 0 {
		return 0
	}
	// row has the characters of x that have a partner, in their order. A bit of row[j] above those
	// of code points says whether character j of y has a partner.
	reach := max(max(len(x), len(y))/2-1, 0)
	clear(row[:len(y)])
	const taken = 1 << 24
	common := 0
	for i := range len(x) {
		for j := max(0, i-reach); j < min(len(y), i+reach+1); j++ {
			if x[i] == y[j] && row[j]&taken == 0 {
				row[j] |= taken
				row[common] |= int32(x[i])
				common++
				break
			}
		}
	}
	if common == 0 {
		return 0
	}
	wrong, k := 0, 0
	for j := range len(y) {
		if row[j]&taken != 0 {
			if int32(y[j]) != row[k]&^taken {
				wrong++
			}
			k++
		}
	}
	m := float64(common)
	v := (m/float64(len(x)) + m/float64(len(y)) + (m-float64(wrong/2))/m) / 3
	if !winkler || v <= 0.7 {
		return v
	}
	prefix := 0
	for prefix < min(len(x), len(y), 4) && x[prefix] == y[prefix] {
		prefix++
	}
	return v + float64(float64(prefix)*0.1*(1-v)) // not fused
}
