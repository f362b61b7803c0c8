package expr

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// encoded returns x in an encoding, as type t.
func (b *binder) encoded(n syntax.Node, e gpu.Encoding, t gpu.Type, x *Expr) (*Expr, error) {
	return b.op(n, Expr{op: gpu.OpEncode, typ: t, n: int(e), nullable: x.nullable, fails: true}, x)
}

// bindEncode binds an encoding of text, and of BLOBs if blobs is set.
func bindEncode(e gpu.Encoding, t gpu.Type, blobs bool) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x := a[0]
		if !blobs || x.typ.Kind != gpu.Binary {
			var err error
			if x, err = b.str(n, 0, x); err != nil {
				return nil, err
			}
		}
		return b.encoded(n, e, t, x)
	}
}

// bindDecode binds the bytes of an encoded text, which must match a pattern.
func bindDecode(e gpu.Encoding, pattern, message string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.str(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		valid, err := b.expand(n, "regexp_full_match(_1, '"+pattern+"')", x)
		if err != nil {
			return nil, err
		}
		blob, err := b.encoded(n, e, gpu.Of(gpu.Binary), x)
		if err != nil {
			return nil, err
		}
		return b.require(n, valid, blob, message)
	}
}

// bindBase64 binds the base64 digits of a BLOB. A text literal is a BLOB here.
func bindBase64(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x := a[0]
	if x.literal != notLiteral && x.literal != nullLiteral && x.literal != stringLiteral ||
		x.literal == notLiteral && x.typ.Kind != gpu.Binary {
		return nil, b.errorf(n.Args[0], "%s needs a BLOB, found %v; encode(s) is the BLOB of a text", n.Name, x.typ)
	}
	x, err := b.convert(n.Args[0], x, gpu.Of(gpu.Binary), false)
	if err != nil {
		return nil, err
	}
	return b.encoded(n, gpu.Base64, gpu.Of(gpu.String), x)
}

// utf8Digits are the hexadecimal digits of bytes in UTF-8.
const utf8Digits = "(?:[0-7].|(?:C[2-9A-F]|D.)[89AB].|E0[AB].[89AB].|" +
	"E[1-9A-CEF](?:[89AB].){2}|ED[89].[89AB].|F0[9AB].(?:[89AB].){2}|F[1-3](?:[89AB].){3}|F48.(?:[89AB].){2})*"

// decoded returns a BLOB as text, which must be UTF-8.
func (b *binder) decoded(n syntax.Node, blob *Expr) (*Expr, error) {
	valid, err := b.expand(n, "regexp_full_match(hex(_1), '"+utf8Digits+"')", blob)
	if err != nil {
		return nil, err
	}
	text, err := b.encoded(n, gpu.Raw, gpu.Of(gpu.String), blob)
	if err != nil {
		return nil, err
	}
	return b.require(n, valid, text, "the bytes are no UTF-8 text")
}

// bindDecodeText binds decode.
func bindDecodeText(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x := a[0]
	if x.literal == nullLiteral || x.literal == stringLiteral {
		var err error
		if x, err = b.convert(n.Args[0], x, gpu.Of(gpu.Binary), false); err != nil {
			return nil, err
		}
	}
	if x.typ.Kind != gpu.Binary {
		return nil, b.errorf(n.Args[0], "%s needs a BLOB, found %v", n.Name, x.typ)
	}
	return b.decoded(n, x)
}

func bindDecodeURL(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	x, err := b.str(n, 0, a[0])
	if err != nil {
		return nil, err
	}
	if x, err = b.encoded(n, gpu.FromURL, gpu.Of(gpu.Binary), x); err != nil {
		return nil, err
	}
	return b.decoded(n, x)
}

// bindDigits binds hex and bin: the digits of a number, or of the bytes of a text.
func bindDigits(base int, e gpu.Encoding) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x := a[0]
		if x.literal == nullLiteral {
			return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
		}
		if x.typ.Kind == gpu.String || x.typ.Kind == gpu.Binary && e == gpu.Hex {
			return b.encoded(n, e, gpu.Of(gpu.String), x)
		}
		if !x.typ.IsInteger() {
			return nil, b.errorf(n.Args[0], "%s needs text or an integer, found %v", n.Name, x.typ)
		}
		t := gpu.Of(gpu.Int64)
		if x.typ.Kind == gpu.Uint64 || x.typ.Kind == gpu.HugeInt {
			t = x.typ
		}
		x, err := b.convert(n.Args[0], x, t, false)
		if err != nil {
			return nil, err
		}
		return b.op(n, Expr{op: gpu.OpDigits, typ: gpu.Of(gpu.String), n: base, nullable: x.nullable}, x)
	}
}

