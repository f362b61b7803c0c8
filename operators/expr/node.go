package expr

import (
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
)

// Node is a parsed expression, before names and types are resolved. String returns SQL
// that parses to the same tree.
type Node interface {
	Pos() int // byte offset in the source
	String() string
	write(b *strings.Builder)
	depth() int
	source() string
	hiding() hidden
}

// base is the common part of nodes. src and at locate the node for errors.
type base struct {
	src  string
	at   int
	tall int // height of the tree with this node as root
	// hides has the values in src that are not shown.
	hides hidden
}

func (n *base) Pos() int       { return n.at }
func (n *base) depth() int     { return n.tall }
func (n *base) source() string { return n.src }
func (n *base) hiding() hidden { return n.hides }

type (
	// nameNode is a column: one part, or a qualifier and a name.
	nameNode struct {
		base
		parts []string
	}
	// numberNode is a literal number without a sign.
	numberNode struct {
		base
		text   string
		hidden string // the part of src that it is the value of, if that is not shown
	}
	// stringNode is a literal string or blob.
	stringNode struct {
		base
		text   string
		blob   bool
		hidden string // as of a number
	}
	// wordNode is NULL, TRUE or FALSE.
	wordNode struct {
		base
		word string
	}
	// intervalNode is INTERVAL value [unit]. The unit is in upper case. It is empty when
	// the value is a string with units.
	intervalNode struct {
		base
		value Node
		unit  string
	}
	// unaryNode is -x, +x or NOT x.
	unaryNode struct {
		base
		op string
		x  Node
	}
	// binaryNode is an arithmetic operator, a comparison or ||.
	binaryNode struct {
		base
		op   string
		l, r Node
	}
	// logicNode is AND or OR of two or more operands.
	logicNode struct {
		base
		op   string
		args []Node
	}
	betweenNode struct {
		base
		x, lo, hi Node
		not       bool
	}
	inNode struct {
		base
		x    Node
		list []Node
		not  bool
	}
	// likeNode is [NOT] LIKE or ILIKE. escape may be nil.
	likeNode struct {
		base
		x, pattern, escape Node
		not, fold          bool
	}
	// isNode is IS [NOT] NULL, TRUE, FALSE, UNKNOWN, or DISTINCT FROM y.
	isNode struct {
		base
		x, y Node
		what string
		not  bool
	}
	// caseNode is CASE [operand] WHEN … THEN … [ELSE otherwise] END.
	caseNode struct {
		base
		operand   Node
		whens     [][2]Node
		otherwise Node
	}
	castNode struct {
		base
		x   Node
		typ gpu.Type
		try bool
	}
	// callNode is name(args) or name(*), ORDER BY or IGNORE NULLS behind the arguments, and
	// FILTER (WHERE filter) and OVER (over), which may be nil. The name is in lower case.
	callNode struct {
		base
		name        string
		args        []Node
		star        bool
		distinct    bool
		order       []orderNode
		ignoreNulls bool
		filter      Node
		over        *windowNode
	}
	// orderNode is one key of ORDER BY.
	orderNode struct {
		x                      Node
		descending, nullsFirst bool
	}
	// windowNode is what OVER has in parentheses. Without a frame, frame is nil.
	windowNode struct {
		partition []Node
		order     []orderNode
		frame     *frameNode
	}
	// frameNode is ROWS, RANGE or GROUPS BETWEEN from AND to.
	frameNode struct {
		unit     string
		from, to boundNode
	}
	// boundNode is one end of a frame: UNBOUNDED PRECEDING, PRECEDING, CURRENT ROW,
	// FOLLOWING or UNBOUNDED FOLLOWING, and the offset of the second and the fourth.
	boundNode struct {
		at     int
		kind   string
		offset Node
	}
)

func text(n Node) string {
	var b strings.Builder
	n.write(&b)
	return b.String()
}

func (n *nameNode) String() string     { return text(n) }
func (n *numberNode) String() string   { return text(n) }
func (n *stringNode) String() string   { return text(n) }
func (n *wordNode) String() string     { return text(n) }
func (n *intervalNode) String() string { return text(n) }
func (n *unaryNode) String() string    { return text(n) }
func (n *binaryNode) String() string   { return text(n) }
func (n *logicNode) String() string    { return text(n) }
func (n *betweenNode) String() string  { return text(n) }
func (n *inNode) String() string       { return text(n) }
func (n *likeNode) String() string     { return text(n) }
func (n *isNode) String() string       { return text(n) }
func (n *caseNode) String() string     { return text(n) }
func (n *castNode) String() string     { return text(n) }
func (n *callNode) String() string     { return text(n) }

func (n *nameNode) write(b *strings.Builder) {
	for i, p := range n.parts {
		if i > 0 {
			b.WriteByte('.')
		}
		writeIdent(b, p)
	}
}

func (n *numberNode) write(b *strings.Builder) {
	if n.hidden != "" {
		b.WriteString(n.hidden)
		return
	}
	b.WriteString(n.text)
}

func (n *stringNode) write(b *strings.Builder) {
	switch {
	case n.hidden != "":
		b.WriteString(n.hidden)
	case n.blob:
		writeBlob(b, n.text)
	default:
		writeString(b, n.text)
	}
}

func (n *wordNode) write(b *strings.Builder) { b.WriteString(n.word) }

func (n *intervalNode) write(b *strings.Builder) {
	b.WriteString("INTERVAL ")
	if _, ok := n.value.(*stringNode); ok {
		n.value.write(b)
	} else {
		b.WriteByte('(')
		n.value.write(b)
		b.WriteByte(')')
	}
	if n.unit != "" {
		b.WriteString(" " + n.unit)
	}
}

