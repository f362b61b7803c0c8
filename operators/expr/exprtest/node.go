// Package exprtest makes random expressions for tests over a table of extreme values, and
// has DuckDB evaluate them.
package exprtest

import (
	"strings"
)

// Class is a family of types, all of which an operator takes.
type Class uint8

// The classes. An Integer is a Number for operators that take only integers.
const (
	Bool Class = iota
	Number
	Integer
	Text
	Blob
	Date
	Time
	Timestamp
	Interval
	classes
)

// Node is a random expression: SQL with arguments. It is immutable.
type Node struct {
	Class Class
	parts []string // the SQL before, between and after the arguments
	args  []*Node
	// needs, when set, returns the arguments that a row needs. holds tells whether a
	// condition is true on the row. Without needs a row needs all arguments.
	needs func(n *Node, holds func(*Node) bool) []int
	// inexact says that the last digits of the operation depend on the math library.
	inexact bool
}

// Leaf is SQL without arguments.
func Leaf(c Class, sql string) *Node { return &Node{Class: c, parts: []string{sql}} }

// New makes an expression from SQL with a ? for every argument.
func New(c Class, sql string, args ...*Node) *Node {
	n := &Node{Class: c, parts: strings.Split(sql, "?"), args: args}
	if len(n.parts) != len(args)+1 {
		panic(sql)
	}
	return n
}

// SQL returns the text of the expression.
func (n *Node) SQL() string { return unwrapped(n.text()) }

// unwrapped removes parentheses around the whole text.
func unwrapped(s string) string {
	if !strings.HasPrefix(s, "(") {
		return s
	}
	depth, quoted := 0, false
	for i, c := range s {
		switch {
		case c == '\'':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && i < len(s)-1 {
				return s
			}
		}
	}
	return s[1 : len(s)-1]
}

func (n *Node) text() string {
	var b strings.Builder
	for i, p := range n.parts {
		b.WriteString(p)
		if i < len(n.args) {
			b.WriteString(n.args[i].text())
		}
	}
	return b.String()
}

// Needed returns the arguments that a row needs if evaluation is as lazy as
// docs/semantics.md promises. holds tells whether a condition is true on the row.
func (n *Node) Needed(holds func(*Node) bool) (args []*Node) {
	for i, needed := range n.needed(holds) {
		if needed {
			args = append(args, n.args[i])
		}
	}
	return args
}

func (n *Node) needed(holds func(*Node) bool) []bool {
	out := make([]bool, len(n.args))
	if n.needs != nil {
		for _, i := range n.needs(n, holds) {
			out[i] = true
		}
		return out
	}
	for i := range out {
		out[i] = true
	}
	return out
}

// Pruned returns the expression with nulls in place of the parts that a row does not
// need. typeOf names the type of a part.
func (n *Node) Pruned(holds func(*Node) bool, typeOf func(*Node) string) *Node {
	m := *n
	m.args = make([]*Node, len(n.args))
	for i, needed := range n.needed(holds) {
		switch a := n.args[i]; {
		case needed:
			m.args[i] = a.Pruned(holds, typeOf)
		case len(a.args) == 0 && strings.HasPrefix(a.parts[0], "'") && strings.HasSuffix(a.parts[0], "'"):
			m.args[i] = Leaf(a.Class, "NULL") // like NULL, a text literal takes its type from its neighbours
		default:
			m.args[i] = Leaf(a.Class, "CAST(NULL AS "+typeOf(a)+")")
		}
	}
	return &m
}

// Exact reports whether the value has the same bits everywhere.
func (n *Node) Exact() bool {
	exact := true
	n.walk(func(n *Node) { exact = exact && !n.inexact })
	return exact
}

// Size returns the number of nodes.
func (n *Node) Size() int {
	size := 1
	for _, a := range n.args {
		size += a.Size()
	}
	return size
}

// Depth returns the height of the tree: 0 for a column or a constant.
func (n *Node) Depth() int {
	depth := 0
	for _, a := range n.args {
		depth = max(depth, a.Depth()+1)
	}
	return depth
}

// Shrink searches for a small expression for which differs still holds. It replaces the
// whole by its parts, operators by their operands, and operands by columns and constants.
func (n *Node) Shrink(columns map[Class][]string, differs func(*Node) bool) *Node {
	for tries := 0; tries < 400; {
		smaller := n.Smaller(columns, true)
		found := false
		for _, c := range smaller {
			if tries++; differs(c) {
				n, found = c, true
				break
			}
		}
		if !found {
			break
		}
	}
	return n
}

// Smaller returns expressions of fewer or plainer nodes: of any class, or of the same
// class with columns in place of operations.
func (n *Node) Smaller(columns map[Class][]string, anyClass bool) []*Node {
	var out []*Node
	if anyClass {
		n.walk(func(c *Node) {
			if c != n && len(c.args) > 0 {
				out = append(out, c)
			}
		})
	} else {
		n.walk(func(c *Node) {
			if c != n && c.Class == n.Class {
				out = append(out, c)
			}
		})
		if len(n.args) > 0 {
			for _, name := range columns[n.Class] {
				out = append(out, Leaf(n.Class, name))
			}
		}
	}
	for i, a := range n.args {
		for _, c := range a.Smaller(columns, false) {
			m := *n
			m.args = append([]*Node(nil), n.args...)
			m.args[i] = c
			out = append(out, &m)
		}
	}
	return out
}

func (n *Node) walk(f func(*Node)) {
	f(n)
	for _, a := range n.args {
		a.walk(f)
	}
}
