package expr

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Expr is a typed and checked scalar expression over columns, which it knows by numbers: their
// positions in a schema, or the IDs of its scope. It is immutable.
type Expr struct {
	op     gpu.Op
	typ    gpu.Type
	args   []*Expr
	column int          // number, for opColumn
	name   string       // of the column
	table  string       // of the column, if its name alone is ambiguous
	value  gpu.Scalar   // OpConst: the value; OpLike: the pattern
	set    []gpu.Scalar // of OpIn
	n      int
	level  int // of a lambda, for opParam and operations with bodies; see lambda.go

	literal  literalKind
	untyped  bool // [] or [NULL], which takes the type of other lists
	nullable bool
	// annotation is the annotation of a column whose values are unchanged; see Annotation.
	annotation gpu.Annotation
	rng        *Range
	fails      bool   // an operation in it may fail on a row
	message    string // of that failure; see Required
	hidden     bool   // the values of the node must not be shown
	origin     *Origin
}

// opColumn is a reference to a column. It is not an instruction.
const opColumn gpu.Op = 255

// literalKind marks a literal that still takes its type from the other operand.
type literalKind uint8

const (
	notLiteral literalKind = iota
	integerLiteral
	stringLiteral
	nullLiteral // its type is Invalid
	// errorLiteral is a call of error. It is no literal, but takes its type from the other operand as one does.
	errorLiteral
)

// Type returns the type of the values, including their storage.
func (e *Expr) Type() gpu.Type { return e.typ }

// Annotation returns the annotation of the column, if the expression is one of these: a column; a
// column cast to its own type; a column made null by the FILTER of an aggregate; Coalesce of two
// columns with the same annotation.
func (e *Expr) Annotation() gpu.Annotation { return e.annotation }

// Nullable reports whether a value can be null.
func (e *Expr) Nullable() bool { return e.nullable }

// Range bounds the values that are not null. It is nil if nothing is known, or if values of the
// type are not stored as integers.
func (e *Expr) Range() *Range { return e.rng }

// MayFail reports whether the expression may fail on a row, as a division by zero does.
func (e *Expr) MayFail() bool { return e.fails }

// IsColumn returns the number of the column if the expression is a bare column.
func (e *Expr) IsColumn() (int, bool) { return e.column, e.op == opColumn }

// Constant returns the value if the expression is a constant.
func (e *Expr) Constant() (gpu.Scalar, bool) { return e.value, e.op == gpu.OpConst }

// Branches returns the two values between which the expression chooses on each row, if it does so.
func (e *Expr) Branches() []*Expr {
	if e.op == gpu.OpSelect {
		return e.args[1:]
	}
	return nil
}

// Columns returns the numbers of the used columns, ascending.
func (e *Expr) Columns() []int {
	seen := map[int]bool{}
	e.walk(func(e *Expr) {
		if e.op == opColumn {
			seen[e.column] = true
		}
	})
	cols := make([]int, 0, len(seen))
	for c := range seen {
		cols = append(cols, c)
	}
	sort.Ints(cols)
	return cols
}

// CheckTypes returns an error if a column of the expression is not there, or has another type. typeOf returns the type
// of the column with a number, false if there is none.
func (e *Expr) CheckTypes(typeOf func(int) (gpu.Type, bool)) (err error) {
	e.walk(func(e *Expr) {
		if e.op != opColumn || err != nil {
			return
		}
		if have, ok := typeOf(e.column); !ok {
			err = fmt.Errorf("column %q (%d) of an expression is not below it", e.name, e.column)
		} else if have != e.typ {
			err = fmt.Errorf("column %q is %v in an expression and %v below it", e.name, e.typ, have)
		}
	})
	return err
}

// walk calls f once for every node, even if the node is shared.
func (e *Expr) walk(f func(*Expr)) {
	seen := map[*Expr]bool{}
	var visit func(*Expr)
	visit = func(e *Expr) {
		if seen[e] {
			return
		}
		seen[e] = true
		f(e)
		for _, a := range e.args {
			visit(a)
		}
	}
	visit(e)
}

// Equal reports whether two expressions over the same schema are the same. It does not compare
// texts, because columns of two tables may have the same name.
func (e *Expr) Equal(f *Expr) bool {
	seen := map[[2]*Expr]bool{} // pairs of shared nodes are compared once
	var equal func(e, f *Expr) bool
	equal = func(e, f *Expr) bool {
		pair := [2]*Expr{e, f}
		if e == f || seen[pair] {
			return true
		}
		seen[pair] = true
		return e.op == f.op && e.typ == f.typ && e.column == f.column && e.n == f.n && e.level == f.level &&
			e.message == f.message &&
			e.value == f.value && math.Signbit(e.value.Float) == math.Signbit(f.value.Float) &&
			slices.Equal(e.set, f.set) && slices.EqualFunc(e.args, f.args, equal)
	}
	return equal(e, f)
}

