package expr

import (
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// typeNames are the names of the types in DuckDB and PostgreSQL.
var typeNames = map[string]gpu.Type{}

func init() {
	for t, names := range map[gpu.Type]string{
		gpu.Of(gpu.Bool):    "BOOLEAN BOOL LOGICAL",
		gpu.Of(gpu.Int8):    "TINYINT INT1",
		gpu.Of(gpu.Int16):   "SMALLINT INT2 INT16 SHORT",
		gpu.Of(gpu.Int32):   "INTEGER INT INT4 INT32 SIGNED INTEGRAL",
		gpu.Of(gpu.Int64):   "BIGINT INT8 INT64 LONG OID",
		gpu.Of(gpu.Uint8):   "UTINYINT UINT8",
		gpu.Of(gpu.Uint16):  "USMALLINT UINT16",
		gpu.Of(gpu.Uint32):  "UINTEGER UINT32",
		gpu.Of(gpu.Uint64):  "UBIGINT UINT64",
		gpu.Of(gpu.Float32): "FLOAT REAL FLOAT4",
		gpu.Of(gpu.Float64): "DOUBLE FLOAT8",
		gpu.Of(gpu.Date):    "DATE",
		gpu.Of(gpu.String):  "VARCHAR TEXT STRING CHAR BPCHAR NVARCHAR",
		gpu.Of(gpu.Binary):  "BLOB BYTEA BINARY VARBINARY BYTES",
		hugeint:             "HUGEINT INT128",

		gpu.DecimalOf(18, 3): "DECIMAL NUMERIC DEC",

		gpu.TimeOf(gpu.Second):      "TIME_S",
		gpu.TimeOf(gpu.Millisecond): "TIME_MS",
		gpu.TimeOf(gpu.Microsecond): "TIME",
		gpu.TimeOf(gpu.Nanosecond):  "TIME_NS",

		gpu.TimestampOf(gpu.Second, false):      "TIMESTAMP_S",
		gpu.TimestampOf(gpu.Millisecond, false): "TIMESTAMP_MS",
		gpu.TimestampOf(gpu.Microsecond, false): "TIMESTAMP DATETIME TIMESTAMP_US",
		gpu.TimestampOf(gpu.Nanosecond, false):  "TIMESTAMP_NS",
		gpu.TimestampOf(gpu.Microsecond, true):  "TIMESTAMPTZ",
	} {
		for _, name := range strings.Fields(names) {
			typeNames[name] = t
		}
	}
}

var hugeint = gpu.Of(gpu.HugeInt)

// ParseType parses the name of a type, such as BIGINT or DECIMAL(15,2). The error is an
// *Error.
func ParseType(src string) (gpu.Type, error) {
	p, err := newParser(src)
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
	t := p.peek()
	name := strings.ToUpper(t.text)
	typ, ok := typeNames[name]
	if (t.kind != tokenIdent && t.kind != tokenQuoted) || !ok {
		if t.kind != tokenIdent && t.kind != tokenQuoted {
			return gpu.Type{}, p.unexpected("a type")
		}
		known := make([]string, 0, len(typeNames))
		for k := range typeNames {
			known = append(known, k)
		}
		if name == "UUID" {
			return gpu.Type{}, newError(p.src, t.pos, "there is no cast to UUID; a UUID column is compared with the text itself, as in id = '…'")
		}
		return gpu.Type{}, newError(p.src, t.pos, "unknown type %q%s", cutRight(t.text, 60), suggest(t.text, sorted(known)))
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
	case gpu.Timestamp:
		if p.peek().is("WITH") && p.ahead(1).is("TIME") && p.ahead(2).is("ZONE") {
			p.next += 3
			typ.UTC = true
		} else if p.peek().is("WITHOUT") && p.ahead(1).is("TIME") && p.ahead(2).is("ZONE") {
			p.next += 3
		}
	}
	return typ, nil
}

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
		return gpu.Type{}, newError(p.src, pos, "the precision of a decimal must be between 1 and %d, is %d", gpu.MaxPrecision, precision)
	}
	if scale > precision {
		return gpu.Type{}, newError(p.src, pos, "the scale of a decimal must be at most its precision: found DECIMAL(%d,%d)", precision, scale)
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
