package exprtest

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
)

// template is SQL that calls one row of the tables, with holes for its operands.
type template struct {
	row   string   // the name in the reference
	parts []string // the SQL before, between and after the holes
	holes []hole
}

// hole is an operand of a template.
type hole struct {
	name    string // of the argument in the reference, after that of the function
	example string // the SQL of the operand in the reference's example, "" for none
}

// operand fills a hole: with an expression of a class, or with a literal.
type operand struct {
	class   Class
	cast    string // appended to the expression, or ""
	literal bool   // draw a literal for the name of the hole
}

// shape is a template with operands of which the binder has said that they bind.
type shape struct {
	*template
	operands []operand
	class    Class  // of the result
	op       gpu.Op // the last operation of the program
	inexact  bool   // see gpu.Program.Inexact
	tame     bool   // no row fails if the values of the operands are small, and DuckDB has the same values
}

// shapes are the shapes by the class of their result, and there by row and by operation.
type shapes struct {
	rows map[Class][][]*shape
	ops  map[Class][][]*shape
	all  []*shape
}

// byHand are the rows for which the Generator has functions: those of which a row of a table needs only some operands,
// because a comparison with DuckDB has to know which, and literals.
var byHand = []string{"AND", "OR", "BETWEEN", "IN", "CASE", "coalesce", "ifnull", "if", "INTERVAL"}

// tables has the shapes of all operations and functions.
var tables = sync.OnceValues(func() (all, tame shapes) {
	var list []*shape
	p := newProbe()
	for _, t := range templates() {
		list = append(list, p.shapes(t)...)
	}
	return grouped(list), grouped(slices.DeleteFunc(slices.Clone(list), func(s *shape) bool { return !s.tame }))
})

func grouped(list []*shape) shapes {
	s := shapes{rows: map[Class][][]*shape{}, ops: map[Class][][]*shape{}, all: list}
	add := func(groups map[Class][][]*shape, c Class, x *shape, same func(y *shape) bool) {
		i := slices.IndexFunc(groups[c], func(g []*shape) bool { return same(g[0]) })
		if i < 0 {
			groups[c] = append(groups[c], nil)
			i = len(groups[c]) - 1
		}
		groups[c][i] = append(groups[c][i], x)
	}
	for _, x := range list {
		classes := []Class{x.class}
		if x.class == Integer {
			classes = append(classes, Number)
		}
		for _, c := range classes {
			add(s.rows, c, x, func(y *shape) bool { return x.row == y.row })
			add(s.ops, c, x, func(y *shape) bool { return x.op == y.op })
		}
	}
	return s
}

// templates returns those of the examples of the reference, and those of the table of operations.
func templates() (list []*template) {
	seen := map[string]bool{}
	add := func(t *template) {
		if text := strings.Join(t.parts, "?"); !seen[text] {
			seen[text] = true
			list = append(list, t)
		}
	}
	for _, e := range expr.Reference() {
		if drawnElsewhere(e) {
			continue
		}
		for _, x := range e.Examples {
			for _, name := range append([]string{e.Name}, e.Aliases...) {
				if t := ofExample(e, name, x.SQL); t != nil {
					add(t)
				}
			}
		}
	}
	for op := range gpu.Ops {
		o := op.Info()
		if o.Internal || o.Form == gpu.Special || slices.Contains(byHand, o.SQL) {
			continue
		}
		for n := range max(len(o.Variants), 1) {
			name := o.Name(n)
			for k := o.Least; k <= max(o.Least, o.Most) && name != ""; k++ {
				add(ofOperation(o.Form, name, k))
			}
		}
	}
	return list
}

// drawnElsewhere reports whether other generators draw a row: casts and "part" have types and parts of dates, and the
// random tests of nested values and of JSON have theirs. Columns of ENUM are compared in pipeline.
func drawnElsewhere(e expr.Entry) bool {
	switch e.Chapter {
	case "Types", "Parts of dates", "Lists, structs and maps", "JSON":
		return true
	}
	return strings.HasPrefix(e.Name, "enum_") || slices.Contains([]string{"@>", "<@", "&&", "->", "->>"}, e.Name) ||
		slices.Contains(byHand, e.Name)
}

func ofOperation(form gpu.Form, name string, operands int) *template {
	t := &template{row: strings.TrimSpace(name), holes: make([]hole, operands)}
	switch form {
	case gpu.Infix:
		t.parts = []string{"(", " " + name + " ", ")"}
	case gpu.Prefix:
		t.parts = []string{"(" + name, ")"}
	case gpu.Postfix:
		t.parts = []string{"(", name + ")"}
	default:
		t.parts = append([]string{name + "("}, append(slices.Repeat([]string{", "}, operands-1), ")")...)
	}
	return t
}

