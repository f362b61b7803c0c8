package syntax

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// TypeName is a row of the table of types. Names are separated by spaces; results use the first
// one.
type TypeName struct {
	Type                   gpu.Type
	Names, About, Examples string
}

// Types are the types that can be named.
var Types = []TypeName{
	{gpu.Of(gpu.Bool), "BOOLEAN BOOL LOGICAL", "True or false.", "'yes'::BOOLEAN → true"},
	{gpu.Of(gpu.Int8), "TINYINT INT1", "8 bits with a sign.", "'-128'::TINYINT → -128"},
	{gpu.Of(gpu.Int16), "SMALLINT INT2 INT16 SHORT", "16 bits with a sign.", "1.5::SMALLINT → 2"},
	{gpu.Of(gpu.Int32), "INTEGER INT INT4 INT32 SIGNED INTEGRAL", "32 bits with a sign.", "true::INTEGER → 1"},
	{gpu.Of(gpu.Int64), "BIGINT INT8 INT64 LONG OID", "64 bits with a sign.", "'1e10'::BIGINT → 10000000000"},
	{gpu.Of(gpu.HugeInt), "HUGEINT INT128", "128 bits with a sign; DECIMAL(38,0) in files.",
		"9223372036854775808::HUGEINT → 9223372036854775808"},
	{gpu.Of(gpu.Uint8), "UTINYINT UINT8", "8 bits without a sign.", "255::UTINYINT → 255"},
	{gpu.Of(gpu.Uint16), "USMALLINT UINT16", "16 bits without a sign.", "65535::USMALLINT → 65535"},
	{gpu.Of(gpu.Uint32), "UINTEGER UINT32", "32 bits without a sign.", "'7'::UINTEGER → 7"},
	{gpu.Of(gpu.Uint64), "UBIGINT UINT64", "64 bits without a sign.",
		"18446744073709551615::UBIGINT → 18446744073709551615"},
	{gpu.Of(gpu.Float32), "FLOAT REAL FLOAT4", "A float of 32 bits.", "0.1::FLOAT → 0.1"},
	{gpu.Of(gpu.Float64), "DOUBLE FLOAT8", "A float of 64 bits. Also DOUBLE PRECISION.", "1::DOUBLE → 1.0"},
	{gpu.DecimalOf(18, 3), "DECIMAL NUMERIC DEC",
		"DECIMAL(p,s): p digits, at most 38, s of them after the point; DECIMAL(18,3) without them.",
		"2.345::DECIMAL(10,2) → 2.35"},
	{gpu.Of(gpu.String), "VARCHAR TEXT STRING CHAR BPCHAR NVARCHAR", "UTF-8 text. The length in VARCHAR(n) is ignored.",
		"1.50::VARCHAR → 1.50"},
	{gpu.Of(gpu.Binary), "BLOB BYTEA BINARY VARBINARY BYTES", `Bytes. As text, bytes that are not printable are \xHH.`,
		`'a\x00'::BLOB → a\x00`},
	{gpu.Of(gpu.Date), "DATE", "A day.", "DATE '2024-02-29' → 2024-02-29"},
	{gpu.TimeOf(gpu.Microsecond), "TIME", "A time of day in microseconds.", "TIME '10:30:00.5' → 10:30:00.5"},
	{gpu.TimeOf(gpu.Nanosecond), "TIME_NS", "A time of day in nanoseconds.",
		"'10:30:00.123456789'::TIME_NS → 10:30:00.123456789"},
	{gpu.TimeOf(gpu.Second), "TIME_S", "A time of day in seconds. DuckDB does not have this type.", ""},
	{gpu.TimeOf(gpu.Millisecond), "TIME_MS", "A time of day in milliseconds. DuckDB does not have this type.", ""},
	{gpu.TimestampOf(gpu.Microsecond, false), "TIMESTAMP DATETIME TIMESTAMP_US", "A date and time in microseconds.",
		"TIMESTAMP '2024-03-15 10:30:00' → 2024-03-15 10:30:00"},
	{gpu.TimestampOf(gpu.Second, false), "TIMESTAMP_S", "A date and time in seconds.",
		"TIMESTAMP_S '2024-03-15 10:30:00' → 2024-03-15 10:30:00"},
	{gpu.TimestampOf(gpu.Millisecond, false), "TIMESTAMP_MS", "A date and time in milliseconds.",
		"TIMESTAMP_MS '2024-03-15 10:30:00.5' → 2024-03-15 10:30:00.5"},
	{gpu.TimestampOf(gpu.Nanosecond, false), "TIMESTAMP_NS", "A date and time in nanoseconds.",
		"TIMESTAMP_NS '2024-03-15 10:30:00.000000001' → 2024-03-15 10:30:00.000000001"},
	{gpu.TimestampOf(gpu.Microsecond, true), "TIMESTAMPTZ",
		"A moment in microseconds, in UTC. Also TIMESTAMP WITH TIME ZONE.",
		"TIMESTAMPTZ '2024-03-15 10:30:00+02' → 2024-03-15 08:30:00+00"},
	{gpu.Of(gpu.Interval), "INTERVAL", "Months, days and microseconds.",
		"'1 day 30 minutes'::INTERVAL → 1 day 00:30:00"},
	{gpu.EnumOf("a"), "ENUM", "ENUM('text', …): one of the texts, in their order. Next to text, and in functions of " +
		"text, it is a VARCHAR.", "'b'::ENUM('b', 'a') → b\nenum_code('a'::ENUM('b', 'a')) → 1"},
}

// typeNames are the types by name: those of DuckDB and PostgreSQL.
var typeNames = map[string]gpu.Type{}

