package parquet

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
)

// everyType returns every type that can be written.
func everyType() []gpu.Type {
	types := []gpu.Type{
		gpu.DecimalOf(1, 0), gpu.DecimalOf(9, 2), gpu.DecimalOf(10, 0), gpu.DecimalOf(18, 6), gpu.DecimalOf(19, 0),
		gpu.DecimalOf(38, 10), {Kind: gpu.Decimal, Precision: 38, Scale: 2},
		{Kind: gpu.Decimal, Precision: 12, Scale: 2, Wide: true},
	}
	for k := gpu.Bool; k <= gpu.Float64; k++ {
		if k != gpu.HugeInt { // the planner makes it a DECIMAL
			types = append(types, gpu.Of(k))
		}
	}
	types = append(types, gpu.Of(gpu.Date), gpu.Of(gpu.String), gpu.Of(gpu.Binary))
	for u := gpu.Second; u <= gpu.Nanosecond; u++ {
		types = append(types, gpu.TimeOf(u), gpu.TimestampOf(u, false), gpu.TimestampOf(u, true))
	}
	return types
}

// randomScalar returns one of about distinct values of a type.
func randomScalar(r *rand.Rand, t gpu.Type, distinct int) gpu.Scalar {
	n := r.IntN(distinct)
	seed := rand.New(rand.NewPCG(uint64(n), 7)) // the same value for the same n
	s := gpu.Scalar{Type: t, Valid: true}
	switch {
	case t.Kind == gpu.Bool:
		s.Int = gpu.Int128From(int64(n & 1))
	case t.IsFloat():
		special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1)}
		if n < len(special) {
			s.Float = special[n]
		} else {
			s.Float = float64(float32(seed.NormFloat64() * 1e6))
		}
	case t.IsVar():
		b := make([]byte, seed.IntN(100)*seed.IntN(2))
		for i := range b {
			b[i] = byte('a' + seed.IntN(26))
			if t.Kind == gpu.Binary {
				b[i] = byte(seed.Uint32())
			}
		}
		s.Str = string(b)
		if t.Kind == gpu.String && n%3 == 0 {
			s.Str = fmt.Sprintf("%s-ü€😀-%d", b, n)
		}
	case t.Kind == gpu.Decimal:
		digits := 1 + seed.IntN(int(t.Precision))
		if !t.Wide {
			digits = min(digits, gpu.MaxNarrowPrecision)
		}
		v, _ := gpu.Pow10(digits).Sub(gpu.Int128From(1 + seed.Int64N(9)))
		if n%2 == 0 {
			v = v.Neg()
		}
		s.Int = v
	case t.Kind == gpu.Date:
		s.Int = gpu.Int128From(int64(seed.IntN(100000)) - 30000)
	case t.Kind == gpu.Time:
		s.Int = gpu.Int128From(seed.Int64N(86400 * t.Unit.PerSecond()))
	case t.Kind == gpu.Timestamp:
		s.Int = gpu.Int128From(seed.Int64N(4e9*t.Unit.PerSecond()) - 2e9*t.Unit.PerSecond())
	default:
		v := int64(seed.Uint64())
		switch t.Width() {
		case 1:
			v = int64(int8(v))
		case 2:
			v = int64(int16(v))
		case 4:
			v = int64(int32(v))
		}
		s.Int = gpu.Int128From(v)
		if t.IsUnsigned() {
			s.Int = gpu.Int128FromUint(uint64(v) << (64 - 8*t.Width()) >> (64 - 8*t.Width()))
		}
	}
	return s
}

// randomColumn returns a column and its values. A coded column has a dictionary with some
// entries that no row uses.
func randomColumn(r *rand.Rand, t gpu.Type, rows, distinct int, nulls float64, coded bool) (gpu.Column, []gpu.Scalar) {
	values := make([]gpu.Scalar, rows)
	for i := range values {
		if r.Float64() < nulls {
			values[i] = gpu.Null(t)
		} else {
			values[i] = randomScalar(r, t, distinct)
		}
	}
	if !coded {
		return gpu.ColumnOf(t, values), values
	}
	entries := []gpu.Scalar{randomScalar(r, t, distinct)}
	codes := make([]gpu.Scalar, rows)
	for i, v := range values {
		codes[i] = gpu.Null(gpu.Of(gpu.Int32))
		if v.Valid {
			codes[i] = gpu.IntScalar(gpu.Of(gpu.Int32), int64(len(entries)))
			entries = append(entries, v)
		}
	}
	c := gpu.ColumnOf(gpu.Of(gpu.Int32), codes)
	c.Type, c.Dict = t, &gpu.Dictionary{Values: gpu.ColumnOf(t, entries)}
	return c, values
}

// asWritten returns a value as a file has it: Parquet has no seconds, and the width of a
// decimal follows its precision.
func asWritten(s gpu.Scalar) gpu.Scalar {
	t := &s.Type
	if t.Kind == gpu.Decimal {
		*t = gpu.DecimalOf(int(t.Precision), int(t.Scale))
	}
	if (t.Kind == gpu.Time || t.Kind == gpu.Timestamp) && t.Unit == gpu.Second {
		t.Unit = gpu.Millisecond
		s.Int, _ = s.Int.Mul(gpu.Int128From(1000))
	}
	return s
}
