package bench

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/gstream/gstream/gpu"
)

// The tables are those of the Star Schema Benchmark (O'Neil et al., TPCTC 2009), with numbers in place of names: brand
// 0 … 999, nation 0 … 24. Only the columns that the queries read are made. An order has four lines.

const (
	starRows   = 6_000_000 // lines at scale factor 1
	starChunk  = 1 << 22   // lines that are generated and kept together
	lineBytes  = 20
	orderLines = 4
	brands     = 1000
	nations    = 25
	// days are those of the dimension table of dates, orderDays those of orders.
	days, orderDays = 2557, 2406
	years           = 7
)

// dimension is a dimension table, and the column of the fact table with its keys.
type dimension int

const (
	customers dimension = iota
	suppliers
	parts
	dates
	dimensions
	revenue = dimensions // the last column of the fact table
)

// attribute is a column of a dimension table besides its key.
type attribute int

const (
	customerNation attribute = iota
	customerRegion
	supplierNation
	supplierRegion
	partBrand
	partCategory
	partMfgr
	dateYear
	attributes
)

// columnsOf are the attributes of the dimensions.
var columnsOf = [dimensions][]attribute{
	customers: {customerNation, customerRegion},
	suppliers: {supplierNation, supplierRegion},
	parts:     {partBrand, partCategory, partMfgr},
	dates:     {dateYear},
}

// star is a fact table in page-locked host memory and its dimension tables.
type star struct {
	rows   int
	whole  int // rows of the fact table, if these are a share of them
	sizes  [dimensions]int
	keys   [dimensions]gpu.Column // of the dimension tables
	cols   [attributes]gpu.Column
	chunks [][dimensions + 1]gpu.Column // of the fact table: keys by dimension, and the revenue
	// sums has the revenue by all attributes that queries group by or filter: see cell.
	sums []int64
}

// scaleFactor is the scale factor of the Star Schema Benchmark.
func (s *star) scaleFactor() float64 { return float64(s.whole) / starRows }

// calendar has the keys and the years of the table of dates.
var calendar = sync.OnceValue(func() (out struct{ keys, years [days]uint32 }) {
	for day := range days {
		t := time.Date(1992, 1, 1+day, 0, 0, 0, 0, time.UTC)
		out.keys[day] = uint32(t.Year()*10000 + int(t.Month())*100 + t.Day())
		out.years[day] = uint32(t.Year())
	}
	return out
})

// starSeed is the first of the seeds of the columns.
const starSeed = 1 << 20

// below returns the random number of a row of a column, below a bound.
func below(column, row uint64, bound int) int {
	high, _ := bits.Mul64(draw(starSeed+column, row), uint64(bound))
	return int(high)
}

// nationOf and brandOf return attributes of rows of dimension tables.
func nationOf(d dimension, row int) int { return below(uint64(dimensions+1+d), uint64(row), nations) }
func brandOf(row int) int               { return below(uint64(dimensions+1+parts), uint64(row), brands) }

// cells is the number of sums, by the brand, the year, and the nations of suppliers and customers.
// The brand matters only without a nation of customers, so these are the sums of two tables.
const (
	brandCells  = years * brands * nations / 5
	nationCells = years * nations * nations * 5
)

// cell returns the attributes of a cell, and whether it is of the table with brands. Attributes that do not matter in
// that table are -1.
func cell(i int) (a [attributes]int, ofBrands bool) {
	for at := range a {
		a[at] = -1
	}
	if i < brandCells {
		a[supplierRegion], i = i%5, i/5
		a[partBrand], i = i%brands, i/brands
		a[partCategory], a[partMfgr] = a[partBrand]/40, a[partBrand]/200
		a[dateYear] = 1992 + i
		return a, true
	}
	i -= brandCells
	a[partMfgr], i = i%5, i/5
	a[supplierNation], i = i%nations, i/nations
	a[customerNation], i = i%nations, i/nations
	a[supplierRegion], a[customerRegion] = a[supplierNation]/5, a[customerNation]/5
	a[dateYear] = 1992 + i
	return a, false
}

