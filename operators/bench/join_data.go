package bench

import (
	"math"
	"math/bits"

	"github.com/gstream/gstream/gpu"
)

// A workload's data is a function of the row number. R has the rows 0 … build-1 in some
// permutation, and row r has key number r mod distinct. Keys are bijections of key numbers, and
// payloads are hashes of row numbers. So every row can be generated on its own, and the rows of R
// that match a row of S are known without a join.

// Seeds of the permutations of rows and of the payloads.
const (
	orderR = iota + 1
	orderS
	drawS
	payloadR = 16
	payloadS = 64
)

// mix64 is a bijection of 64 bits that destroys order (the finaliser of SplitMix64).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// stream is the seed of the random values of a column.
type stream uint64

func newStream(seed uint64) stream { return stream(mix64(seed*0x9e3779b97f4a7c15 + 1)) }

// at returns the 64 random bits of a row.
func (s stream) at(row uint64) uint64 { return mix64(uint64(s) + row*0x9e3779b97f4a7c15) }

// draw returns the 64 random bits of a row of a column.
func draw(seed, row uint64) uint64 { return newStream(seed).at(row) }

// order is a permutation of 0 … n-1: a bijection of as many bits as n needs, applied until the
// value is below n.
type order struct {
	n, mask uint64
	shift   int
	add     [3]uint64
}

func newOrder(seed uint64, n int) (o order) {
	width := max(bits.Len(uint(n-1)), 1)
	o = order{n: uint64(n), mask: 1<<width - 1, shift: width/2 + 1}
	for i := range o.add {
		o.add[i] = draw(seed, uint64(i))
	}
	return o
}

// at returns the value at a position.
func (o *order) at(i int) int {
	x := uint64(i)
	for {
		for _, add := range o.add {
			x = (x + add) * 0x9e3779b97f4a7c15 & o.mask
			x ^= x >> o.shift
		}
		if x < o.n {
			return int(x)
		}
	}
}

// zipf generates key numbers by rejection-inversion (Hörmann & Derflinger, TOMACS 1996), which
// works for any exponent above 0. Key number k has a frequency of 1/(k+1)^s.
type zipf struct {
	s, first, last, squeeze float64
	n                       int
}

func newZipf(n int, s float64) *zipf {
	z := &zipf{s: s, n: n}
	z.first, z.last = z.integral(1.5)-1, z.integral(float64(n)+0.5)
	z.squeeze = 2 - z.inverse(z.integral(2.5)-math.Pow(2, -s))
	return z
}

// integral is the integral of the frequency, and inverse is its inverse.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	return log * expm1Over((1-z.s)*log)
}

func (z *zipf) inverse(y float64) float64 {
	t := max(y*(1-z.s), -1)
	return math.Exp(y * log1pOver(t))
}

// expm1Over is (e^x - 1) / x, log1pOver is ln(1 + x) / x.
func expm1Over(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x/2
}

func log1pOver(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x/2
}

// number returns the key number of a row.
func (z *zipf) number(row int) int {
	for try := uint64(0); ; try++ {
		u := float64(draw(drawS+try<<8, uint64(row))>>11) / (1 << 53)
		u = z.last + u*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Round(x), 1), float64(z.n))
		if k-x <= z.squeeze || u >= z.integral(k+0.5)-math.Pow(k, -z.s) {
			return int(k) - 1
		}
	}
}

// data generates the rows of a workload.
type data struct {
	workload
	rows, foreign order // of the rows of R, and of the foreign keys unless they are by Zipf
	zipf          *zipf
	r, s          []stream // by column; keys have none
}

func newData(w workload) *data {
	d := &data{workload: w, rows: newOrder(orderR, w.build), foreign: newOrder(orderS, w.probe)}
	if w.zipf > 0 {
		d.zipf = newZipf(w.distinct, w.zipf)
	}
	for column := range uint64(w.payloads + 1) {
		d.r, d.s = append(d.r, newStream(payloadR+column)), append(d.s, newStream(payloadS+column))
	}
	return d
}

// keyOf is the key with a number.
func (d *data) keyOf(number int) uint64 {
	if d.key == 4 {
		return uint64(spread(uint32(number)))
	}
	return mix64(uint64(number) + 1)
}

// number is the key number of row i of S.
func (d *data) number(i int) int {
	if d.zipf != nil {
		return d.zipf.number(i)
	}
	return d.foreign.at(i) % d.distinct
}

// matches is the number of rows of R with a key number: rows number, number + distinct,
// and so on.
func (d *data) matches(number int) int {
	if number%d.oneIn != 0 {
		return 0
	}
	return (d.build - number + d.distinct - 1) / d.distinct
}

// buildValue is the value of a column of R at position i, and probeValue that of a column of S.
// Column 0 is the key. Keys of R that S lacks come after all others.
func (d *data) buildValue(column, i int) uint64 {
	row := d.rows.at(i)
	if column > 0 {
		return d.payloadOf(column, row)
	}
	number := row % d.distinct
	if number%d.oneIn != 0 {
		number += d.distinct
	}
	return d.keyOf(number)
}

func (d *data) probeValue(column, i int) uint64 {
	if column > 0 {
		return d.s[column].at(uint64(i))
	}
	return d.keyOf(d.number(i))
}

// payloadOf is a payload of row number r of R.
func (d *data) payloadOf(column, r int) uint64 { return d.r[column].at(uint64(r)) }

