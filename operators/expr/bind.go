package expr

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// Scope gives names their meaning for Bind.
type Scope struct {
	Schema *gpu.Schema
	// IDs are the numbers of the columns in expressions; nil means their positions.
	IDs []int
	// Range bounds the values of a column. It comes from statistics, and may be wrong. nil is unknown, and so is
	// each range without the function. Ranges decide how decimals are stored.
	Range func(column int) *Range
	// Qualifiers are the tables of each column, which resolve a.b; nil without tables.
	Qualifiers []*Tables
	// Fold evaluates constant parts of an expression. If it is nil, the device evaluates them.
	Fold Fold
	// Now is the time of now() and current_date, the same in every expression of a job.
	Now time.Time
	// Origin is where the text was written, nil if that does not matter.
	Origin *Origin
	// Grouping says which columns are keys of a group-by, for grouping(); otherwise nil.
	Grouping *Grouping
	// Names finds columns by name, for scopes that bind many names. Copies of a scope share it. It serves one Schema:
	// a copy with another schema compares all names.
	Names *NameIndex
}

// Fold evaluates a program without inputs to one value for each output. It returns the
// values or the error of a device.
type Fold func(*gpu.Program) ([]gpu.Scalar, error)

// number returns the number of a column in expressions.
func (s *Scope) number(i int) int {
	if s.IDs == nil {
		return i
	}
	return s.IDs[i]
}

func (s *Scope) rangeOf(i int) *Range {
	if s.Range == nil {
		return nil
	}
	return s.Range(i)
}

// Bind resolves the names of a tree, checks its types and folds its constant parts. The
// error is a *syntax.Error.
func Bind(n syntax.Node, s *Scope) (*Expr, error) {
	b := &binder{scope: s, src: n.Source(), root: n}
	e, err := b.bind(n)
	if err != nil {
		return nil, n.Hides().Hide(err)
	}
	s.written(n, e)
	if e.literal == nullLiteral {
		// NULL alone is an INTEGER, as in DuckDB.
		return newConstant(gpu.Null(gpu.Of(gpu.Int32))), nil
	}
	return e, nil
}

type binder struct {
	scope *Scope
	src   string
	root  syntax.Node
	// lazy counts the enclosing branches that may never be evaluated. A constant that fails in such
	// a branch is an error only at run time.
	lazy int
	// params are the parameters of the lambdas around the expression, and level is the number of these lambdas.
	params []lambdaScope
	level  int
}

func (b *binder) errorf(n syntax.Node, format string, args ...any) error {
	return syntax.NewError(b.src, n.Pos(), format, args...)
}

// missing is errorf for an unknown name.
func (b *binder) missing(n *syntax.Name, noTable bool, format string, args ...any) error {
	err := syntax.NewError(b.src, n.Pos(), format, args...)
	err.Missing = &syntax.Missing{Name: n.Parts, NoTable: noTable}
	return err
}

// op makes an operation. If folding it fails, the error is at n.
func (b *binder) op(n syntax.Node, e Expr, args ...*Expr) (*Expr, error) {
	r, err := newOp(b.scope.Fold, e, args...)
	if err == nil {
		return r, nil
	}
	if b.lazy > 0 {
		e.args, e.column, e.fails = args, -1, true
		return &e, nil
	}
	return nil, b.errorf(n, "%v", err)
}

// bind returns the typed form of n. Literals stay marked as literals, and a bare NULL has no type yet.
func (b *binder) bind(n syntax.Node) (*Expr, error) {
	e, err := b.bindAny(n)
	if err != nil {
		return nil, err
	}
	return b.whole(n, e)
}