func (n *unaryNode) write(b *strings.Builder) {
	b.WriteString("(" + n.op + " ")
	n.x.write(b)
	b.WriteByte(')')
}

func (n *binaryNode) write(b *strings.Builder) {
	b.WriteByte('(')
	n.l.write(b)
	b.WriteString(" " + n.op + " ")
	n.r.write(b)
	b.WriteByte(')')
}

func (n *logicNode) write(b *strings.Builder) {
	b.WriteByte('(')
	writeList(b, n.args, " "+n.op+" ")
	b.WriteByte(')')
}

func (n *betweenNode) write(b *strings.Builder) {
	b.WriteByte('(')
	n.x.write(b)
	writeNot(b, n.not)
	b.WriteString(" BETWEEN ")
	n.lo.write(b)
	b.WriteString(" AND ")
	n.hi.write(b)
	b.WriteByte(')')
}

func (n *inNode) write(b *strings.Builder) {
	b.WriteByte('(')
	n.x.write(b)
	writeNot(b, n.not)
	b.WriteString(" IN (")
	writeList(b, n.list, ", ")
	b.WriteString("))")
}

func (n *likeNode) write(b *strings.Builder) {
	b.WriteByte('(')
	n.x.write(b)
	writeNot(b, n.not)
	if n.fold {
		b.WriteString(" ILIKE ")
	} else {
		b.WriteString(" LIKE ")
	}
	n.pattern.write(b)
	if n.escape != nil {
		b.WriteString(" ESCAPE ")
		n.escape.write(b)
	}
	b.WriteByte(')')
}

func (n *isNode) write(b *strings.Builder) {
	b.WriteByte('(')
	n.x.write(b)
	b.WriteString(" IS")
	writeNot(b, n.not)
	b.WriteString(" " + n.what)
	if n.y != nil {
		b.WriteString(" FROM ")
		n.y.write(b)
	}
	b.WriteByte(')')
}

func (n *caseNode) write(b *strings.Builder) {
	b.WriteString("CASE")
	if n.operand != nil {
		b.WriteByte(' ')
		n.operand.write(b)
	}
	for _, w := range n.whens {
		b.WriteString(" WHEN ")
		w[0].write(b)
		b.WriteString(" THEN ")
		w[1].write(b)
	}
	if n.otherwise != nil {
		b.WriteString(" ELSE ")
		n.otherwise.write(b)
	}
	b.WriteString(" END")
}

func (n *castNode) write(b *strings.Builder) {
	if n.try {
		b.WriteString("TRY_")
	}
	b.WriteString("CAST(")
	n.x.write(b)
	b.WriteString(" AS " + n.typ.String() + ")")
}

func (n *callNode) write(b *strings.Builder) {
	writeIdent(b, n.name)
	b.WriteByte('(')
	if n.star {
		b.WriteByte('*')
	}
	if n.distinct {
		b.WriteString("DISTINCT ")
	}
	writeList(b, n.args, ", ")
	if len(n.order) > 0 {
		b.WriteByte(' ')
		writeOrder(b, n.order)
	}
	if n.ignoreNulls {
		b.WriteString(" IGNORE NULLS")
	}
	b.WriteByte(')')
	if n.filter != nil {
		b.WriteString(" FILTER (WHERE ")
		n.filter.write(b)
		b.WriteByte(')')
	}
	if n.over != nil {
		b.WriteString(" OVER (" + n.over.String() + ")")
	}
}

// children returns the nodes below a call.
func (n *callNode) children() []Node {
	all := append(slices.Clone(n.args), n.filter)
	order := n.order
	if w := n.over; w != nil {
		all = append(all, w.partition...)
		order = slices.Concat(order, w.order)
		if w.frame != nil {
			all = append(all, w.frame.from.offset, w.frame.to.offset)
		}
	}
	for _, k := range order {
		all = append(all, k.x)
	}
	return all
}

// String returns the contents of the parentheses of OVER.
func (w *windowNode) String() string {
	var parts []string
	part := func(write func(b *strings.Builder)) {
		var b strings.Builder
		write(&b)
		parts = append(parts, b.String())
	}
	if len(w.partition) > 0 {
		part(func(b *strings.Builder) { b.WriteString("PARTITION BY "); writeList(b, w.partition, ", ") })
	}
	if len(w.order) > 0 {
		part(func(b *strings.Builder) { writeOrder(b, w.order) })
	}
	if f := w.frame; f != nil {
		part(func(b *strings.Builder) {
			b.WriteString(f.unit + " BETWEEN ")
			f.from.write(b)
			b.WriteString(" AND ")
			f.to.write(b)
		})
	}
	return strings.Join(parts, " ")
}

func (n boundNode) write(b *strings.Builder) {
	if n.offset != nil {
		n.offset.write(b)
		b.WriteByte(' ')
	}
	b.WriteString(n.kind)
}

func writeOrder(b *strings.Builder, order []orderNode) {
	b.WriteString("ORDER BY ")
	for i, k := range order {
		if i > 0 {
			b.WriteString(", ")
		}
		k.x.write(b)
		if k.descending {
			b.WriteString(" DESC")
		}
		if k.nullsFirst {
			b.WriteString(" NULLS FIRST")
		}
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
	plain := name != "" && !reserved[strings.ToUpper(name)]
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

func writeString(b *strings.Builder, s string) {
	b.WriteString("'" + strings.ReplaceAll(s, "'", "''") + "'")
}

func writeBlob(b *strings.Builder, s string) {
	const hex = "0123456789ABCDEF"
	b.WriteString("x'")
	for i := 0; i < len(s); i++ {
		b.WriteByte(hex[s[i]>>4])
		b.WriteByte(hex[s[i]&15])
	}
	b.WriteByte('\'')
}
