package syntax

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// Node is a parsed expression, before names and types are resolved. String returns SQL
// that parses to the same tree.
type Node interface {
	// Pos is a byte offset in the source.
	Pos() int
	String() string
	// Source is the whole text that the node was parsed from.
	Source() string
	// Hides returns the values in the source that messages must not show.
	Hides() Hidden
	write(b *strings.Builder)
	depth() int
}

// Base is the common part of nodes. It locates the node in its source, for errors. At makes a Base
// for a node that does not come from a text.
type Base struct {
	src   string
	at    int
	tall  int // height of the tree with this node as root
	hides Hidden
}

// Pos is a byte offset in the source.
func (n *Base) Pos() int { return n.at }

// Source is the whole text that the node was parsed from.
func (n *Base) Source() string { return n.src }

// Hides returns the values in the source that messages must not show.
func (n *Base) Hides() Hidden { return n.hides }

func (n *Base) depth() int { return n.tall }

type (
	// Name is a column: one part, or qualifiers and a name.
	Name struct {
		Base
		Parts []string
	}
	// NumberLiteral is a literal number without a sign.
	NumberLiteral struct {
		Base
		Text   string
		hidden string // the part of the source that a hidden value replaces, or ""
	}
	// StringLiteral is a literal string or blob. Text is decoded.
	StringLiteral struct {
		Base
		Text   string
		Blob   bool
		hidden string // as in NumberLiteral
	}
	// WordLiteral is NULL, TRUE or FALSE.
	WordLiteral struct {
		Base
		Word string
	}
	// Interval is INTERVAL value [unit]. The unit is a key of IntervalUnits. It is empty when
	// the value is a string with units.
	Interval struct {
		Base
		Value Node
		Unit  string
	}
	// Unary is -x, +x, ~x, @x or NOT x.
	Unary struct {
		Base
		Op string
		X  Node
	}
	// Binary is an arithmetic operator, a comparison or ||. Op is its name, independent of its
	// spelling in the source.
	Binary struct {
		Base
		Op   string
		L, R Node
	}
	// Logic is AND or OR of two or more operands.
	Logic struct {
		Base
		Op   string
		Args []Node
	}
	// Between is X [NOT] BETWEEN Lo AND Hi.
	Between struct {
		Base
		X, Lo, Hi Node
		Not       bool
	}
	// In is X [NOT] IN (List).
	In struct {
		Base
		X    Node
		List []Node
		Not  bool
	}
	// Like is [NOT] LIKE, or ILIKE if Fold is set. Escape may be nil.
	Like struct {
		Base
		X, Pattern, Escape Node
		Not, Fold          bool
	}
	// Is is IS [NOT] What. What is NULL, TRUE, FALSE, UNKNOWN, or DISTINCT, which has Y.
	Is struct {
		Base
		X, Y Node
		What string
		Not  bool
	}
	// Case is CASE [Operand] WHEN … THEN … [ELSE Otherwise] END.
	Case struct {
		Base
		Operand   Node
		Whens     [][2]Node
		Otherwise Node
	}
	// Cast is CAST(X AS Type), or TRY_CAST if Try is set. JSON says that the type is JSON, which is a VARCHAR. A LIST
	// has Size elements if that is not 0.
	Cast struct {
		Base
		X         Node
		Type      gpu.Type
		Try, JSON bool
		Size      int
	}
	// Call is a call of a function, Name(Args) or Name(*). ORDER BY or IGNORE NULLS follow the
	// arguments; FILTER (WHERE Filter) and OVER (Over) follow the parentheses. Filter and Over may
	// be nil. The name is in lower case.
	Call struct {
		Base
		Name        string
		Args        []Node
		Names       []string // of named arguments, as in struct_pack(a := 1), one for each argument; or nil
		Star        bool
		Distinct    bool
		Order       []OrderKey
		IgnoreNulls bool
		Filter      Node
		Over        *Window
	}
	// OrderKey is one key of ORDER BY.
	OrderKey struct {
		X                      Node
		Descending, NullsFirst bool
	}
	// Window is the contents of the parentheses of OVER. Name is the window of the clause WINDOW on which it is based,
	// or "". Frame may be nil.
	Window struct {
		Name      string
		Partition []Node
		Order     []OrderKey
		Frame     *Frame
	}
	// Frame is ROWS, RANGE or GROUPS BETWEEN From AND To. Exclude is CURRENT ROW, GROUP, TIES or "".
	Frame struct {
		Unit     string
		From, To FrameBound
		Exclude  string
	}
	// FrameBound is one end of a frame. Kind is one of UnboundedPreceding, Preceding,
	// CurrentRow, Following and UnboundedFollowing. Preceding and Following have an Offset.
	FrameBound struct {
		at     int
		Kind   string
		Offset Node
	}
)

// Resolved is a part of a tree that a binder has bound already. Value is the bound form. Binders
// make such nodes; the parser does not.
type Resolved struct {
	Base
	Value fmt.Stringer
}

func (n *Resolved) String() string           { return text(n) }
func (n *Resolved) write(b *strings.Builder) { b.WriteString(n.Value.String()) }