// bindAny is bind where an interval may be apart.
func (b *binder) bindAny(n syntax.Node) (*Expr, error) {
	switch n := n.(type) {
	case *syntax.Resolved:
		e := n.Value.(*Expr)
		if e.annotation == gpu.AllNull && n != b.root {
			return nullOfAnyType(), nil
		}
		return e, nil
	case *syntax.Name:
		e, err := b.name(n)
		if err == nil && e.annotation == gpu.AllNull && n != b.root {
			return nullOfAnyType(), nil // it takes the type of its operands
		}
		return e, err
	case *syntax.NumberLiteral:
		return b.number(n, false)
	case *syntax.StringLiteral:
		v := gpu.StringScalar(n.Text)
		if n.Blob {
			v.Type = gpu.Of(gpu.Binary)
			return newConstant(v), nil
		}
		e := newConstant(v)
		e.literal = stringLiteral
		return e, nil
	case *syntax.WordLiteral:
		if n.Word == "NULL" {
			return nullOfAnyType(), nil
		}
		return newConstant(gpu.BoolScalar(n.Word == "TRUE")), nil
	case *syntax.Interval:
		return b.intervalLiteral(n)
	case *syntax.Unary:
		return b.unary(n)
	case *syntax.Binary:
		return b.binary(n)
	case *syntax.Logic:
		return b.logic(n)
	case *syntax.Between:
		return b.between(n)
	case *syntax.In:
		return b.in(n)
	case *syntax.Like:
		return b.like(n)
	case *syntax.Is:
		return b.is(n)
	case *syntax.Case:
		return b.caseWhen(n)
	case *syntax.Cast:
		return b.cast(n)
	case *syntax.Call:
		return b.call(n)
	case *syntax.Param:
		return b.param(n)
	case *syntax.Lambda:
		return nil, b.errorf(n,
			"a lambda is not possible here, only as an argument of functions such as list_transform")
	}
	return nil, b.errorf(n, "unsupported expression")
}

func nullOfAnyType() *Expr {
	e := newConstant(gpu.Null(gpu.Type{}))
	e.literal = nullLiteral
	return e
}

// bare are the functions that may be called without parentheses, if no column has the name.
var bare = map[string]bool{"current_date": true, "current_timestamp": true, "localtimestamp": true}

// name resolves a column, or a field of a column that is a struct.
func (b *binder) name(n *syntax.Name) (*Expr, error) {
	e, err := b.columnNamed(n)
	if err == nil {
		return e, nil
	}
	for k := len(n.Parts) - 1; k > 0; k-- {
		of, other := b.columnNamed(&syntax.Name{Base: n.Base, Parts: n.Parts[:k]})
		if other != nil || of.typ.Kind != gpu.Struct && !of.isJSON() {
			continue
		}
		for _, field := range n.Parts[k:] {
			if of, err = b.fieldOf(n, of, field); err != nil {
				return nil, err
			}
		}
		return of, nil
	}
	return nil, err
}

// columnNamed resolves a column.
func (b *binder) columnNamed(n *syntax.Name) (*Expr, error) {
	s := b.scope
	name := n.Parts[len(n.Parts)-1]
	if len(n.Parts) == 1 {
		switch found := s.Named(name); len(found) {
		case 0:
			if bare[strings.ToLower(name)] {
				return b.call(&syntax.Call{Base: n.Base, Name: strings.ToLower(name)})
			}
			return nil, b.missing(n, false, "there is no column %q%s", syntax.Cut(name, 100), b.suggestColumn(name))
		case 1:
			return Column(s, found[0]), nil
		default:
			return nil, b.errorf(n, "column %q is ambiguous%s", syntax.Cut(name, 100), s.choices(found))
		}
	}
	qualifier := strings.Join(n.Parts[:len(n.Parts)-1], ".")
	table := s.Table(qualifier)
	switch found := s.namedOf(table, name); {
	case len(table) == 0:
		return nil, b.missing(n, true, "there is no table %q%s", syntax.Cut(qualifier, 100),
			syntax.Suggest(qualifier, s.TableNames()))
	case len(found) == 0:
		var names []string
		for _, c := range table {
			names = append(names, s.Schema.Fields[c].Name)
		}
		return nil, b.missing(n, false, "table %q has no column %q%s", syntax.Cut(qualifier, 100),
			syntax.Cut(name, 100), syntax.Suggest(name, names))
	case len(found) > 1:
		return nil, b.errorf(n, "column %q of table %q is ambiguous%s", syntax.Cut(name, 100),
			syntax.Cut(qualifier, 100), s.choices(found))
	default:
		e := Column(s, found[0])
		if len(s.Named(name)) > 1 {
			e.table = qualifier
		}
		return e, nil
	}
}

