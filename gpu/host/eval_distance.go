package host

import (
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// distance runs OpDistance.
func (f *frame) distance(s *instruction, v *vec) error {
	v.valid = f.bothValid(s.Args)
	a, b := f.vecs[s.Args[0]].str[:f.n], f.vecs[s.Args[1]].str[:f.n]
	f.raw(v)
	var rows []int32
	defer func() { f.searched = 0 }()
	for i, x := range a {
		if v.valid != nil && v.valid[i>>6]>>(i&63)&1 == 0 {
			continue
		}
		y := b[i]
		if need := 4 * (len(y) + 2); cap(rows) < need {
			rows = make([]int32, need+need/4)
			f.searched = 4 * int64(cap(rows))
			if f.count(); f.err != nil {
				return f.err
			}
		}
		switch d := gpu.Distance(s.N); d {
		case gpu.Levenshtein:
			dst[int64](f, v)[i] = levenshtein(x, y, rows)
		case gpu.DamerauLevenshtein:
			dst[int64](f, v)[i] = damerauLevenshtein(x, y, rows)
		case gpu.Hamming:
			dst[int64](f, v)[i] = hamming(x, y)
		case gpu.Jaccard:
			dst[float64](f, v)[i] = jaccard(x, y)
		default:
			dst[float64](f, v)[i] = jaro(x, y, rows, d == gpu.JaroWinkler)
		}
	}
	return nil
}

// levenshtein returns the least number of bytes to insert, delete or replace.
func levenshtein(x, y string, row []int32) int64 {
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

// damerauLevenshtein also exchanges bytes that are neighbours, when others have been deleted
// between them or inserted, in linear memory (Zhao and Sahni: String correction using the
// Damerau-Levenshtein distance, 2019).
func damerauLevenshtein(x, y string, rows []int32) int64 {
	n := len(y) + 2
	// before and row are of two rows of the matrix, from column -1 on; saved has values of
	// earlier rows by column, last the row before in which x had the byte of the column.
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

// hamming counts the places at which two texts of one length differ.
func hamming(x, y string) (n int64) {
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			n++
		}
	}
	return n
}

// jaccard returns the share of bytes in either text that are in both.
func jaccard(x, y string) float64 {
	sets := [2][4]uint64{}
	for k, s := range []string{x, y} {
		for i := range len(s) {
			sets[k][s[i]/64] |= 1 << (s[i] % 64)
		}
	}
	both, either := 0, 0
	for w := range sets[0] {
		both += bits.OnesCount64(sets[0][w] & sets[1][w])
		either += bits.OnesCount64(sets[0][w] | sets[1][w])
	}
	return float64(both) / float64(either)
}

// jaro returns the Jaro similarity, or that of Winkler, for which a common prefix counts.
func jaro(x, y string, row []int32, winkler bool) float64 {
	if x == "" || y == "" {
		return 0
	}
	// row has the bytes of x that have a partner, in their order, and in bit 8 of place j
	// whether byte j of y has one.
	reach := max(max(len(x), len(y))/2-1, 0)
	clear(row[:len(y)])
	const taken = 1 << 8
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
			if y[j] != byte(row[k]) {
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
