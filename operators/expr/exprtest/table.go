package exprtest

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Table is a table over which expressions run.
type Table struct {
	Schema *gpu.Schema
	Values [][]gpu.Scalar // by column
	Rows   int
}

// The first rows of a table of Extremes: zeros and empty texts, nulls, and the least and
// greatest values.
const (
	zeroRow = iota
	nullRow
	leastRow
	greatestRow
	firstDrawnRow
)

// columnTypes are the columns of Extremes: two of each family, because operators take two
// columns.
var columnTypes = []string{
	"i8 TINYINT", "i16 SMALLINT", "i32 INTEGER", "i64 BIGINT", "j64 BIGINT", "u8 UTINYINT", "u16 USMALLINT",
	"u32 UINTEGER", "u64 UBIGINT",
	"h HUGEINT", "f32 FLOAT", "f64 DOUBLE", "g64 DOUBLE",
	"d3 DECIMAL(3,3)", "d4 DECIMAL(4,1)", "d9 DECIMAL(9,2)", "d18 DECIMAL(18,6)", "d19 DECIMAL(19,0)",
	"d38 DECIMAL(38,10)", "e38 DECIMAL(38,37)", narrow + " DECIMAL(30,4)",
	"b BOOLEAN", "c BOOLEAN", "s VARCHAR", "t VARCHAR", "n VARCHAR", "x BLOB", "y BLOB",
	"dt DATE", "du DATE", "tm TIME", "ts TIMESTAMP", "tt TIMESTAMP", "tsec TIMESTAMP_S", "tms TIMESTAMP_MS",
	"tns TIMESTAMP_NS", "tz TIMESTAMPTZ", "iv INTERVAL", "iw INTERVAL",
}

// narrow is a decimal of many digits that is stored in 8 bytes, because its values fit.
const narrow = "d30"

// Extremes returns a table of 24 rows. Among ordinary values it has the limits of each
// type, nulls, NaN, -0, infinities, Unicode texts, and texts of numbers and dates (column
// n).
func Extremes() *Table {
	tab := &Table{Schema: &gpu.Schema{}, Rows: 24}
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range columnTypes {
		name, typeName, _ := strings.Cut(c, " ")
		typ, err := syntax.ParseType(typeName)
		if err != nil {
			panic(err)
		}
		typ.Wide = typ.Wide && name != narrow
		tab.Schema.Fields = append(tab.Schema.Fields, gpu.Field{Name: name, Type: typ, Nullable: true})
		values := make([]gpu.Scalar, tab.Rows)
		special := SpecialValues(typ)
		if name == "n" {
			special = special[:0]
			for _, s := range spellings {
				special = append(special, gpu.StringScalar(s))
			}
		}
		for i := range values {
			switch {
			case i == nullRow, i >= firstDrawnRow && r.IntN(10) == 0:
				values[i] = gpu.Null(typ)
			case i < firstDrawnRow:
				values[i] = special[i] // see SpecialValues
			case r.IntN(3) == 0:
				values[i] = OrdinaryValue(typ, r)
			default:
				values[i] = special[r.IntN(len(special))]
			}
		}
		tab.Values = append(tab.Values, values)
	}
	return tab
}

// Columns returns rows [from, to) of the table.
func (tab *Table) Columns(from, to int) []gpu.Column {
	cols := make([]gpu.Column, len(tab.Values))
	for i, values := range tab.Values {
		cols[i] = gpu.ColumnOf(tab.Schema.Fields[i].Type, values[from:to])
	}
	return cols
}

// SQL returns the statements that make the table in DuckDB, with one more column, row,
// for the number of the row.
func (tab *Table) SQL(name string) []string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (row INTEGER", name)
	for _, f := range tab.Schema.Fields {
		fmt.Fprintf(&b, ", %s %v", f.Name, f.Type)
	}
	create := b.String() + ")"
	b.Reset()
	fmt.Fprintf(&b, "INSERT INTO %s VALUES ", name)
	for i := range tab.Rows {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%d", i)
		for _, values := range tab.Values {
			b.WriteString(", " + Literal(values[i]))
		}
		b.WriteString(")")
	}
	return []string{create, b.String()}
}

