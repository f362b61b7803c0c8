package parquet

import (
	"encoding/binary"
	"testing"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/gputest"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

// chunkIndex has the statistics and indexes of a column chunk.
type chunkIndex struct {
	element *format.SchemaElement
	meta    *format.ColumnMetaData
	values  format.ColumnIndex
	offsets format.OffsetIndex
}

// indexed modifies the statistics and page indexes of a file, and rewrites them.
func indexed(change func(x *chunkIndex)) func(b []byte) []byte {
	return func(b []byte) []byte {
		n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		tail := append([]byte(nil), b[len(b)-8-n:]...)
		b = b[:len(b)-8-n]
		out := footer(func(m *format.FileMetaData) {
			for g := range m.RowGroups {
				for c := range m.RowGroups[g].Columns {
					k := &m.RowGroups[g].Columns[c]
					x := chunkIndex{element: &m.Schema[1+c], meta: &k.MetaData}
					read := func(at int64, n int32, v any) {
						if _, err := unmarshalCompact(b[at:at+int64(n)], v); err != nil {
							panic(err)
						}
					}
					read(k.ColumnIndexOffset, k.ColumnIndexLength, &x.values)
					read(k.OffsetIndexOffset, k.OffsetIndexLength, &x.offsets)
					change(&x)
					write := func(v any) (int64, int32) {
						s, err := thrift.Marshal(new(thrift.CompactProtocol), v)
						if err != nil {
							panic(err)
						}
						at := int64(len(b))
						b = append(b, s...)
						return at, int32(len(s))
					}
					k.ColumnIndexOffset, k.ColumnIndexLength = write(&x.values)
					k.OffsetIndexOffset, k.OffsetIndexLength = write(&x.offsets)
				}
			}
		})(tail)
		return append(b, out...)
	}
}

// lookUp scans for every value, and for nulls, of every column of statistics.parquet, or
// of a copy with other statistics. It returns the number of rows that were ruled out. No
// row may be lost.
func lookUp(t *testing.T, paths []string) (ruledOut int64) {
	t.Helper()
	all := mustScan(t, "statistics.parquet", 1000)
	for column, name := range []string{"r", "o", "s"} {
		for i := 3; i < 260; i += 4 { // every 20th value of o is null
			p := source.Predicate{Column: column, Op: source.Eq, Values: []gpu.Scalar{all[name][i]}}
			if !all[name][i].Valid {
				p = source.Predicate{Column: column, Op: source.IsNull}
			}
			got, progress, err := scanOnce(t, 0, paths, source.ScanOptions{Prune: []source.Predicate{p}}, "r", name)
			require.NoError(t, err)
			require.Contains(t, got["r"], all["r"][i], "row with %s = %v", name, all[name][i])
			ruledOut += progress.RowsSkipped
		}
		_, _, err := scanOnce(t, 0, paths,
			source.ScanOptions{Prune: []source.Predicate{{Column: column, Op: source.IsNotNull}}}, name)
		require.NoError(t, err)
	}
	return ruledOut
}

func TestStatisticsThatContradictTheSchemaOrEachOtherAreNotUsed(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	require.Greater(t, lookUp(t, fixture("statistics.parquet")), int64(3*65*200), "those that are right are used")
	name := func(x *chunkIndex) string { return x.element.Name }
	for lie, change := range map[string]func(x *chunkIndex){
		"pages of nulls": func(x *chunkIndex) {
			for i := range x.values.NullPages {
				x.values.NullPages[i] = name(x) != "o"
				x.values.MinValues[i], x.values.MaxValues[i] = []byte{}, []byte{}
			}
			x.values.NullCounts = nil
		},
		"a page of nulls that are not counted": func(x *chunkIndex) { x.values.NullPages[0] = true },
		"a page of nulls in a chunk without": func(x *chunkIndex) {
			if name(x) == "s" {
				x.values.NullPages[1], x.values.NullCounts = true, nil
			}
		},
		"a page of nulls in a chunk of fewer": func(x *chunkIndex) {
			if name(x) == "o" {
				x.values.NullPages[1], x.values.NullCounts = true, nil
			}
		},
		"nothing but pages of nulls where there is a range": func(x *chunkIndex) {
			for i := range x.values.NullPages {
				x.values.NullPages[i] = true
			}
			x.values.NullCounts = nil
		},
		"nulls of pages that do not add up": func(x *chunkIndex) {
			for i := range x.values.NullCounts {
				x.values.NullCounts[i] = 0
			}
		},
		"more nulls than rows in a page": func(x *chunkIndex) { x.values.NullCounts[0] = 1000 },
		"negative nulls in a page":       func(x *chunkIndex) { x.values.NullCounts[0] = -1 },
		"nulls of fewer pages": func(x *chunkIndex) {
			x.values.NullCounts = x.values.NullCounts[:1]
		},
		"bounds of pages that are reversed": func(x *chunkIndex) {
			x.values.MinValues, x.values.MaxValues = x.values.MaxValues, x.values.MinValues
		},
		"bounds of pages of another size": func(x *chunkIndex) {
			for i := range x.values.MinValues {
				if name(x) != "s" {
					x.values.MinValues[i], x.values.MaxValues[i] = make([]byte, 4), make([]byte, 4)
				}
			}
		},
		"bounds of pages outside of those of the chunk": func(x *chunkIndex) {
			for i := range x.values.MinValues {
				if name(x) == "s" {
					x.values.MinValues[i], x.values.MaxValues[i] = []byte("1"), []byte("2")
				} else {
					x.values.MinValues[i], x.values.MaxValues[i] = le64(1000), le64(1000)
				}
			}
		},
		"fewer pages in the column index": func(x *chunkIndex) {
			n := len(x.values.NullPages) - 1
			x.values.NullPages, x.values.NullCounts = x.values.NullPages[:n], x.values.NullCounts[:n]
			x.values.MinValues, x.values.MaxValues = x.values.MinValues[:n], x.values.MaxValues[:n]
		},
		"fewer pages in the offset index": func(x *chunkIndex) {
			x.offsets.PageLocations = x.offsets.PageLocations[:len(x.offsets.PageLocations)-1]
		},
		"first rows that do not ascend": func(x *chunkIndex) {
			p := x.offsets.PageLocations
			p[1].FirstRowIndex, p[2].FirstRowIndex = p[2].FirstRowIndex, p[1].FirstRowIndex
		},
		"a first page that is not the first": func(x *chunkIndex) { x.offsets.PageLocations[0].FirstRowIndex = 1 },
		"first rows behind the row group": func(x *chunkIndex) {
			x.offsets.PageLocations[3].FirstRowIndex = 1 << 40
		},
		"pages that do not ascend in the file": func(x *chunkIndex) {
			p := x.offsets.PageLocations
			for i, j := 0, len(p)-1; i < j; i, j = i+1, j-1 {
				p[i].Offset, p[j].Offset = p[j].Offset, p[i].Offset
			}
		},
		"pages outside of the chunk": func(x *chunkIndex) {
			for i := range x.offsets.PageLocations {
				x.offsets.PageLocations[i].Offset += 1 << 40
			}
		},
	} {
		t.Run(lie, func(t *testing.T) { lookUp(t, edited(t, "statistics.parquet", indexed(change))) })
	}
	for lie, change := range map[string]func(c int, s *format.Statistics){
		"reversed bounds": func(c int, s *format.Statistics) { s.MinValue, s.MaxValue = s.MaxValue, s.MinValue },
		"nothing but nulls, and a range": func(c int, s *format.Statistics) {
			s.NullCount = 130
		},
		"more nulls than rows": func(c int, s *format.Statistics) { s.NullCount = 131 },
		"negative nulls":       func(c int, s *format.Statistics) { s.NullCount = -1 },
		"nulls in a required column": func(c int, s *format.Statistics) {
			if c == 0 {
				s.NullCount, s.MinValue, s.MaxValue = 130, nil, nil
			}
		},
		"deprecated bounds that differ": func(c int, s *format.Statistics) {
			if c != 2 {
				s.Min, s.Max = s.MinValue, s.MaxValue
				s.MinValue, s.MaxValue = le64(1000), le64(1000)
			}
		},
		"bounds of another size": func(c int, s *format.Statistics) {
			if c != 2 {
				s.MinValue, s.MaxValue = make([]byte, 4), make([]byte, 4)
			}
		},
	} {
		t.Run(lie, func(t *testing.T) {
			lookUp(t, edited(t, "statistics.parquet", footer(func(m *format.FileMetaData) {
				for g := range m.RowGroups {
					for c := range m.RowGroups[g].Columns {
						change(c, &chunkOf(m, g, c).Statistics)
					}
				}
			})))
		})
	}
}

func TestPagesOfNothingButNullsContradictARange(t *testing.T) {
	c := leaf{optional: true, field: gpu.Field{Type: gpu.Of(gpu.String)}}
	x := format.ColumnIndex{NullPages: []bool{true}, MinValues: [][]byte{nil}, MaxValues: [][]byte{nil}}
	pages := []rowRange{{0, 10}}
	require.True(t, c.plausible(&x, pages, chunkStats{nulls: -1}))
	require.False(t, c.plausible(&x, pages, chunkStats{nulls: -1, hasRange: true}))
}

// Without column orders some writers truncate the upper bound of a text, and compare
// UTF-16 code units.
func TestBoundsOfBytesWithoutAColumnOrderAreNotUsed(t *testing.T) {
	cut := func(b []byte) []byte { return b[:4] }
	lie := indexed(func(x *chunkIndex) {
		if x.element.Name != "s" {
			return
		}
		x.meta.Statistics.MaxValue = cut(x.meta.Statistics.MaxValue)
		for i := range x.values.MaxValues {
			x.values.MinValues[i], x.values.MaxValues[i] = cut(x.values.MinValues[i]), cut(x.values.MaxValues[i])
		}
	})
	for _, orders := range []int{0, 1, 4} { // orders of the first columns, of three
		paths := edited(t, "statistics.parquet", func(b []byte) []byte {
			return footer(func(m *format.FileMetaData) {
				m.ColumnOrders = append(m.ColumnOrders, m.ColumnOrders...)[:orders]
			})(lie(b))
		})
		require.Greater(t, lookUp(t, paths), int64(2*65*200), "numbers have one order")
	}
}

func TestDeprecatedBoundsAreUsedWhereTheyAreSigned(t *testing.T) {
	old := edited(t, "statistics.parquet", func(b []byte) []byte {
		return indexed(func(x *chunkIndex) {
			s := &x.meta.Statistics
			s.Min, s.Max, s.MinValue, s.MaxValue = s.MinValue, s.MaxValue, nil, nil
			if x.element.Name == "s" {
				s.Min, s.Max = []byte("x"), []byte("y")
			}
			x.values = format.ColumnIndex{}
		})(b)
	})
	require.Greater(t, lookUp(t, old), int64(65*100))
}

func TestBloomFilterOfAnotherSizeThanItClaimsIsNotUsed(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	value := func(k int) gpu.Scalar { return gpu.IntScalar(gpu.Of(gpu.Int64), int64(k)) }
	skipped := func(paths []string) (n int64) {
		for k := 2; k < 198; k += 8 { // in one row group each
			got, p := bloomScan(t, paths, "i", value(k))
			require.Contains(t, got["i"], value(k))
			n += p.Skipped
		}
		return n
	}
	require.Greater(t, skipped(fixture("bloom.parquet")), int64(20))
	// The header of a filter begins with its size: field 1, an integer of 32 bits.
	short := func(b []byte) []byte {
		table, err := Open(fixture("bloom.parquet"), OpenOptions{})
		require.NoError(t, err)
		for _, g := range table.files[0].groups {
			at := g.chunks[0].bloom.start
			require.Equal(t, []byte{0x15, 0x80, 0x01}, b[at:at+3]) // 64
			b[at+1] = 0xc0                                         // 32, still in two bytes
			b[at+2] = 0x00
		}
		return b
	}
	unsaid := footer(func(m *format.FileMetaData) {
		for g := range m.RowGroups {
			for c := range m.RowGroups[g].Columns {
				chunkOf(m, g, c).BloomFilterLength = 0
			}
		}
	})
	require.Zero(t, skipped(edited(t, "bloom.parquet", short)))
	require.Greater(t, skipped(edited(t, "bloom.parquet", unsaid)), int64(20), "it ends where the next begins")
	require.Zero(t, skipped(edited(t, "bloom.parquet", func(b []byte) []byte { return unsaid(short(b)) })))
}