// At returns the common part of a node that replaces n and has the given children.
func At(n Node, children ...Node) Base {
	b := Base{src: n.Source(), at: n.Pos(), hides: n.Hides(), tall: 1}
	for _, c := range children {
		if c != nil {
			b.tall = max(b.tall, c.depth()+1)
		}
	}
	return b
}

func text(n Node) string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *Name) String() string          { return text(n) }
func (n *NumberLiteral) String() string { return text(n) }
func (n *StringLiteral) String() string { return text(n) }
func (n *WordLiteral) String() string   { return text(n) }
func (n *Interval) String() string      { return text(n) }
func (n *Unary) String() string         { return text(n) }
func (n *Binary) String() string        { return text(n) }
func (n *Logic) String() string         { return text(n) }
func (n *Between) String() string       { return text(n) }
func (n *In) String() string            { return text(n) }
func (n *Like) String() string          { return text(n) }
func (n *Is) String() string            { return text(n) }
func (n *Case) String() string          { return text(n) }
func (n *Cast) String() string          { return text(n) }
func (n *Call) String() string          { return text(n) }

func (n *Name) write(b *strings.Builder) {
	for i, p := range n.Parts {
		if i > 0 {
			b.WriteByte('.')
		}
		writeIdent(b, p)
	}
}

func (n *NumberLiteral) write(b *strings.Builder) {
	if n.hidden != "" {
		b.WriteString(n.hidden)
		return
	}
	b.WriteString(n.Text)
}

func (n *StringLiteral) write(b *strings.Builder) {
	switch {
	case n.hidden != "":
		b.WriteString(n.hidden)
	case n.Blob:
		b.WriteString(QuoteBlob(n.Text))
	default:
		b.WriteString(Quote(n.Text))
	}
}

func (n *WordLiteral) write(b *strings.Builder) { b.WriteString(n.Word) }

func (n *Interval) write(b *strings.Builder) {
	b.WriteString("INTERVAL ")
	if _, ok := n.Value.(*StringLiteral); ok {
		n.Value.write(b)
	} else {
		b.WriteByte('(')
		n.Value.write(b)
		b.WriteByte(')')
	}
	if n.Unit != "" {
		b.WriteString(" " + n.Unit)
	}
}

func (n *Unary) write(b *strings.Builder) {
	b.WriteString("(" + n.Op + " ")
	n.X.write(b)
	b.WriteByte(')')
}

func (n *Binary) write(b *strings.Builder) {
	b.WriteByte('(')
	n.L.write(b)
	b.WriteString(" " + n.Op + " ")
	n.R.write(b)
	b.WriteByte(')')
}

func (n *Logic) write(b *strings.Builder) {
	b.WriteByte('(')
	writeList(b, n.Args, " "+n.Op+" ")
	b.WriteByte(')')
}

func (n *Between) write(b *strings.Builder) {
	b.WriteByte('(')
	n.X.write(b)
	writeNot(b, n.Not)
	b.WriteString(" BETWEEN ")
	n.Lo.write(b)
	b.WriteString(" AND ")
	n.Hi.write(b)
	b.WriteByte(')')
}

func (n *In) write(b *strings.Builder) {
	b.WriteByte('(')
	n.X.write(b)
	writeNot(b, n.Not)
	b.WriteString(" IN (")
	writeList(b, n.List, ", ")
	if q, ok := n.List[0].(*Subquery); ok && q.Kind == "" && len(n.List) == 1 {
		b.WriteByte(',') // the rows of a query would be IN ((SELECT …))
	}
	b.WriteString("))")
}

func (n *Like) write(b *strings.Builder) {
	b.WriteByte('(')
	n.X.write(b)
	writeNot(b, n.Not)
	if n.Fold {
		b.WriteString(" ILIKE ")
	} else {
		b.WriteString(" LIKE ")
	}
	n.Pattern.write(b)
	if n.Escape != nil {
		b.WriteString(" ESCAPE ")
		n.Escape.write(b)
	}
	b.WriteByte(')')
}

func (n *Is) write(b *strings.Builder) {
	b.WriteByte('(')
	n.X.write(b)
	b.WriteString(" IS")
	writeNot(b, n.Not)
	b.WriteString(" " + n.What)
	if n.Y != nil {
		b.WriteString(" FROM ")
		n.Y.write(b)
	}
	b.WriteByte(')')
}

func (n *Case) write(b *strings.Builder) {
	b.WriteString("CASE")
	if n.Operand != nil {
		b.WriteByte(' ')
		n.Operand.write(b)
	}
	for _, w := range n.Whens {
		b.WriteString(" WHEN ")
		w[0].write(b)
		b.WriteString(" THEN ")
		w[1].write(b)
	}
	if n.Otherwise != nil {
		b.WriteString(" ELSE ")
		n.Otherwise.write(b)
	}
	b.WriteString(" END")
}

func (n *Cast) write(b *strings.Builder) {
	if n.Try {
		b.WriteString("TRY_")
	}
	b.WriteString("CAST(")
	n.X.write(b)
	if n.JSON {
		b.WriteString(" AS JSON)")
		return
	}
	name := n.Type.String()
	if n.Size > 0 {
		name = strings.TrimSuffix(name, "]") + strconv.Itoa(n.Size) + "]"
	}
	b.WriteString(" AS " + name + ")")
}