func init() {
	for _, t := range Types {
		if t.Type.IsEnum() {
			continue // its name needs a list
		}
		for _, name := range strings.Fields(t.Names) {
			typeNames[name] = t.Type
		}
	}
}

// ParseType parses the name of a type, such as BIGINT or DECIMAL(15,2). The error is an
// *Error.
func ParseType(src string) (gpu.Type, error) {
	p, err := newParser(src, nil)
	if err != nil {
		return gpu.Type{}, err
	}
	t, err := p.typeName()
	if err != nil {
		return gpu.Type{}, err
	}
	if p.peek().kind != tokenEOF {
		return gpu.Type{}, p.unexpected("the end of the type")
	}
	return t, nil
}

func (p *parser) typeName() (gpu.Type, error) {
	if p.nested++; p.nested > maxNesting {
		return gpu.Type{}, NewError(p.src, p.peek().pos, "the type is nested more than %d levels deep", gpu.MaxNesting)
	}
	defer func() { p.nested-- }()
	parse := p.plainType
	switch t := p.peek(); {
	case t.kind != tokenIdent:
	case t.is("STRUCT") || t.is("MAP"):
		parse = p.nestedType
	case t.is("ENUM"):
		parse = p.enumType
	}
	t, err := parse()
	if err != nil {
		return t, err
	}
	return p.lists(t)
}

func (p *parser) plainType() (gpu.Type, error) {
	t := p.peek()
	if own, ok := p.types[strings.ToLower(t.text)]; ok && (t.kind == tokenIdent || t.kind == tokenQuoted) {
		p.advance()
		return own, nil
	}
	name := strings.ToUpper(t.text)
	typ, ok := typeNames[name]
	if (t.kind != tokenIdent && t.kind != tokenQuoted) || !ok {
		if t.kind != tokenIdent && t.kind != tokenQuoted {
			return gpu.Type{}, p.unexpected("a type")
		}
		if name == "UUID" {
			return gpu.Type{}, NewError(p.src, t.pos,
				"there is no cast to UUID; a UUID column is compared with the text itself, as in id = '…'")
		}
		if name == "JSON" {
			return gpu.Type{}, NewError(p.src, t.pos, "JSON is the type of whole values only, not of what is inside "+
				"of them; write VARCHAR")
		}
		if name == "TIMETZ" {
			return gpu.Type{}, NewError(p.src, t.pos, noTimeZone)
		}
		return gpu.Type{}, NewError(p.src, t.pos, "unknown type %q%s", Cut(t.text, 60),
			Suggest(t.text, slices.Sorted(maps.Keys(typeNames))))
	}
	p.advance()
	switch typ.Kind {
	case gpu.Decimal:
		return p.decimalType(typ)
	case gpu.Float64:
		if name == "DOUBLE" {
			p.accept("PRECISION")
		}
	case gpu.String:
		// The length of VARCHAR(n) is parsed and ignored, as in DuckDB.
		if p.accept("(") {
			if _, err := p.number("a length"); err != nil {
				return gpu.Type{}, err
			}
			return typ, p.expect(")")
		}
	case gpu.Timestamp, gpu.Time:
		with := p.peek().is("WITH")
		if !with && !p.peek().is("WITHOUT") || !p.ahead(1).is("TIME") || !p.ahead(2).is("ZONE") {
			break
		}
		if with && typ.Kind == gpu.Time {
			return gpu.Type{}, NewError(p.src, t.pos, noTimeZone)
		}
		p.next += 3
		typ.UTC = with
	}
	return typ, nil
}

// enumType parses ENUM('text', …).
func (p *parser) enumType() (t gpu.Type, err error) {
	p.advance()
	if err := p.expect("("); err != nil {
		return t, err
	}
	var values []string
	seen := map[string]bool{}
	for {
		v := p.peek()
		if v.kind != tokenString {
			return t, p.unexpected("a text of the ENUM")
		}
		if seen[v.text] {
			return t, NewError(p.src, v.pos, "the ENUM has %q twice", Cut(v.text, 60))
		}
		seen[v.text] = true
		p.advance()
		if values = append(values, v.text); !p.accept(",") {
			return gpu.EnumOf(values...), p.expect(")")
		}
	}
}

const noTimeZone = "there is no TIME WITH TIME ZONE, whose values have an offset each; a time of day is a TIME, and " +
	"a moment a TIMESTAMP WITH TIME ZONE"

// decimalType parses [(precision[, scale])].
func (p *parser) decimalType(standard gpu.Type) (gpu.Type, error) {
	if !p.accept("(") {
		return standard, nil
	}
	pos := p.peek().pos
	precision, err := p.number("a precision")
	if err != nil {
		return gpu.Type{}, err
	}
	scale := 0
	if p.accept(",") {
		if scale, err = p.number("a scale"); err != nil {
			return gpu.Type{}, err
		}
	}
	if precision < 1 || precision > gpu.MaxPrecision {
		return gpu.Type{}, NewError(p.src, pos, "the precision of a decimal must be between 1 and %d, is %d",
			gpu.MaxPrecision, precision)
	}
	if scale > precision {
		return gpu.Type{},
			NewError(p.src, pos, "the scale of a decimal must be at most its precision: found DECIMAL(%d,%d)",
				precision, scale)
	}
	return gpu.DecimalOf(precision, scale), p.expect(")")
}

func (p *parser) number(what string) (int, error) {
	t := p.peek()
	n, err := strconv.ParseUint(t.text, 10, 31)
	if t.kind != tokenNumber || err != nil {
		return 0, p.unexpected(what)
	}
	p.advance()
	return int(n), nil
}