// ofExample returns the template of a call in an example with its arguments replaced, or nil if the example has none.
func ofExample(e expr.Entry, name, sql string) *template {
	n, err := syntax.Parse(sql)
	if err != nil {
		panic(err)
	}
	if e.Chapter != "Operators" {
		return ofCall(e, name, n)
	}
	t := &template{row: e.Name}
	holed, err := syntax.Replace(n, func(child syntax.Node) (syntax.Node, error) {
		if child == n {
			return nil, nil
		}
		h := hole{example: child.String()}
		if like, ok := n.(*syntax.Like); ok {
			h.name = map[syntax.Node]string{like.Pattern: "like.pattern", like.Escape: "like.escape"}[child]
		} else if strings.Contains(e.Syntax, " pattern") && len(t.holes) == 1 {
			h.name = "pattern"
		}
		t.holes = append(t.holes, h)
		return &syntax.Name{Parts: []string{fmt.Sprint("hole", len(t.holes)-1)}}, nil
	})
	if err != nil {
		panic(err)
	}
	t.parts = holeName.Split(holed.String(), -1)
	return t
}

var holeName = regexp.MustCompile(`"?hole[0-9]+"?`)

func ofCall(e expr.Entry, name string, n syntax.Node) (t *template) {
	_, args, _ := strings.Cut(strings.TrimSuffix(e.Syntax, ")"), "(")
	names := strings.Split(strings.NewReplacer("[", "", "]", "", ", …", "").Replace(args), ", ")
	_, err := syntax.Replace(n, func(n syntax.Node) (syntax.Node, error) {
		c, ok := n.(*syntax.Call)
		if !ok || t != nil || c.Name != e.Name && !slices.Contains(e.Aliases, c.Name) {
			return nil, nil
		}
		t = &template{row: e.Name, parts: []string{name + "("}}
		for i, a := range c.Args {
			k := min(i, len(names)-1)
			if strings.HasPrefix(args, "[") { // the first ones are optional
				k = max(0, len(names)-len(c.Args)+i)
			}
			t.holes = append(t.holes, hole{e.Name + "." + names[k], a.String()})
			t.parts = append(t.parts, ", ")
		}
		if len(c.Args) == 0 {
			t.parts[0] += ")"
		} else {
			t.parts[len(c.Args)] = ")"
		}
		return n, nil
	})
	if err != nil {
		panic(err)
	}
	return t
}

// probe asks the binder which operands a template takes.
type probe struct{ scope, small *expr.Scope }

// probed has an expression of each class. An INTEGER is for arguments that are no BIGINT.
var probed = []struct {
	operand
	sql string
}{
	{operand{class: Number}, "f"}, {operand{class: Integer}, "i"}, {operand{class: Text}, "s"},
	{operand{class: Bool}, "b"}, {operand{class: Blob}, "x"}, {operand{class: Date}, "d"},
	{operand{class: Time}, "t"}, {operand{class: Timestamp}, "ts"}, {operand{class: Interval}, "to_days(k)"},
	{operand{class: Integer, cast: "::INTEGER"}, "k"},
}

func newProbe() *probe {
	s := &gpu.Schema{}
	var ranges []*expr.Range
	for _, c := range []struct {
		name, typ string
		lo, hi    int64
	}{{"f", "DOUBLE", 0, 0}, {"i", "BIGINT", -10, 10}, {"s", "VARCHAR", 0, 0}, {"b", "BOOLEAN", 0, 1},
		{"x", "BLOB", 0, 0},
		{"d", "DATE", 9000, 9050}, {"t", "TIME", 0, 86399e6}, {"ts", "TIMESTAMP", 9000 * 86400e6, 9050 * 86400e6},
		{"k", "INTEGER", -10, 10}} {
		typ, err := syntax.ParseType(c.typ)
		if err != nil {
			panic(err)
		}
		s.Fields = append(s.Fields, gpu.Field{Name: c.name, Type: typ, Nullable: true})
		var r *expr.Range
		if !typ.IsFloat() && !typ.IsVar() {
			r = &expr.Range{Lo: gpu.Int128From(c.lo), Hi: gpu.Int128From(c.hi)}
		}
		ranges = append(ranges, r)
	}
	return &probe{&expr.Scope{Schema: s}, &expr.Scope{Schema: s, Range: func(i int) *expr.Range { return ranges[i] }}}
}