func (n *Call) write(b *strings.Builder) {
	if n.Name == ListComprehension {
		writeComprehension(b, n)
		return
	}
	switch word := strings.ToUpper(n.Name); {
	case functionKeywords[word] && !reserved[word]:
		b.WriteString(n.Name)
	case word == "ROW" || word == "COLUMNS": // what these words begin in a statement is no call
		b.WriteString(`"` + n.Name + `"`)
	default:
		writeIdent(b, n.Name)
	}
	b.WriteByte('(')
	if n.Star {
		b.WriteByte('*')
	}
	if n.Distinct {
		b.WriteString("DISTINCT ")
	}
	for i, a := range n.Args {
		if i > 0 {
			b.WriteString(", ")
		}
		if n.Names != nil && n.Names[i] != "" {
			writeIdent(b, n.Names[i])
			b.WriteString(" := ")
		}
		a.write(b)
	}
	if len(n.Order) > 0 {
		b.WriteByte(' ')
		writeOrder(b, n.Order)
	}
	if n.IgnoreNulls {
		b.WriteString(" IGNORE NULLS")
	}
	b.WriteByte(')')
	if n.Filter != nil {
		b.WriteString(" FILTER (WHERE ")
		n.Filter.write(b)
		b.WriteByte(')')
	}
	if w := n.Over; w != nil {
		b.WriteString(" OVER ")
		if w.Name != "" && len(w.Partition)+len(w.Order) == 0 && w.Frame == nil {
			writeIdent(b, w.Name)
		} else {
			b.WriteString("(" + w.String() + ")")
		}
	}
}

// Children returns the nodes below a call. Some may be nil.
func (n *Call) Children() []Node {
	all := append(slices.Clone(n.Args), n.Filter)
	order := n.Order
	if w := n.Over; w != nil {
		all = append(all, w.Partition...)
		order = slices.Concat(order, w.Order)
		if w.Frame != nil {
			all = append(all, w.Frame.From.Offset, w.Frame.To.Offset)
		}
	}
	for _, k := range order {
		all = append(all, k.X)
	}
	return all
}

// String returns the contents of the parentheses of OVER.
func (w *Window) String() string {
	var parts []string
	part := func(write func(b *strings.Builder)) {
		var b strings.Builder
		write(&b)
		parts = append(parts, b.String())
	}
	if w.Name != "" {
		part(func(b *strings.Builder) { writeWindowName(b, w.Name) })
	}
	if len(w.Partition) > 0 {
		part(func(b *strings.Builder) { b.WriteString("PARTITION BY "); writeList(b, w.Partition, ", ") })
	}
	if len(w.Order) > 0 {
		part(func(b *strings.Builder) { writeOrder(b, w.Order) })
	}
	if f := w.Frame; f != nil {
		part(func(b *strings.Builder) {
			b.WriteString(f.Unit + " BETWEEN ")
			f.From.write(b)
			b.WriteString(" AND ")
			f.To.write(b)
			if f.Exclude != "" {
				b.WriteString(" EXCLUDE " + f.Exclude)
			}
		})
	}
	return strings.Join(parts, " ")
}

// writeWindowName writes the name of a window as the parser of a window reads it.
func writeWindowName(b *strings.Builder, name string) {
	switch strings.ToUpper(name) {
	case "PARTITION", "ROWS", "RANGE", "GROUPS":
		b.WriteString(`"` + name + `"`)
	default:
		writeIdent(b, name)
	}
}

func (n FrameBound) write(b *strings.Builder) {
	if n.Offset != nil {
		n.Offset.write(b)
		b.WriteByte(' ')
	}
	b.WriteString(n.Kind)
}

func writeOrder(b *strings.Builder, order []OrderKey) {
	b.WriteString("ORDER BY ")
	for i, k := range order {
		if i > 0 {
			b.WriteString(", ")
		}
		k.X.write(b)
		writeDirection(b, k)
	}
}

func writeDirection(b *strings.Builder, k OrderKey) {
	if k.Descending {
		b.WriteString(" DESC")
	}
	if k.NullsFirst {
		b.WriteString(" NULLS FIRST")
	}
}

func writeList(b *strings.Builder, list []Node, sep string) {
	for i, n := range list {
		if i > 0 {
			b.WriteString(sep)
		}
		n.write(b)
	}
}

func writeNot(b *strings.Builder, not bool) {
	if not {
		b.WriteString(" NOT")
	}
}

// writeIdent writes a name, in quotes unless it parses back as the same identifier.
func writeIdent(b *strings.Builder, name string) {
	word := strings.ToUpper(name)
	plain := name != "" && !reserved[word] && !keywords[word] && !functionKeywords[word]
	for i := 0; i < len(name) && plain; i++ {
		c := name[i]
		plain = c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && isDigit(c)
	}
	if plain {
		b.WriteString(name)
		return
	}
	b.WriteString(`"` + strings.ReplaceAll(name, `"`, `""`) + `"`)
}
