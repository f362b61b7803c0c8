package parquet

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/source"
	"github.com/parquet-go/parquet-go/format"
)

// scalar decodes a bound of a column from PLAIN encoding, which statistics and page indexes use. ok
// is false if the value cannot be trusted as a bound.
func (c leaf) scalar(b []byte) (gpu.Scalar, bool) {
	t := c.field.Type
	none := gpu.Scalar{}
	if t.IsVar() {
		if c.physical == format.FixedLenByteArray && len(b) > c.length {
			return none, false
		}
		return gpu.Scalar{Type: t, Valid: true, Str: string(b)}, true
	}
	s := gpu.Scalar{Type: t, Valid: true}
	switch c.physical {
	case format.Boolean:
		if len(b) != 1 {
			return none, false
		}
		s.Int = gpu.Int128FromUint(uint64(b[0] & 1))
	case format.Int32:
		if len(b) != 4 {
			return none, false
		}
		v := binary.LittleEndian.Uint32(b)
		s.Int = gpu.Int128From(int64(int32(v)))
		if t.IsUnsigned() {
			s.Int = gpu.Int128FromUint(uint64(v))
		}
	case format.Int64:
		if len(b) != 8 {
			return none, false
		}
		v := binary.LittleEndian.Uint64(b)
		s.Int = gpu.Int128From(int64(v))
		if t.IsUnsigned() {
			s.Int = gpu.Int128FromUint(v)
		}
	case format.Float:
		if len(b) != 4 {
			return none, false
		}
		s.Float = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case format.Double:
		if len(b) != 8 {
			return none, false
		}
		s.Float = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case format.ByteArray, format.FixedLenByteArray:
		switch {
		case c.isWideDecimal():
			return none, false
		case c.isHalf():
			if len(b) != 2 {
				return none, false
			}
			s.Float = float64(halfFloat(binary.LittleEndian.Uint16(b)))
			return s, true
		}
		v, ok := bigEndian(b)
		if len(b) == 0 || !ok {
			return none, false
		}
		s.Int = v
	default: // the order of INT96 bounds is not defined
		return none, false
	}
	least, most := t.Bounds()
	switch t.Kind {
	case gpu.Bool, gpu.Float32, gpu.Float64:
		return s, true
	case gpu.Time:
		least, most = gpu.Int128{}, gpu.Int128From(t.Unit.PerDay())
	}
	return s, s.Int.Cmp(least) >= 0 && s.Int.Cmp(most) <= 0
}

// bounds decodes a pair of bounds, in the type of the table. Bounds of floats do not cover NaN,
// which SQL orders above all numbers, so the upper bound of floats is open.
func (c leaf) bounds(lo, hi []byte) (from, to gpu.Scalar, ok bool) {
	if c.constant != nil {
		return *c.constant, *c.constant, c.constant.Valid
	}
	from, ok1 := c.scalar(lo)
	to, ok2 := c.scalar(hi)
	if !ok1 || !ok2 || from.Compare(to) > 0 {
		return from, to, false
	}
	if c.field.Type.IsFloat() {
		if math.IsNaN(from.Float) || math.IsNaN(to.Float) {
			return from, to, false
		}
		to.Float = math.NaN()
	}
	if c.widens() {
		from, to = widenScalar(from, c.as), widenScalar(to, c.as)
	}
	return from, to, from.Valid && to.Valid
}

// hasBounds reports whether the order of min_value, max_value and page bounds is known. In files
// that do not state the order the format leaves it undefined, and writers differ in how they
// compare and truncate bytes. Signed values have only one order.
func (c leaf) hasBounds() bool { return c.ordered || c.signedOrder() }

// reversed reports whether a lower bound is above the upper one.
func (c leaf) reversed(lo, hi []byte) bool {
	if c.field.Type.IsVar() {
		return bytes.Compare(lo, hi) > 0
	}
	from, ok1 := c.scalar(lo)
	to, ok2 := c.scalar(hi)
	return ok1 && ok2 && from.Compare(to) > 0
}

// outside reports whether the bounds of a page contradict the bounds of its chunk. Bounds of bytes
// may be truncated at different positions, so these only have to overlap.
func (c leaf) outside(lo, hi []byte, s chunkStats) bool {
	if c.field.Type.IsVar() {
		return c.reversed(lo, s.max) || c.reversed(s.min, hi)
	}
	return c.reversed(s.min, lo) || c.reversed(hi, s.max)
}

// storedBounds returns the bounds of a chunk. It falls back to the deprecated bounds if they are in
// the order of the type.
func (c leaf) storedBounds(s *statistics) (lo, hi []byte) {
	if s.MinValue == nil && s.MaxValue == nil && c.signedOrder() {
		return s.Min, s.Max
	}
	return s.MinValue, s.MaxValue
}

// chunkStats returns the usable statistics of a chunk. If they contradict the schema or each other,
// they are wrong or damaged, and none of them is used.
func (c leaf) chunkStats(s *statistics, rows int64) chunkStats {
	none := chunkStats{nulls: -1}
	if !c.optional {
		none.nulls = 0
	}
	out := none
	if s.NullCount.Valid {
		out.nulls = s.NullCount.V
		if out.nulls < 0 || out.nulls > rows || out.nulls > 0 && !c.optional {
			return none
		}
	}
	lo, hi := c.storedBounds(s)
	if lo == nil || hi == nil || !c.hasBounds() {
		return out
	}
	both := s.MinValue != nil && s.MaxValue != nil && s.Min != nil && s.Max != nil && c.signedOrder()
	if c.reversed(lo, hi) || rows > 0 && out.nulls == rows ||
		both && !(bytes.Equal(s.Min, s.MinValue) && bytes.Equal(s.Max, s.MaxValue)) {
		return none
	}
	out.min, out.max, out.hasRange = bytes.Clone(lo), bytes.Clone(hi), true
	return out
}

// Stats implements source.Table.
func (t *Table) Stats(i int) source.ColumnStats {
	var out source.ColumnStats
	ranged := true
	for _, f := range t.files {
		c := f.cols[i]
		for g := range f.groups {
			group := &f.groups[g]
			m := &group.chunks[i]
			out.Bytes += m.rawSize
			if leftToCPU(c, m) == "" {
				out.BytesInPages += m.rawSize
			}
			if m.stats.nulls < 0 {
				out.Nulls = -1
			} else if out.Nulls >= 0 {
				out.Nulls += m.stats.nulls
			}
			if !ranged || group.rows == 0 || m.stats.nulls == group.rows {
				continue
			}
			if ranged = m.stats.hasRange; !ranged {
				continue
			}
			lo, hi, ok := c.bounds(m.stats.min, m.stats.max)
			switch {
			case !ok:
				ranged = false
			case !out.HasRange:
				out.Min, out.Max, out.HasRange = lo, hi, true
			default:
				if lo.Compare(out.Min) < 0 {
					out.Min = lo
				}
				if hi.Compare(out.Max) > 0 {
					out.Max = hi
				}
			}
		}
	}
	if !ranged {
		out.HasRange, out.Min, out.Max = false, gpu.Scalar{}, gpu.Scalar{}
	}
	return out
}