// values makes a column of n integers of 4 or 8 bytes in page-locked memory, on all
// cores.
func (b *bench) values(n, width int, value func(i int) uint64) (gpu.Column, error) {
	buf, err := b.h.Alloc(int64(n) * int64(width))
	if err != nil {
		return gpu.Column{}, err
	}
	if width == 4 {
		v := gpu.Values[uint32](buf, n)
		parallel(n, func(from, to int) {
			for i := from; i < to; i++ {
				v[i] = uint32(value(i))
			}
		})
	} else {
		v := gpu.Values[uint64](buf, n)
		parallel(n, func(from, to int) {
			for i := from; i < to; i++ {
				v[i] = value(i)
			}
		})
	}
	return gpu.Column{Type: integer(width), Len: n, Data: buf}, nil
}

// table generates a side on the device, as strides of at most perStride rows, one column after the
// other.
func (b *bench) table(schema *gpu.Schema, rows, perStride int,
	value func(column, i int) uint64) (out []*gpu.Stride, err error) {
	for from := 0; from < rows; from += perStride {
		s := &gpu.Stride{Schema: schema, Rows: min(perStride, rows-from)}
		out = append(out, s)
		for c, f := range schema.Fields {
			host, err := b.values(s.Rows, f.Type.Width(), func(i int) uint64 { return value(c, from+i) })
			if err == nil {
				host, err = b.up(host)
			}
			if err != nil {
				releaseStrides(out)
				return nil, err
			}
			s.Cols = append(s.Cols, host)
		}
	}
	return out, nil
}

func releaseStrides(strides []*gpu.Stride) {
	for _, s := range strides {
		s.Release()
	}
}

// checksum has the number of rows of a table, and the sum of the hashes of its rows. It does not
// depend on their order. It covers every value, and which values are in the same row.
type checksum struct {
	b      *bench
	groups gpu.Groups
	sum    gpu.Accumulator
	rows   int64
}

func (b *bench) newChecksum() (c *checksum, err error) {
	c = &checksum{b: b}
	if c.groups, err = b.q.NewGroups(b.l, nil, gpu.GroupHint{}); err != nil {
		return nil, err
	}
	hash := gpu.Of(gpu.Uint64)
	if c.sum, err = b.q.NewAccumulator(b.l,
		gpu.Aggregate{Kind: gpu.Sum, Input: hash, Output: gpu.SumType(hash)}); err != nil {
		c.groups.Release()
		return nil, err
	}
	return c, nil
}

func (c *checksum) release() {
	c.groups.Release()
	c.sum.Release()
}

// add adds the rows of a stride, which is borrowed.
func (c *checksum) add(s *gpu.Stride) error {
	hash, err := c.b.q.Hash(c.b.l, s.Cols, 1)
	if err != nil {
		return err
	}
	defer hash.Release()
	one, err := c.groups.Assign(c.b.q, c.b.l, nil, s.Rows)
	if err != nil {
		return err
	}
	defer one.Release()
	c.rows += int64(s.Rows)
	return c.sum.Update(c.b.q, one, hash, 1)
}

// total returns the sum as text.
func (c *checksum) total() (string, error) {
	if c.rows == 0 {
		return "0", nil
	}
	out, err := c.sum.Result(c.b.q, c.b.l, 0, 1)
	if err != nil {
		return "", err
	}
	s, err := c.b.q.Download(c.b.h, &gpu.Stride{Schema: gpu.NewSchema(gpu.Field{Name: "sum", Type: out.Type}),
		Cols: []gpu.Column{out}, Rows: 1})
	if err != nil {
		out.Release()
		return "", err
	}
	defer s.Release()
	return s.Cols[0].ScalarAt(0).String(), nil
}

// answer is the correct result of a join.
type answer struct {
	pairs int64
	sum   string
}

// answer generates the rows of the result from the functions of the data, without a join, and adds
// them up on the device, some rows at a time.
func (b *bench) answer(d *data, schema *gpu.Schema) (a answer, err error) {
	sum, err := b.newChecksum()
	if err != nil {
		return a, err
	}
	defer sum.release()
	perKey := (d.build + d.distinct - 1) / d.distinct
	block := max(1<<22/perKey, 1)
	for from := 0; from < d.probe; from += block {
		if err := b.ctx.Err(); err != nil {
			return a, err
		}
		if err := b.addPairs(d, schema, sum, from, min(from+block, d.probe)); err != nil {
			return a, err
		}
	}
	a.pairs = sum.rows
	a.sum, err = sum.total()
	return a, err
}

// addPairs adds the result rows of some rows of S.
func (b *bench) addPairs(d *data, schema *gpu.Schema, sum *checksum, from, to int) error {
	numbers, ends := make([]int, to-from), make([]int, to-from)
	parallel(to-from, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			numbers[i] = d.number(from + i)
			ends[i] = d.matches(numbers[i])
		}
	})
	rows := 0
	for i, n := range ends {
		rows += n
		ends[i] = rows
	}
	probe, build := make([]int, rows), make([]int, rows) // rows of S and of R
	parallel(to-from, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			at := ends[i] - d.matches(numbers[i])
			for k := range ends[i] - at {
				probe[at+k], build[at+k] = from+i, numbers[i]+k*d.distinct
			}
		}
	})
	if rows == 0 {
		return nil
	}
	s := &gpu.Stride{Schema: schema, Rows: rows}
	defer func() { s.Release() }()
	for c, f := range schema.Fields {
		host, err := b.values(s.Rows, f.Type.Width(), func(i int) uint64 {
			switch {
			case c == 0:
				return d.keyOf(numbers[probe[i]-from])
			case c <= d.payloads:
				return d.probeValue(c, probe[i])
			}
			return d.payloadOf(c-d.payloads, build[i])
		})
		if err == nil {
			host, err = b.up(host)
		}
		if err != nil {
			return err
		}
		s.Cols = append(s.Cols, host)
	}
	return sum.add(s)
}