// newStar makes the dimension tables of a fact table, and its first rows.
func (b *bench) newStar(rows, whole int) (s *star, err error) {
	s = &star{rows: rows, whole: whole, sums: make([]int64, brandCells+nationCells)}
	factor := s.scaleFactor()
	s.sizes = [dimensions]int{customers: max(100, int(30_000*factor)), suppliers: max(50, int(2_000*factor)),
		parts: max(200, int(200_000*min(factor, float64(max(1, bits.Len(uint(factor))))))), dates: days}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	for d, size := range s.sizes {
		key := func(i int) uint64 { return uint64(i + 1) }
		if dimension(d) == dates {
			key = func(i int) uint64 { return uint64(calendar().keys[i]) }
		}
		if s.keys[d], err = b.values(size, 4, key); err != nil {
			return nil, err
		}
		for _, a := range columnsOf[d] {
			if s.cols[a], err = b.values(size, 4, func(i int) uint64 { return uint64(attributeOf(a, i)) }); err != nil {
				return nil, err
			}
		}
	}
	for from := 0; from < rows; from += starChunk {
		n := min(starChunk, rows-from)
		var chunk [dimensions + 1]gpu.Column
		var values [dimensions + 1][]uint32
		for c := range chunk {
			buf, err := b.h.Alloc(int64(n) * 4)
			if err != nil {
				gpu.ReleaseColumns(chunk[:])
				return nil, err
			}
			chunk[c] = gpu.Column{Type: integer(4), Len: n, Data: buf}
			values[c] = gpu.Values[uint32](buf, n)
		}
		s.chunks = append(s.chunks, chunk)
		s.fill(from, values)
	}
	return s, nil
}

// attributeOf returns an attribute of a row of its dimension table.
func attributeOf(a attribute, row int) int {
	switch a {
	case customerNation:
		return nationOf(customers, row)
	case customerRegion:
		return nationOf(customers, row) / 5
	case supplierNation:
		return nationOf(suppliers, row)
	case supplierRegion:
		return nationOf(suppliers, row) / 5
	case partBrand:
		return brandOf(row)
	case partCategory:
		return brandOf(row) / 40
	case partMfgr:
		return brandOf(row) / 200
	}
	return int(calendar().years[row])
}

// fill makes lines from a position on, and adds their revenue to the sums.
func (s *star) fill(from int, values [dimensions + 1][]uint32) {
	var mu sync.Mutex
	days := calendar()
	parallel(len(values[revenue]), func(a, z int) {
		sums := make([]int64, len(s.sums))
		for i := a; i < z; i++ {
			line := uint64(from + i)
			order := line / orderLines
			customer := below(uint64(customers), order, s.sizes[customers])
			supplier := below(uint64(suppliers), line, s.sizes[suppliers])
			part, day := below(uint64(parts), line, s.sizes[parts]), below(uint64(dates), order, orderDays)
			money := 90_000 + below(uint64(revenue), line, 10_000_000)
			values[customers][i], values[suppliers][i] = uint32(customer+1), uint32(supplier+1)
			values[parts][i], values[dates][i] = uint32(part+1), days.keys[day]
			values[revenue][i] = uint32(money)
			year, brand := int(days.years[day])-1992, brandOf(part)
			nation := nationOf(suppliers, supplier)
			sums[(year*brands+brand)*5+nation/5] += int64(money)
			sums[brandCells+((year*nations+nationOf(customers, customer))*nations+nation)*5+brand/200] += int64(money)
		}
		mu.Lock()
		defer mu.Unlock()
		for i, v := range sums {
			s.sums[i] += v
		}
	})
}

func (s *star) release() {
	gpu.ReleaseColumns(slices.Concat(s.keys[:], s.cols[:]))
	for _, c := range s.chunks {
		gpu.ReleaseColumns(c[:])
	}
}