// infinity is the infinite timestamp. The infinite date is the greatest int32.
const infinity = math.MaxInt64

// Literal returns SQL for a value and its type. It avoids the syntax of gstream's
// expressions, because the parsing and formatting of text are under test.
func Literal(s gpu.Scalar) string {
	if !s.Valid {
		return fmt.Sprintf("NULL::%v", s.Type)
	}
	text := s.Int.String()
	switch s.Type.Kind {
	case gpu.Float32, gpu.Float64:
		text = strconv.FormatFloat(s.Float, 'g', -1, 64)
	case gpu.Decimal:
		text = pointed(text, int(s.Type.Scale))
	case gpu.Bool:
		text = strconv.FormatBool(s.Int.Lo != 0)
	case gpu.String:
		return Quote(s.Str)
	case gpu.Binary:
		text = ""
		for _, c := range []byte(s.Str) {
			text += `\x` + hex.EncodeToString([]byte{c})
		}
	case gpu.Interval:
		v := gpu.PartsOfInterval(s.Str)
		return fmt.Sprintf("(to_months(%d) + to_days(%d) + to_microseconds(%d))", v.Months, v.Days, v.Micros)
	case gpu.Date:
		switch v := s.Int.Int64(); v {
		case math.MaxInt32:
			text = "infinity"
		case -math.MaxInt32:
			text = "-infinity"
		default:
			return fmt.Sprintf("(DATE '1970-01-01' + (%d))", v)
		}
	case gpu.Time:
		v := s.Int.Int64() * (1e9 / s.Type.Unit.PerSecond())
		text = fmt.Sprintf("%02d:%02d:%02d.%09d", v/3600e9, v/60e9%60, v/1e9%60, v%1e9)
	case gpu.Timestamp:
		v := s.Int.Int64()
		switch {
		case v == infinity:
			text = "infinity"
		case v == -infinity:
			text = "-infinity"
		case s.Type.Unit == gpu.Nanosecond:
			return fmt.Sprintf("make_timestamp_ns(%d)", v)
		default:
			return fmt.Sprintf("make_timestamp(%d)::%v", v*(1e6/s.Type.Unit.PerSecond()), s.Type)
		}
	}
	return fmt.Sprintf("'%s'::%v", text, s.Type)
}

// pointed puts the decimal point into an unscaled decimal.
func pointed(digits string, scale int) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for len(digits) <= scale {
		digits = "0" + digits
	}
	return sign + digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
}

// Quote returns a text as an SQL literal.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// texts are words with special characters of Unicode.
var texts = []string{"", "\u0001", "￿", "a", "A", "b", "abc", "ABC", " abc", "abc  ", "  ", "Äöü %_x", "ß", "STRASSE",
	"straße", "İstanbul", "ı", "I", "i", "ſ", "Σίσυφος",
	"e\u0301", "é", "n\u0303o", "👍🏽", "👨‍👩‍👧", "🇩🇪", "日本語", "a%b", "a_b", `a\b`, "%", "_", "'", "\ta", "a\n",
	"\u00a0a\u00a0", "\u2003", "ﬁ", "Ǆ", "ΐ", "a\u0308\u0323", "null", "Green forest", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}

// spellings are texts of values of other types, valid and damaged.
var spellings = []string{"", "0", "~", "-1", "1", "7", " 7", "7 ", "7\n", "\t7", "+1", "-0", "1.5", "2.5", "-2.5", ".5",
	"5.", "1e3", "1E-2", "1e400", "1e-400", "0x10", "1_000", "1__0", "127", "128", "255", "-129",
	"32768", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616",
	"170141183460469231731687303715884105727", "170141183460469231731687303715884105728",
	"99999999999999999999999999999999999999", "0.00000000000000000000000000000000009223372036854775807e50", "0.1",
	"3.4028236e38", "16777217", "9007199254740993", "2748897.75",
	"nan", "NaN", "-nan", "inf", "-inf", "Infinity", "-infinity", "infinity", "true", "TRUE", "t", "yes", "no", "n",
	"f", "false", " true", "on", "2",
	"1994-01-31", "1994-1-3", "2000-02-30", "2000-02-29", "0001-01-01", "0044-03-15 (BC)", "1969-12-31", "9999-12-31",
	"294247-01-10", "5881580-07-10", "2020/01/02", "2020 01 02", "20200102", "epoch",
	"1994-01-31 10:11:12", "1994-01-31 10:11:12.5", "1994-01-31T10:11:12.123456789", "1994-01-31 10:11:12.9996",
	"1994-01-31 10:11", "2016-02-29 24:00:00", "1969-12-31 23:59:59.9999999", "2021-01-01 00:00:00+05:30",
	"2021-01-01 00:00:00Z", "2021-01-01 00:00:00 UTC", "1677-09-21 00:12:43.145224193",
	"10:11:12", "10:11:12.123456", "10:11", "24:00:00", "23:59:60", "1:2:3", "10:11:12.1234567", "25:00:00", `\x41`,
	`\xZZ`, `ab\x00`, "a"}