// Remap returns the expression with other numbers of its columns. f maps the old number to the new one.
func (e *Expr) Remap(f func(int) int) *Expr {
	return e.replace(func(column *Expr) *Expr {
		c := *column
		c.column = f(c.column)
		return &c
	})
}

// Substitute returns the expression with other expressions of the same types in the place of
// columns: of returns that of the column with a number, nil if the column stays. A column that
// takes the place of another one is written as that.
func (e *Expr) Substitute(of func(int) *Expr) *Expr {
	return e.replace(func(column *Expr) *Expr {
		to := of(column.column)
		if to == nil {
			return column
		}
		if to.op != opColumn {
			return to
		}
		c := *to
		c.name, c.table = column.name, column.table
		return &c
	})
}

// replace returns the expression with other columns.
func (e *Expr) replace(f func(column *Expr) *Expr) *Expr {
	done := map[*Expr]*Expr{}
	var remap func(*Expr) *Expr
	remap = func(e *Expr) *Expr {
		if r, ok := done[e]; ok {
			return r
		}
		if e.op == opColumn {
			done[e] = f(e)
			return done[e]
		}
		c := *e
		done[e] = &c
		c.args = make([]*Expr, len(e.args))
		for i, a := range e.args {
			c.args[i] = remap(a)
		}
		return &c
	}
	return remap(e)
}

// Folded returns the expression with its constant parts evaluated, after constants have taken the place of columns. A
// part that fails stays.
func (e *Expr) Folded(fold Fold) *Expr {
	done := map[*Expr]*Expr{}
	var folded func(*Expr) *Expr
	folded = func(e *Expr) *Expr {
		if len(e.args) == 0 {
			return e
		}
		if r, ok := done[e]; ok {
			return r
		}
		args, same := make([]*Expr, len(e.args)), true
		for i, a := range e.args {
			args[i] = folded(a)
			same = same && args[i] == a
		}
		out := e
		switch {
		case same && slices.ContainsFunc(args, func(a *Expr) bool { return a.op != gpu.OpConst }):
		case e.op == gpu.OpAnd || e.op == gpu.OpOr:
			out = newLogic(e.op, args)
		default:
			if r, err := newOp(fold, *e, args...); err == nil {
				out = r
			}
		}
		done[e] = out
		return out
	}
	return folded(e)
}

// ColumnOf returns the column with a number. r bounds its values, nil if nobody knows.
func ColumnOf(number int, f gpu.Field, r *Range) *Expr {
	return &Expr{op: opColumn, typ: f.Type, column: number, name: f.Name, nullable: f.Nullable, rng: r.within(f.Type),
		annotation: f.Annotation}
}

// Null returns the null of a column.
func Null(f gpu.Field) *Expr {
	e := newConstant(gpu.Null(f.Type))
	e.typ, e.value.Type, e.annotation = f.Type, f.Type, f.Annotation
	return e
}

// Literal returns a constant.
func Literal(v gpu.Scalar) *Expr { return newConstant(v) }

// newConstant makes a constant. A decimal is narrow if it fits.
func newConstant(v gpu.Scalar) *Expr {
	e := &Expr{op: gpu.OpConst, typ: v.Type, value: v, nullable: !v.Valid, column: -1}
	if v.Type.Kind == gpu.Decimal {
		e.typ.Wide = v.Valid && !v.Int.IsInt64()
		e.value.Type = e.typ
	}
	switch {
	case !v.Valid:
		e.rng = typeRange(e.typ)
		if e.rng != nil {
			e.rng = rangeOf(0, 0)
		}
	case typeRange(v.Type) != nil:
		e.rng = &Range{v.Int, v.Int}
	}
	return e
}