// Table returns the columns of the table with a name.
func (s *Scope) Table(name string) []int {
	var columns []int
	for i, tables := range s.Qualifiers {
		if tables.Has(name) {
			columns = append(columns, i)
		}
	}
	return columns
}

// TableNames returns the names of the tables of all columns.
func (s *Scope) TableNames() (names []string) {
	for _, t := range s.Qualifiers {
		names = append(names, t.Names()...)
	}
	return names
}

// Named returns the columns of a name: those with exactly this name, or else those whose
// name differs only in case.
func (s *Scope) Named(name string) []int {
	if s.Names != nil {
		return s.Names.find(s, name)
	}
	return s.namedOf(s.All(), name)
}

// NameIndex finds columns of a schema by name. It is made after some look-ups, because most scopes have few.
type NameIndex struct {
	schema        *gpu.Schema
	lookUps       int
	exact, folded map[string][]int
}

// manyLookUps are the look-ups of names after which an index costs less than to compare all names each time.
const manyLookUps = 8

func (x *NameIndex) find(s *Scope, name string) []int {
	if x.schema == nil {
		x.schema = s.Schema
	}
	if x.lookUps++; x.lookUps < manyLookUps || x.schema != s.Schema {
		return s.namedOf(s.All(), name)
	}
	if x.exact == nil {
		x.exact, x.folded = make(map[string][]int, s.Schema.Len()), make(map[string][]int, s.Schema.Len())
		for i, f := range s.Schema.Fields {
			key := fold(f.Name)
			x.exact[f.Name], x.folded[key] = append(x.exact[f.Name], i), append(x.folded[key], i)
		}
	}
	found := x.exact[name]
	if len(found) == 0 {
		found = x.folded[fold(name)]
	}
	return slices.Clip(found)
}

// fold returns a text that is the same for all texts that strings.EqualFold calls equal.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// All returns the columns.
func (s *Scope) All() []int {
	all := make([]int, s.Schema.Len())
	for i := range all {
		all[i] = i
	}
	return all
}

// namedOf is Named among some of the columns.
func (s *Scope) namedOf(columns []int, name string) []int {
	var exact, folded []int
	for _, i := range columns {
		if f := s.Schema.Fields[i]; f.Name == name {
			exact = append(exact, i)
		} else if strings.EqualFold(f.Name, name) {
			folded = append(folded, i)
		}
	}
	if len(exact) > 0 {
		return exact
	}
	return folded
}

// Find returns the columns, among some columns of a scope, that a name of EXCLUDE, REPLACE or
// RENAME means.
func (s *Scope) Find(n syntax.StarName, among []int) []int {
	if n.Table == "" {
		return s.namedOf(among, n.Name)
	}
	var both []int
	for _, c := range s.Table(n.Table) {
		for _, a := range among {
			if a == c {
				both = append(both, c)
			}
		}
	}
	return s.namedOf(both, n.Name)
}

// Qualified returns a text that finds a column: its name after the name of a table, or its name
// alone if it has no table. It returns false if no text finds the column.
func (s *Scope) Qualified(column int) (string, bool) {
	name := s.Schema.Fields[column].Name
	if column < len(s.Qualifiers) {
		for _, t := range s.Qualifiers[column].Names() {
			if len(s.namedOf(s.Table(t), name)) == 1 {
				return (&syntax.Name{Parts: []string{t, name}}).String(), true
			}
		}
	}
	return (&syntax.Name{Parts: []string{name}}).String(), len(s.Named(name)) == 1
}