// SpecialValues returns the values of a type that operators may get wrong. The first are
// zero, an ordinary value, the least and the greatest.
func SpecialValues(t gpu.Type) []gpu.Scalar {
	var out []gpu.Scalar
	switch {
	case t.Kind == gpu.Bool:
		return []gpu.Scalar{gpu.BoolScalar(false), gpu.BoolScalar(true), gpu.BoolScalar(false), gpu.BoolScalar(true)}
	case t.IsFloat():
		greatest, least := math.MaxFloat64, math.SmallestNonzeroFloat64
		if t.Kind == gpu.Float32 {
			greatest, least = math.MaxFloat32, math.SmallestNonzeroFloat32
		}
		for _, f := range []float64{0, 1, -greatest, greatest, math.Copysign(0, -1), math.NaN(), math.Inf(1),
			math.Inf(-1), least, -least, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, -1, 1e15, 1e16, 123456789.125, 1e-5,
			127.5, 128, 255.5, 2147483647, 2147483648, -2147483648, 9007199254740993, 9223372036854775807,
			-9223372036854775808, 1e30, 1e20, 2748897.75, 119043504, 8388609.5, 16777217, 3.4e38, 0.3, 100, 1e-10} {
			if t.Kind == gpu.Float32 {
				f = float64(float32(f))
			}
			out = append(out, gpu.FloatScalar(t, f))
		}
		return out
	case t.Kind == gpu.String:
		for _, s := range texts {
			out = append(out, gpu.StringScalar(s))
		}
		return out
	case t.Kind == gpu.Binary:
		for _, s := range []string{"", "a", "\x00", "\xff\xff", "ab", "\x00\xff", "ß", "\\", "\"'", "a\x00b", "\x7f",
			"\xc3"} {
			out = append(out, gpu.Scalar{Type: t, Valid: true, Str: s})
		}
		return out
	case t.Kind == gpu.Interval:
		for _, v := range []gpu.IntervalParts{{}, {Months: 1, Days: 2, Micros: 3},
			{Months: math.MinInt32 + 1, Days: math.MinInt32 + 1, Micros: math.MinInt64 + 1},
			{Months: math.MaxInt32, Days: math.MaxInt32, Micros: math.MaxInt64}, {Months: 1}, {Days: 30},
			{Micros: 30 * 86400e6}, {Days: -1, Micros: 86400e6}, {Months: -14}, {Micros: -1}, {Days: 1}, {Days: -31},
			{Months: 12, Days: 1, Micros: 3723500000}, {Micros: 86400e6}} {
			out = append(out, gpu.IntervalScalar(v))
		}
		return out
	case t.Kind == gpu.Date:
		for _, v := range []int64{0, 1, -2147483646, 2147483646, math.MaxInt32, -math.MaxInt32, -1, 8796, 11016, 19782,
			-141428, -141427, -719162, -719163, -719528, 2932896, 2932897, 106751991, 106751992, -106752, 18262, 19358,
			12418, 15706} {
			out = append(out, gpu.IntScalar(t, v))
		}
		return out
	case t.Kind == gpu.Time:
		per := t.Unit.PerSecond()
		for _, v := range []int64{0, 1, 0, 86400 * per, 86400*per - 1, 3600 * per, 36672*per + per/2, 43200 * per,
			59 * per, 60*per - 1} {
			out = append(out, gpu.IntScalar(t, v))
		}
		return out
	case t.Kind == gpu.Timestamp:
		per := t.Unit.PerSecond()
		// The least and the greatest microseconds that DuckDB accepts.
		least, greatest := int64(-9223372022400000000), int64(9223372036854775806)
		if t.Unit == gpu.Nanosecond {
			least, greatest = -9223286400000000000, 9223372036854775806
		} else {
			least, greatest = least/(1e6/per), greatest/(1e6/per)
		}
		for _, v := range []int64{0, 1, least, greatest, infinity, -infinity, -1, least + 1, greatest - 1, per, -per,
			759319872*per + per/2, 1456704000 * per, -62135596800 * min(per, 1e6), 1709210096*per + per - 1,
			253402300799 * min(per, 1e6),
			-12219292800 * min(per, 1e6), 1735560000 * per, 86400*per - 1, -86400 * per, 951782400 * per, 1e9 * per,
			1735570800*per - 1} {
			out = append(out, gpu.IntScalar(t, v))
		}
		return out
	}
	lo, hi := t.Bounds()
	one := gpu.Int128From(1)
	if t.Kind == gpu.Decimal {
		one = gpu.Pow10(int(t.Scale))
	}
	add := func(v gpu.Int128) {
		if !v.Less(lo) && !hi.Less(v) {
			out = append(out, gpu.Scalar{Type: t, Valid: true, Int: v})
		}
	}
	add(gpu.Int128{})
	add(gpu.Int128From(1))
	add(lo)
	add(hi)
	for _, v := range []int64{-1, 1, 2, 3, 5, 7, 10, -7, -128, 127, 128, 255, 1000, math.MinInt32, math.MaxInt32,
		math.MinInt64, math.MaxInt64} {
		add(gpu.Int128From(v))
		if p, ok := gpu.Int128From(v).Mul(one); ok {
			add(p)
		}
	}
	if half, r := one.QuoRem(gpu.Int128From(2)); r.Sign() == 0 {
		for _, v := range []int64{1, -1, 3, 5, -5, 19} {
			if p, ok := half.Mul(gpu.Int128From(v)); ok {
				add(p)
			}
		}
	}
	almost, _ := lo.Add(gpu.Int128From(1))
	add(almost)
	almost, _ = hi.Sub(gpu.Int128From(1))
	add(almost)
	return out
}