// newOp makes an operation. It folds the operation if every argument is constant, or if one is null
// and makes the result null. The error is an error of folding.
func newOp(fold Fold, e Expr, args ...*Expr) (*Expr, error) {
	e.args, e.column = args, -1
	constant := len(args) > 0
	hides := false
	for i, a := range args {
		e.fails = e.fails || a.fails
		hides = hides || a.hidden
		constant = constant && (a.op == gpu.OpConst || e.isBody(i) && closed(a, e.level))
		if v, ok := a.Constant(); ok && !v.Valid && !e.seesNulls() {
			return Null(gpu.Field{Type: e.typ}), nil
		}
	}
	if !constant || fold == nil {
		return &e, nil
	}
	p, _, err := Compile(gpu.NewSchema(), &e)
	if err != nil {
		return nil, err
	}
	v, err := fold(p)
	if err != nil {
		return nil, err
	}
	c := newConstant(v[0])
	c.hidden, c.annotation = hides, e.annotation
	if e.typ.Kind == gpu.Decimal && e.typ.Wide {
		c.typ.Wide, c.value.Type.Wide = true, true
	}
	return c, nil
}

// seesNulls reports whether the operation may return a value for a null argument.
func (e *Expr) seesNulls() bool { return e.op < gpu.Ops && e.op.Info().SeesNulls }

// Column returns column i of the scope's schema.
func Column(s *Scope, i int) *Expr { return ColumnOf(s.number(i), s.Schema.Fields[i], s.rangeOf(i)) }

// And returns the conjunction of predicates, TRUE if there are none.
func And(es ...*Expr) *Expr {
	if len(es) == 0 {
		return newConstant(gpu.BoolScalar(true))
	}
	var args []*Expr
	for _, e := range es {
		args = append(args, Conjuncts(e)...)
	}
	return newLogic(gpu.OpAnd, args)
}

// AllTrue returns a predicate that is true where all predicates are true, and false or null
// elsewhere. It evaluates a predicate only where those before it are true. And also evaluates it
// where they are null, since it decides between false and null.
func AllTrue(es ...*Expr) *Expr {
	var args []*Expr
	for _, e := range es {
		args = append(args, Conjuncts(e)...)
	}
	fails := false // an operand to the right
	for i, a := range slices.Backward(args) {
		if fails && a.nullable {
			args[i] = Coalesce(a, newConstant(gpu.BoolScalar(false)))
		}
		fails = fails || a.fails
	}
	return And(args...)
}

// newLogic makes AND or OR. It drops constants that do not affect the result.
func newLogic(op gpu.Op, args []*Expr) *Expr {
	neutral := op == gpu.OpAnd
	e := Expr{op: op, typ: gpu.Of(gpu.Bool), column: -1}
	for _, a := range args {
		if v, ok := a.Constant(); ok && v.Valid {
			if (v.Int.Lo != 0) != neutral {
				return newConstant(gpu.BoolScalar(!neutral))
			}
			continue
		}
		e.args = append(e.args, a)
		e.nullable = e.nullable || a.nullable
		e.fails = e.fails || a.fails
	}
	switch len(e.args) {
	case 0:
		return newConstant(gpu.BoolScalar(neutral))
	case 1:
		return e.args[0]
	}
	return &e
}

// Conjuncts splits a predicate at its top-level ANDs.
func Conjuncts(e *Expr) []*Expr {
	if e.op != gpu.OpAnd {
		return []*Expr{e}
	}
	var out []*Expr
	for _, a := range e.args {
		out = append(out, Conjuncts(a)...)
	}
	return out
}

// String formats the expression as SQL.
func (e *Expr) String() string { return e.text(1 << 16) }

// text formats the expression, in approximately limit bytes at most.
func (e *Expr) text(limit int) string {
	var b strings.Builder
	e.write(&b, limit)
	if b.Len() > limit {
		return syntax.Cut(b.String(), limit) + "…"
	}
	return b.String()
}

