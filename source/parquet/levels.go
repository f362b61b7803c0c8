package parquet

import (
	"math/bits"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// nestedNode is a node of the schema of a nested column: a leaf, a group of fields, or a list. A map is a list of
// groups of two fields.
//
// A file stores only the leaves. Each entry of a leaf has a definition level, which says up to which node on the way to
// the leaf there is a value, and a repetition level, which says which list on the way the entry continues; 0 begins a
// row.
type nestedNode struct {
	name     string
	t        gpu.Type
	nullable bool
	null     uint8 // an entry of a lower definition level is a null here, or further up
	// Of a list: an entry of at least the level present has an element, one of the level rep is a further one.
	list         bool
	present, rep uint8
	children     []*nestedNode // fields of a group; the element of a list
	first, last  int           // its leaves, as positions in leaf.parts
}

// nestedSchema makes the node of a top-level column.
type nestedSchema struct {
	elements []format.SchemaElement
	next     int
	leaf     int // number of the next leaf in the file
	parts    []leaf
	// reason says why the column cannot be read.
	reason string
}

// nestedColumn returns a nested column, whose schema begins at an element, or the reason why it cannot be read.
func nestedColumn(elements []format.SchemaElement, at, firstLeaf int, name string) (c leaf, reason string) {
	w := nestedSchema{elements: elements, next: at, leaf: firstLeaf}
	n := w.node(0, 0)
	if w.reason != "" {
		return leaf{}, w.reason
	}
	if d := n.t.Depth(); d > gpu.MaxNesting {
		return leaf{}, "it is nested too deeply"
	}
	n.name = name
	return nestedLeaf(n, w.parts, 0), ""
}

// nestedLeaf returns the column of a node. parts are leaves, of which the first one has the position base.
func nestedLeaf(n *nestedNode, parts []leaf, base int) leaf {
	parts = parts[n.first-base : n.last-base]
	return leaf{field: gpu.Field{Name: n.name, Type: n.t, Nullable: n.null > 0}, as: n.t, leaf: parts[0].leaf,
		optional: n.null > 0, node: n, parts: parts}
}

// node returns the node of the next subtree. def and rep are the levels of its parent.
func (w *nestedSchema) node(def, rep uint8) *nestedNode {
	e := &w.elements[w.next]
	if e.RepetitionType.V != format.Repeated {
		return w.single(def, rep)
	}
	// A repeated field that is not in a list is a list of required elements.
	n := &nestedNode{name: e.Name, list: true, null: def, present: def + 1, rep: rep + 1, first: len(w.parts)}
	return w.listOf(n, w.single(def+1, rep+1))
}

func (w *nestedSchema) listOf(n, element *nestedNode) *nestedNode {
	n.children, n.last = []*nestedNode{element}, len(w.parts)
	n.t = gpu.ListOf(element.t)
	return n
}

// single is node for an element that is not repeated, or for one element of a repeated one.
func (w *nestedSchema) single(def, rep uint8) *nestedNode {
	e := &w.elements[w.next]
	w.next++
	n := &nestedNode{name: e.Name, nullable: e.RepetitionType.V == format.Optional, first: len(w.parts)}
	if n.nullable {
		def++
	}
	n.null = def
	switch {
	case e.NumChildren.V > 0:
		w.group(e, n, rep)
	case !e.Type.Valid:
		w.fail("its field " + e.Name + " has neither a type nor fields")
	default:
		w.addLeaf(e, n, rep)
	}
	return n
}

func (w *nestedSchema) fail(reason string) {
	if w.reason == "" {
		w.reason = reason
	}
}

func (w *nestedSchema) addLeaf(e *format.SchemaElement, n *nestedNode, rep uint8) {
	t, reason := columnType(e)
	if reason != "" {
		w.fail("of its field " + e.Name + ": " + reason)
		return
	}
	n.t = t
	c := leaf{field: gpu.Field{Name: e.Name, Type: t, Nullable: n.null > 0, Annotation: annotation(e)}, as: t,
		leaf: w.leaf, physical: e.Type.V, length: int(e.TypeLength.V), optional: n.null > 0, maxDef: n.null,
		maxRep: rep, ordered: isOrdered(e)}
	if t.Kind == gpu.Float64 && c.physical != format.Double {
		c.precision, c.scale = decimalDigits(e)
	}
	if t.Kind == gpu.Interval {
		c.field.Type, c.as = gpu.Of(gpu.Binary), gpu.Of(gpu.Binary)
	}
	w.leaf++
	w.parts = append(w.parts, c)
	n.last = len(w.parts)
}

// group completes the node of an element with children: a list, a map or a struct.
func (w *nestedSchema) group(e *format.SchemaElement, n *nestedNode, rep uint8) {
	inner := &w.elements[w.next]
	repeated := e.NumChildren.V == 1 && inner.RepetitionType.V == format.Repeated
	switch {
	case repeated && isA(e, new(format.ListType), deprecated.List):
		n.list, n.present, n.rep = true, n.null+1, rep+1
		w.listOf(n, w.element(e.Name, n.present, n.rep))
	case repeated && inner.NumChildren.V == 2 &&
		(isA(e, new(format.MapType), deprecated.Map) || e.ConvertedType.Valid &&
			e.ConvertedType.V == deprecated.MapKeyValue):
		n.list, n.present, n.rep = true, n.null+1, rep+1
		w.listOf(n, w.single(n.present, n.rep))
		if c := n.children[0].children; len(c) == 2 {
			n.t = gpu.MapOf(c[0].t, c[1].t)
		}
	default:
		w.fields(e, n, rep)
	}
}

// element returns the element of an annotated list, whose repeated child is next. By the rules of the format for older
// writers, the child is the element unless it is a group of one field that is not repeated, with another name than
// these writers use.
func (w *nestedSchema) element(list string, def, rep uint8) *nestedNode {
	r := &w.elements[w.next]
	if r.NumChildren.V != 1 || r.Name == "array" || r.Name == list+"_tuple" ||
		w.elements[w.next+1].RepetitionType.V == format.Repeated {
		return w.single(def, rep)
	}
	w.next++
	return w.single(def, rep)
}

// fields completes the node of a struct.
func (w *nestedSchema) fields(e *format.SchemaElement, n *nestedNode, rep uint8) {
	names := namer{}
	var fields []gpu.Field
	for range e.NumChildren.V {
		c := w.node(n.null, rep)
		c.name = names.name(c.name)
		n.children = append(n.children, c)
		fields = append(fields, gpu.Field{Name: c.name, Type: c.t})
	}
	n.t, n.last = gpu.StructOf(fields...), len(w.parts)
}

// paths returns the columns inside of a nested column: the fields of its structs, of structs in them and in lists, but
// not in maps. A field inside of a list is a list of its values, with a null where a struct around it is null.
func (c leaf) paths() []leaf {
	return c.inside(c.node, []string{c.field.Name}, func(n *nestedNode) *nestedNode { return n })
}

// inside returns the columns inside of a node that has a path. around puts a node into the lists around it.
func (c leaf) inside(n *nestedNode, path []string, around func(*nestedNode) *nestedNode) (out []leaf) {
	with := func(name string) []string { return append(path[:len(path):len(path)], name) }
	if n.list {
		if n.t.Kind == gpu.Map {
			return nil
		}
		return c.inside(n.children[0], with(gpu.PathElements), func(of *nestedNode) *nestedNode {
			list := *n
			list.children, list.first, list.last, list.t = []*nestedNode{of}, of.first, of.last, gpu.ListOf(of.t)
			return around(&list)
		})
	}
	for _, field := range n.children {
		f := *field
		f.nullable = f.nullable || n.nullable
		k := nestedLeaf(around(&f), c.parts, c.node.first)
		if len(k.node.children) == 0 && f.t.Kind != gpu.Interval {
			k = k.parts[0]
		}
		k.path = with(f.name)
		k.field.Name = pathName(k.path)
		out = append(append(out, k), c.inside(&f, k.path, around)...)
	}
	return out
}

// key identifies a column among those of a file: its name, or its path.
func (c leaf) key() string {
	if c.path == nil {
		return c.field.Name
	}
	return "\x00" + strings.Join(c.path, "\x00")
}

// pathName names the column of a field inside of a nested column, for messages and reports.
func pathName(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), "."+gpu.PathElements, gpu.PathElements)
}

// levelBits returns the bits of a level in a file.
func levelBits(most uint8) uint { return uint(bits.Len8(most)) }