// OrdinaryValue draws a value on which arithmetic seldom fails.
func OrdinaryValue(t gpu.Type, r *rand.Rand) gpu.Scalar {
	n := int64(r.IntN(40))
	if !t.IsUnsigned() && r.IntN(3) == 0 {
		n = -n
	}
	switch {
	case t.Kind == gpu.Bool:
		return gpu.BoolScalar(n&1 == 0)
	case t.IsFloat():
		return gpu.FloatScalar(t, float64(n)/4)
	case t.Kind == gpu.String:
		return gpu.StringScalar([]string{"a", "b", "ab", "Green forest", "7", "ä"}[r.IntN(6)])
	case t.Kind == gpu.Binary:
		return gpu.Scalar{Type: t, Valid: true, Str: []string{"a", "b", "ab", "\x00"}[r.IntN(4)]}
	case t.Kind == gpu.Interval:
		return gpu.IntervalScalar(gpu.IntervalParts{Months: int32(r.IntN(3)), Days: int32(n), Micros: n * 1800e6})
	case t.Kind == gpu.Date:
		n = 9000 + 400*n
	case t.Kind == gpu.Time:
		n = int64(r.IntN(86400)) * t.Unit.PerSecond()
	case t.Kind == gpu.Timestamp:
		n = (800_000_000 + n*20_000_000 + int64(r.IntN(86400))) * t.Unit.PerSecond()
	case t.Kind == gpu.Decimal:
		v := gpu.Scalar{Type: t, Valid: true, Int: gpu.Int128From(n)}
		if p, ok := v.Int.Mul(gpu.Pow10(int(max(t.Scale, 1) - 1))); ok && p.FitsPrecision(int(t.Precision)) {
			v.Int = p
		}
		return v
	}
	return gpu.IntScalar(t, n)
}