func (e *Expr) write(b *strings.Builder, limit int) {
	if b.Len() > limit {
		return
	}
	list := func(sep string, args []*Expr) {
		for i, a := range args {
			if i > 0 {
				b.WriteString(sep)
			}
			a.write(b, limit)
		}
	}
	if e.message != "" {
		text, _, _ := strings.Cut(e.message, "\n")
		b.WriteString("error(" + syntax.Quote(text) + ")")
		return
	}
	if text := e.failsWithText(); text != nil {
		b.WriteString("error(")
		text.write(b, limit)
		b.WriteByte(')')
		return
	}
	switch e.op {
	case opColumn:
		if e.table != "" {
			b.WriteString(syntax.QuoteName(e.table))
			b.WriteByte('.')
		}
		b.WriteString(syntax.QuoteName(e.name))
	case gpu.OpConst:
		e.writeConstant(b, e.value)
	case gpu.OpCast:
		if e.n == 1 {
			b.WriteString("TRY_")
		}
		b.WriteString("CAST(")
		e.args[0].write(b, limit)
		b.WriteString(" AS " + e.typ.String() + ")")
	case gpu.OpLike, gpu.OpILike:
		b.WriteByte('(')
		e.args[0].write(b, limit)
		b.WriteString(" " + e.op.Info().SQL + " ")
		if len(e.args) == 2 {
			e.args[1].write(b, limit)
		} else {
			e.writeConstant(b, e.value)
		}
		if e.n != 0 {
			b.WriteString(" ESCAPE ")
			e.writeConstant(b, gpu.StringScalar(string(rune(e.n))))
		}
		b.WriteByte(')')
	case gpu.OpIn:
		b.WriteByte('(')
		e.args[0].write(b, limit)
		b.WriteString(" IN (")
		for i, v := range e.set {
			if i > 0 {
				b.WriteString(", ")
			}
			if b.Len() > limit {
				return
			}
			e.writeConstant(b, v)
		}
		b.WriteString("))")
	case gpu.OpSelect:
		b.WriteString("CASE WHEN ")
		e.args[0].write(b, limit)
		b.WriteString(" THEN ")
		e.args[1].write(b, limit)
		b.WriteString(" ELSE ")
		e.args[2].write(b, limit)
		b.WriteString(" END")
	case gpu.OpExtract, gpu.OpDateTrunc:
		fmt.Fprintf(b, "%s('%s', ", e.op.Info().SQL, partName(gpu.DatePart(e.n)))
		e.args[0].write(b, limit)
		b.WriteByte(')')
	case gpu.OpCodePoint:
		b.WriteString([...]string{"unicode", "ascii"}[e.n+1] + "(")
		e.args[0].write(b, limit)
		b.WriteByte(')')
	case gpu.OpRegexp, gpu.OpRegexpExtract, gpu.OpRegexpReplace:
		e.writeRegexp(b, limit)
	case gpu.OpJSON:
		e.writeJSON(b, limit)
	case gpu.OpParseNested:
		if e.n == 1 {
			b.WriteString("TRY_")
		}
		b.WriteString("CAST(")
		e.args[0].write(b, limit)
		b.WriteString(" AS " + e.value.Type.String() + ")")
	case gpu.OpDigits:
		b.WriteString(e.op.Info().SQL + "(")
		e.args[0].write(b, limit)
		fmt.Fprintf(b, ", %d)", e.n)
	case gpu.OpParseTime:
		b.WriteString(e.op.Info().Name(e.n) + "(")
		e.args[0].write(b, limit)
		b.WriteString(", ")
		e.writeConstant(b, e.value)
		b.WriteByte(')')
	case gpu.OpElement:
		e.args[0].write(b, limit)
		if name, ok := e.fieldName(); ok {
			b.WriteString("." + syntax.QuoteName(name))
			return
		}
		b.WriteByte('[')
		e.args[1].write(b, limit)
		b.WriteByte(']')
	case opParam:
		b.WriteString(syntax.QuoteName(e.name))
	case opTry:
		b.WriteString("try(")
		e.args[0].write(b, limit)
		b.WriteByte(')')
	default:
		switch o := e.op.Info(); o.Form {
		case gpu.Infix:
			b.WriteByte('(')
			list(" "+o.SQL+" ", e.args)
		case gpu.Prefix:
			b.WriteString("(" + o.SQL)
			e.args[0].write(b, limit)
		case gpu.Postfix:
			b.WriteByte('(')
			e.args[0].write(b, limit)
			b.WriteString(o.SQL)
		default:
			b.WriteString(o.Name(e.n) + "(")
			list(", ", e.args)
			if e.op == gpu.OpRound && len(e.args) == 1 {
				fmt.Fprintf(b, ", %d", e.n)
			}
		}
		b.WriteByte(')')
	}
}

// writeScalar writes a constant as SQL that parses to the same value.
func writeScalar(b *strings.Builder, v gpu.Scalar) {
	switch {
	case !v.Valid:
		b.WriteString("NULL")
	case v.Type.Kind == gpu.String:
		b.WriteString(syntax.Quote(v.Str))
	case v.Type.Kind == gpu.Binary:
		b.WriteString(syntax.QuoteBlob(v.Str))
	case v.Type.Kind == gpu.Interval:
		b.WriteString("INTERVAL '" + v.String() + "'")
	case v.Type.Kind == gpu.Date, v.Type.Kind == gpu.Time, v.Type.Kind == gpu.Timestamp:
		fmt.Fprintf(b, "%v '%v'", v.Type, v)
	case v.Type.Kind == gpu.Bool:
		b.WriteString(strings.ToUpper(v.String()))
	default:
		b.WriteString(v.String())
	}
}