func (p *probe) bind(scope *expr.Scope, sql string) *expr.Expr {
	n, err := syntax.Parse(sql)
	if err != nil {
		return nil
	}
	e, err := expr.Bind(n, scope)
	if err != nil {
		return nil
	}
	return e
}

// literals returns the literals to draw for a hole, nil for those without any but that of the example.
func (h *hole) literals() *pool {
	_, argument, _ := strings.Cut(h.name, ".")
	return cmp.Or(pools[h.name], pools[argument])
}

// shapes returns the shapes of a template with their operands.
func (p *probe) shapes(t *template) []*shape {
	options := make([][]operand, len(t.holes))
	for i, h := range t.holes {
		if l := h.literals(); l == nil || !l.only {
			for _, c := range probed {
				options[i] = append(options[i], c.operand)
			}
		}
		if h.example != "" {
			options[i] = append(options[i], operand{literal: true})
		}
	}
	var list []*shape
	try := func(operands []operand) bool {
		s := p.shape(t, operands)
		if s != nil {
			list = append(list, s)
		}
		return s != nil
	}
	if len(t.holes) <= 2 {
		for operands := range product(options) {
			try(operands)
		}
	} else {
		p.nearExample(t, options, try)
	}
	for i, h := range t.holes {
		takes := func(fits func(o operand) bool) bool {
			return slices.ContainsFunc(list, func(s *shape) bool { return fits(s.operands[i]) })
		}
		classes := takes(func(o operand) bool { return !o.literal })
		bigint := takes(func(o operand) bool { return !o.literal && o.class == Integer && o.cast == "" })
		list = slices.DeleteFunc(list, func(s *shape) bool {
			o := s.operands[i]
			return o.literal && classes && h.literals() == nil || o.cast != "" && bigint
		})
	}
	return list
}

// product yields all combinations.
func product(options [][]operand) iter.Seq[[]operand] {
	return func(yield func([]operand) bool) {
		var each func(front []operand) bool
		each = func(front []operand) bool {
			if len(front) == len(options) {
				return yield(slices.Clone(front))
			}
			for _, o := range options[len(front)] {
				if !each(append(front, o)) {
					return false
				}
			}
			return true
		}
		each(nil)
	}
}

// nearExample tries operands of the classes of the example, and those of which one is of another class.
func (p *probe) nearExample(t *template, options [][]operand, try func([]operand) bool) {
	example := slices.Repeat([]operand{{literal: true}}, len(t.holes))
	natural := slices.Clone(example)
	for i, h := range t.holes {
		e := p.bind(p.scope, h.example)
		if e == nil {
			continue
		}
		for _, o := range options[i] {
			c := slices.Clone(example)
			c[i] = o
			if !o.literal && o.class == classOf(e.Type()) && natural[i].literal && p.shape(t, c) != nil {
				natural[i] = o
			}
		}
	}
	try(natural)
	for i := range options {
		for _, o := range options[i] {
			if c := slices.Clone(natural); o != c[i] {
				c[i] = o
				try(c)
			}
		}
	}
}

// classOf returns the class of a type, with integers apart.
func classOf(t gpu.Type) Class {
	if t.IsInteger() {
		return Integer
	}
	return ClassOf(t)
}

// shape returns a template with operands, nil if the binder does not take them.
func (p *probe) shape(t *template, operands []operand) *shape {
	var sql strings.Builder
	for i, part := range t.parts {
		sql.WriteString(part)
		switch {
		case i == len(operands):
		case operands[i].literal:
			sql.WriteString(t.holes[i].example)
		default:
			k := slices.IndexFunc(probed, func(c struct {
				operand
				sql string
			}) bool {
				return c.operand == operands[i]
			})
			sql.WriteString(probed[k].sql)
		}
	}
	s := &shape{template: t, operands: operands, class: Interval}
	text := sql.String()
	e := p.bind(p.scope, text)
	if e != nil {
		s.class = classOf(e.Type())
	} else { // no column holds an interval, so that it has to be part of something
		text = "d + " + text
		if e = p.bind(p.scope, text); e == nil {
			return nil
		}
	}
	program, _, err := expr.Compile(p.scope.Schema, e)
	if err != nil {
		panic(err)
	}
	if len(program.Code) > 0 {
		s.op = program.Code[len(program.Code)-1].Op
	}
	s.inexact = !program.Portable()
	small := p.bind(p.small, text)
	s.tame = small != nil && !small.MayFail() && s.op != gpu.OpReverse // DuckDB keeps grapheme clusters
	return s
}