// choices lists the texts that distinguish columns of the same name.
func (s *Scope) choices(columns []int) string {
	var names []string
	for _, c := range columns {
		name, ok := s.Qualified(c)
		if !ok {
			return ": several columns have this name; rename them before, or name a side of their join with as"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return ": write " + strings.Join(names, " or ")
}

func (b *binder) suggestColumn(name string) string {
	// Internal columns of a group-by have names that begin with a dollar sign.
	names := slices.DeleteFunc(b.scope.Schema.Names(), func(name string) bool { return strings.HasPrefix(name, "$") })
	if s := syntax.Suggest(name, names); s != "" {
		return s
	}
	if len(names) == 0 {
		return ": no columns can be used here"
	}
	return "; the columns are " + syntax.Cut(phrase.Some(names, 20, ", "), 1000)
}

// number types a literal as DuckDB does: INTEGER, BIGINT or HUGEINT by size, DECIMAL with
// a point, DOUBLE with an exponent or too many digits.
func (b *binder) number(n *syntax.NumberLiteral, negative bool) (*Expr, error) {
	if !strings.ContainsAny(n.Text, ".eE") {
		const most = 39 // digits of HUGEINT
		if digits := strings.TrimLeft(n.Text, "0"); len(digits) <= most {
			v, _ := new(big.Int).SetString("0"+digits, 10)
			if negative {
				v.Neg(v)
			}
			if i, ok := gpu.Int128FromBig(v); ok {
				return newInteger(i), nil
			}
		}
		return nil,
			b.errorf(n, "the integer %s is outside the range of HUGEINT; with an exponent, as in 1e40, it is a DOUBLE",
				syntax.Cut(n.Text, 50))
	}
	e, err := b.fraction(n)
	if err != nil || !negative {
		return e, err
	}
	return b.negative(n, e)
}

// newInteger returns an integer literal of the type that DuckDB chooses: the smallest of INTEGER,
// BIGINT and HUGEINT.
func newInteger(v gpu.Int128) *Expr {
	t := hugeint
	switch {
	case v.IsInt64() && int64(int32(v.Int64())) == v.Int64():
		t = gpu.Of(gpu.Int32)
	case v.IsInt64():
		t = gpu.Of(gpu.Int64)
	}
	e := newConstant(gpu.Scalar{Type: t, Valid: true, Int: v})
	e.literal = integerLiteral
	return e
}

// fraction types a literal with a point or an exponent.
func (b *binder) fraction(n *syntax.NumberLiteral) (*Expr, error) {
	if whole, fraction, ok := strings.Cut(n.Text, "."); ok && !strings.ContainsAny(n.Text, "eE") &&
		len(whole)+len(fraction) <= gpu.MaxPrecision {
		v, _ := new(big.Int).SetString("0"+whole+fraction, 10)
		i, _ := gpu.Int128FromBig(v)
		t := gpu.DecimalOf(max(len(whole)+len(fraction), 1), len(fraction))
		return newConstant(gpu.Scalar{Type: t, Valid: true, Int: i}), nil
	}
	f, err := strconv.ParseFloat(n.Text, 64)
	if err != nil {
		return nil, b.errorf(n, "the number %s is outside the range of DOUBLE", syntax.Cut(n.Text, 40))
	}
	return newConstant(gpu.FloatScalar(gpu.Of(gpu.Float64), f)), nil
}

func (b *binder) unary(n *syntax.Unary) (*Expr, error) {
	if number, ok := n.X.(*syntax.NumberLiteral); ok && n.Op == "-" {
		return b.number(number, true)
	}
	x, err := b.bindAny(n.X)
	if err != nil {
		return nil, err
	}
	if x.isInterval() && (n.Op == "+" || n.Op == "-") {
		if n.Op == "+" {
			return x, nil
		}
		return b.oppositeInterval(n, x)
	}
	if n.Op == "~" {
		return b.complement(n, x)
	}
	if n.Op == "@" {
		return b.expand(n, "abs(_1)", x)
	}
	if n.Op == "NOT" {
		if x, err = b.boolean(n.X, x, "NOT"); err != nil {
			return nil, err
		}
		return b.not(n, x)
	}
	if x.literal == nullLiteral {
		x = newConstant(gpu.Null(gpu.Of(gpu.Int32)))
	}
	if !x.typ.IsNumeric() {
		return nil, b.errorf(n, "%s needs a number, found %v", n.Op, x.typ)
	}
	if n.Op == "+" {
		return typed(x), nil
	}
	return b.negative(n, x)
}

// negative returns -x. The negative of an integer literal is a literal too.
func (b *binder) negative(n syntax.Node, x *Expr) (*Expr, error) {
	if v, ok := x.Constant(); ok && x.literal == integerLiteral && v.Int != finiteRange(hugeint).Lo {
		return newInteger(v.Int.Neg()), nil
	}
	return b.opposite(n, gpu.OpNeg, x)
}

// opposite returns -x or the absolute value of x. A decimal in 64 bits is widened to 128 bits if it
// may be the least 64-bit value.
func (b *binder) opposite(n syntax.Node, op gpu.Op, x *Expr) (*Expr, error) {
	r := arithmeticRange(op, x.rng, nil)
	t := x.typ
	if t.Kind == gpu.Decimal && t.Precision > gpu.MaxNarrowPrecision && !r.fitsInt64() {
		t.Wide = true
	}
	return b.op(n, Expr{op: op, typ: t, nullable: x.nullable, rng: r.within(t),
		fails: !t.IsFloat() && !typeRange(t).contains(r)}, x)
}

// boolean returns an error unless an operand is a condition.
func (b *binder) boolean(n syntax.Node, e *Expr, where string) (*Expr, error) {
	if e.literal == nullLiteral {
		return newConstant(gpu.Null(gpu.Of(gpu.Bool))), nil
	}
	if e.literal == stringLiteral || e.typ.IsNumeric() || e.isJSON() { // not 0
		return b.convert(n, e, gpu.Of(gpu.Bool), false)
	}
	if e.typ.Kind != gpu.Bool {
		return nil, b.errorf(n, "%s needs a condition (BOOLEAN), found %v", where, e.typ)
	}
	return e, nil
}

func (b *binder) not(n syntax.Node, x *Expr) (*Expr, error) {
	if x.op < gpu.Ops && x.op.Info().Opposite != gpu.OpConst {
		e := *x
		e.op = x.op.Info().Opposite
		return &e, nil
	}
	if x.op == gpu.OpNot {
		return x.args[0], nil
	}
	return b.op(n, Expr{op: gpu.OpNot, typ: gpu.Of(gpu.Bool), nullable: x.nullable}, x)
}

func (b *binder) logic(n *syntax.Logic) (*Expr, error) {
	op := gpu.OpAnd
	if n.Op == "OR" {
		op = gpu.OpOr
	}
	var args []*Expr
	for i, a := range n.Args {
		if i == 1 {
			b.lazy++
			defer func() { b.lazy-- }()
		}
		x, err := b.bind(a)
		if err != nil {
			return nil, err
		}
		if x, err = b.boolean(a, x, n.Op); err != nil {
			return nil, err
		}
		if x.op == op {
			args = append(args, x.args...)
		} else {
			args = append(args, x)
		}
	}
	e := newLogic(op, args)
	if len(e.args) == 0 || e.op != op {
		return e, nil
	}
	return b.op(n, *e, e.args...)
}

func (b *binder) is(n *syntax.Is) (*Expr, error) {
	x, err := b.bind(n.X)
	if err != nil {
		return nil, err
	}
	var y *Expr
	switch n.What {
	case "NULL", "UNKNOWN":
		if n.What == "UNKNOWN" {
			if x, err = b.boolean(n.X, x, "IS UNKNOWN"); err != nil {
				return nil, err
			}
		}
		return b.isNull(n, x, n.Not)
	case "TRUE", "FALSE":
		if x, err = b.boolean(n.X, x, "IS "+n.What); err != nil {
			return nil, err
		}
		y = newConstant(gpu.BoolScalar(n.What == "TRUE"))
	default:
		if y, err = b.bind(n.Y); err != nil {
			return nil, err
		}
	}
	op := gpu.OpDistinct
	if n.Not != (n.What != "DISTINCT") {
		op = gpu.OpNotDistinct
	}
	// IS TRUE is IS NOT DISTINCT FROM TRUE. IS NOT DISTINCT FROM stays as it is.
	return b.compare(n, op, n.X, x, n.Y, y)
}

// isNull is x IS [NOT] NULL.
func (b *binder) isNull(n syntax.Node, x *Expr, not bool) (*Expr, error) {
	op := gpu.OpIsNull
	if not {
		op = gpu.OpIsNotNull
	}
	if x.literal == nullLiteral {
		return newConstant(gpu.BoolScalar(!not)), nil
	}
	if !x.nullable && !x.fails {
		return newConstant(gpu.BoolScalar(not)), nil
	}
	return b.op(n, Expr{op: op, typ: gpu.Of(gpu.Bool)}, x)
}

func (b *binder) caseWhen(n *syntax.Case) (*Expr, error) {
	var operand *Expr
	var err error
	if n.Operand != nil {
		if operand, err = b.bind(n.Operand); err != nil {
			return nil, err
		}
	}
	// ELSE comes first among the values, because DuckDB determines their common type in that order.
	conds := make([]*Expr, len(n.Whens))
	values := make([]*Expr, 1+len(n.Whens))
	nodes := make([]syntax.Node, len(values))
	b.lazy++
	defer func() { b.lazy-- }()
	for i, w := range n.Whens {
		c, err := b.bind(w[0])
		if err != nil {
			return nil, err
		}
		if operand != nil {
			c, err = b.compare(w[0], gpu.OpEq, n.Operand, operand, w[0], c)
		} else {
			c, err = b.boolean(w[0], c, "WHEN")
		}
		if err != nil {
			return nil, err
		}
		conds[i], nodes[1+i] = c, w[1]
		if values[1+i], err = b.bind(w[1]); err != nil {
			return nil, err
		}
	}
	values[0], nodes[0] = newConstant(gpu.Null(gpu.Type{})), n
	values[0].literal = nullLiteral
	if n.Otherwise != nil {
		nodes[0] = n.Otherwise
		if values[0], err = b.bind(n.Otherwise); err != nil {
			return nil, err
		}
	}
	if err := b.unify(nodes, values, "the branches of CASE"); err != nil {
		return nil, err
	}
	e := values[0]
	for i := len(n.Whens) - 1; i >= 0; i-- {
		if e, err = b.choose(n, conds[i], values[1+i], e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// choose returns CASE WHEN cond THEN x ELSE y END, where x and y have the same type.
func (b *binder) choose(n syntax.Node, cond, x, y *Expr) (*Expr, error) {
	if c, ok := cond.Constant(); ok {
		if c.Valid && c.Int.Lo != 0 {
			return x, nil
		}
		return y, nil
	}
	x, y, err := sameStorage(b.scope.Fold, x, y)
	if err != nil {
		return nil, b.errorf(n, "%v", err)
	}
	e := Expr{op: gpu.OpSelect, typ: x.typ, nullable: x.nullable || y.nullable, rng: x.rng.union(y.rng)}
	if x.isJSON() && y.isJSON() {
		e.annotation = gpu.JSON
	}
	return b.op(n, e, cond, x, y)
}

func (b *binder) cast(n *syntax.Cast) (*Expr, error) {
	x, err := b.bindAny(n.X)
	if err != nil {
		return nil, err
	}
	if x.op == opInterval && n.Type.Kind == gpu.String {
		return b.intervalAsText(n, x)
	}
	if x, err = b.whole(n.X, x); err != nil {
		return nil, err
	}
	if x.annotation == gpu.UUID && n.Type.Kind == gpu.String {
		return nil, b.errorf(n, "a UUID cannot be cast to %v; compare it with its text as it is, or cast it to BLOB",
			n.Type)
	}
	if n.JSON {
		return b.castToJSON(n, x)
	}
	if x.annotation != gpu.NoAnnotation && (!x.isJSON() || n.Type.Kind == gpu.String) {
		plain := *x
		plain.annotation = gpu.NoAnnotation
		x = &plain
	}
	out, err := b.convert(n, x, n.Type, n.Try)
	if err != nil || n.Size == 0 {
		return out, err
	}
	instead := fmt.Sprintf("error('the list has not the %d elements of its type')", n.Size)
	if n.Try {
		instead = "NULL"
	}
	return b.expand(n, fmt.Sprintf("CASE WHEN _1 IS NULL OR len(_1) = %d THEN _1 ELSE %s END", n.Size, instead), out)
}

// convert casts x to t, and chooses the storage of a decimal by its range.
func (b *binder) convert(n syntax.Node, x *Expr, t gpu.Type, try bool) (*Expr, error) {
	e, err := newCast(b.scope.Fold, x, stored(t, x), try)
	switch {
	case err == nil:
		return e, nil
	case b.lazy > 0 && castable(x.typ, t):
		return lazyCast(x, stored(t, x)), nil
	}
	return nil, b.errorf(n, "%v", err)
}