// bindToBase binds the digits of a number in a constant base.
func bindToBase(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "iii", a)
	if err != nil {
		return nil, err
	}
	base, ok := a[1].Constant()
	switch {
	case ok && !base.Valid:
		return newConstant(gpu.Null(gpu.Of(gpu.String))), nil
	case !ok || base.Int.Less(gpu.Int128From(2)) || gpu.Int128From(36).Less(base.Int):
		return nil, b.errorf(n.Args[1], "the base of %s must be a constant from 2 to 36", n.Name)
	}
	e, err := b.op(n, Expr{op: gpu.OpDigits, typ: gpu.Of(gpu.String), n: int(base.Int.Int64()),
		nullable: args[0].nullable}, args[0])
	if err != nil {
		return nil, err
	}
	legal, message := "_1 >= 0", "the number must not be negative"
	if len(args) == 3 {
		if e,
			err = b.expand(n,
			"CASE WHEN _2 > length(_1) THEN repeat('0', _2 - length(_1)) || _1 WHEN _2 IS NOT NULL THEN _1 END", e,
			args[2]); err != nil {
			return nil, err
		}
		legal, message = "_1 >= 0 AND (_2 BETWEEN 0 AND 64 OR _2 IS NULL)",
			"the number must not be negative, and the length must be at most 64"
	}
	valid, err := b.expand(n, legal, append([]*Expr{args[0]}, args[2:]...)...)
	if err != nil {
		return nil, err
	}
	return b.require(n, valid, e, message)
}

// bindHash binds the hash of values, which may be null.
func bindHash(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	var h *Expr
	t := gpu.Of(gpu.Uint64)
	for i, x := range a {
		if x.literal == nullLiteral {
			x = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
		}
		if x.annotation == gpu.UUID {
			return nil, b.errorf(n.Args[i], "%s of a UUID is not DuckDB's; cast it, as in x::BLOB", n.Name)
		}
		if x.typ.IsNested() {
			return nil, b.errorf(n.Args[i], "%s of a %v is not possible; take its parts", n.Name, x.typ)
		}
		args := []*Expr{typed(x)}
		if h != nil {
			args = append(args, h)
		}
		var err error
		if h, err = b.op(n, Expr{op: gpu.OpHash, typ: t, rng: typeRange(t)}, args...); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// bindDistance binds a distance of two texts.
func bindDistance(d gpu.Distance) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, "ssf", a)
		if err != nil {
			return nil, err
		}
		x, y, t := args[0], args[1], gpu.Of(gpu.Int64)
		if d > gpu.Hamming {
			t = gpu.Of(gpu.Float64)
		}
		e, err := b.op(n, Expr{op: gpu.OpDistance, typ: t, n: int(d), nullable: x.nullable || y.nullable,
			rng: typeRange(t)}, x, y)
		if err != nil {
			return nil, err
		}
		legal, message := "", ""
		switch d {
		case gpu.Hamming:
			legal, message = "CASE WHEN _2 IS NOT NULL THEN length(_1) = length(_2) AND _1 <> '' END",
				"texts of a Hamming distance must have the same length, which is not 0"
		case gpu.Jaccard:
			legal, message = "CASE WHEN _1 IS NOT NULL AND _2 IS NOT NULL THEN _1 <> '' AND _2 <> '' END",
				"texts of a Jaccard similarity must not be empty"
		}
		switch {
		case legal != "":
			valid, err := b.expand(n, legal, x, y)
			if err != nil {
				return nil, err
			}
			return b.require(n, valid, e, message)
		case len(args) == 3:
			return b.expand(n, "CASE WHEN _1 >= _2 THEN _1 WHEN _1 < _2 THEN 0e0 END", e, args[2])
		}
		return e, nil
	}
}

// bindNextAfter binds the float next to another; only two FLOATs give a FLOAT.
func bindNextAfter(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	t := gpu.Of(gpu.Float64)
	is := func(k gpu.Kind) bool { return a[0].typ.Kind == k || a[1].typ.Kind == k }
	if is(gpu.Float32) && !is(gpu.Float64) {
		t = gpu.Of(gpu.Float32)
	}
	args := make([]*Expr, 2)
	for i, x := range a {
		x, err := b.numeric(n, i, x)
		if err != nil {
			return nil, err
		}
		if args[i], err = b.convert(n.Args[i], x, t, false); err != nil {
			return nil, err
		}
	}
	return b.op(n, Expr{op: gpu.OpNextAfter, typ: t, nullable: args[0].nullable || args[1].nullable}, args...)
}

// bindFactorial binds the factorial of a number up to 33.
func bindFactorial(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	args, err := b.arguments(n, "i", a)
	if err != nil {
		return nil, err
	}
	x, t := args[0], gpu.Of(gpu.Int64)
	// The product of the factors up to 20 fits 64 bits, and so does the product of the others.
	product := func(from, to int64) (*Expr, error) {
		set, values, p := []gpu.Scalar{}, []gpu.Scalar{gpu.IntScalar(t, 1)}, int64(1)
		for k := from; k <= to; k++ {
			p *= k
			set, values = append(set, gpu.IntScalar(t, k)), append(values, gpu.IntScalar(t, p))
		}
		return b.op(n, Expr{op: gpu.OpStep, typ: t, n: len(set), set: append(set, values...), nullable: x.nullable,
			rng: rangeOf(1, p)}, x)
	}
	low, err := product(1, 20)
	if err != nil {
		return nil, err
	}
	high, err := product(21, 33)
	if err != nil {
		return nil, err
	}
	e, err := b.expand(n, "_1::HUGEINT * _2::HUGEINT", low, high)
	if err != nil {
		return nil, err
	}
	valid, err := b.expand(n, "_1 BETWEEN 0 AND 33", x)
	if err != nil {
		return nil, err
	}
	return b.require(n, valid, e, "a factorial is of a number from 0 to 33")
}

// readable is SQL that formats a number of bytes in the largest unit that it reaches, truncated to
// one digit after the point.
func readable(step int, units ...string) string {
	sql, power := "CASE", 1
	for range units {
		power *= step
	}
	for i := len(units) - 1; i >= 0; i-- {
		sql += fmt.Sprintf(" WHEN _1 >= %[1]d THEN (_1 // %[1]d)::VARCHAR || '.' || (_1 // %[2]d %% %[3]d * 10 // "+
			"%[3]d)::VARCHAR || ' %[4]s'", power, power/step, step, units[i])
		power /= step
	}
	return sql + " WHEN _1 = 1 THEN '1 byte' WHEN _1 >= 0 THEN _1::VARCHAR || ' bytes' END"
}

// bindReadable binds formatReadableSize.
func bindReadable(body string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		args, err := b.arguments(n, "i", a)
		if err != nil {
			return nil, err
		}
		size, err := b.expand(n, "abs(_1::HUGEINT)", args...)
		if err != nil {
			return nil, err
		}
		text, err := b.expand(n, body, size)
		if err != nil {
			return nil, err
		}
		return b.expand(n, "CASE WHEN _1 < 0 THEN '-' || _2 ELSE _2 END", args[0], text)
	}
}

// separators are the path separators that functions of paths accept, as character classes of a
// regular expression.
var separators = map[string]string{"both_slash": `/\\`, "forward_slash": `/`, "backslash": `\\`, "system": `/`}

// bindPath binds a function of a path: body is SQL over it, in which ? stands for the separators.
func bindPath(body func(sep string, trim bool) string) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
		x, err := b.str(n, 0, a[0])
		if err != nil {
			return nil, err
		}
		separator, trim := "both_slash", false
		for i, e := range a[1:] {
			v, ok := e.Constant()
			switch {
			case ok && v.Valid && e.typ.Kind == gpu.Bool && i == 0 && n.Name == "parse_filename":
				trim = v.Int.Lo != 0
			case ok && v.Valid && e.typ.Kind == gpu.String && separators[v.Str] != "" && i == len(a)-2:
				separator = v.Str
			default:
				return nil,
					b.errorf(n.Args[1+i],
						"%s takes a separator, which is 'both_slash', 'forward_slash', 'backslash' or 'system'; "+
							"parse_filename takes before it whether to trim the extension", n.Name)
			}
		}
		return b.expand(n, body(separators[separator], trim), x)
	}
}

// bindEscape binds the functions like_escape, ilike_escape and their negations: LIKE with ESCAPE.
func bindEscape(not, fold bool) func(*binder, *syntax.Call, []*Expr) (*Expr, error) {
	return func(b *binder, n *syntax.Call, _ []*Expr) (*Expr, error) {
		return b.like(&syntax.Like{Base: n.Base, X: n.Args[0], Pattern: n.Args[1], Escape: n.Args[2], Not: not,
			Fold: fold})
	}
}

// bindAgo binds ago: the time of the job minus an interval.
func bindAgo(b *binder, n *syntax.Call, a []*Expr) (*Expr, error) {
	if !a[0].isInterval() {
		return nil, b.errorf(n.Args[0], "%s needs an INTERVAL, as in ago(INTERVAL 1 DAY)", n.Name)
	}
	now, err := functions["now"].bind(b, n, nil)
	if err != nil {
		return nil, err
	}
	return b.expand(n, "_1 - _2", now, a[0])
}
