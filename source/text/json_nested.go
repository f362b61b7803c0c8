package text

import (
	"fmt"
	"slices"

	"github.com/gstream/gstream/gpu"
)

// jsonNode collects what a sample has at one place of its objects: at a key, or as the elements of a list.
type jsonNode struct {
	kinds jsonKind
	left  possible // of the scalars
	count int      // values, without nulls
	// names are the keys of objects, in the order of the sample, and keys what they have.
	names   []string
	keys    map[string]*jsonNode
	element *jsonNode // of lists
}

func newJSONNode() *jsonNode { return &jsonNode{left: anything} }

// maxSniffed bounds the depth of an inferred type. Deeper values are texts.
const maxSniffed = 32

// rareKey is the part of the objects that have a key, on average, below which objects are maps, and manyKeys the number
// of keys from which they are if their values have one type. Both are DuckDB's.
const (
	rareKey  = 0.1
	manyKeys = 200
)

// key returns the node of a key of objects.
func (n *jsonNode) key(name string) *jsonNode {
	k, ok := n.keys[name]
	if !ok {
		if n.keys == nil {
			n.keys = map[string]*jsonNode{}
		}
		k = newJSONNode()
		n.names, n.keys[name] = append(n.names, name), k
	}
	return k
}

// observe adds a value, which has been scanned, to the node.
func (n *jsonNode) observe(text []byte, value field, kind jsonKind, depth int) {
	if n.kinds |= kind; kind == jsonNull {
		return
	}
	n.count++
	inside := text[value.from:value.to]
	switch {
	case kind != jsonObject && kind != jsonList:
		if n.left != 0 {
			n.left = n.left.narrow(string(unescapeJSON(nil, inside)))
		}
	case depth == maxSniffed:
		n.kinds |= jsonString
	case kind == jsonObject:
		s := jsonScanner{text: inside}
		s.members(func(key, value field, kind jsonKind) bool {
			n.key(string(unescapeJSON(nil, inside[key.from:key.to]))).observe(inside, value, kind, depth+1)
			return len(n.names) <= maxColumns
		})
	default:
		if n.element == nil {
			n.element = newJSONNode()
		}
		s := jsonScanner{text: inside}
		s.elements(func(value field, kind jsonKind) bool {
			n.element.observe(inside, value, kind, depth+1)
			return true
		})
	}
}

// typ returns the type of the values. Values of several kinds are texts.
func (n *jsonNode) typ() gpu.Type {
	switch k := n.kinds &^ jsonNull; k {
	case jsonObject:
		return n.objectType()
	case jsonList:
		element := gpu.Of(gpu.String)
		if n.element != nil {
			element = n.element.typ()
		}
		return gpu.ListOf(element)
	case jsonBool, jsonInteger:
		return n.left.typ()
	case jsonFloat, jsonFloat | jsonInteger:
		return gpu.Of(gpu.Float64)
	case jsonString:
		if t := n.left.typ(); slices.Contains([]gpu.Kind{gpu.Date, gpu.Time, gpu.Timestamp}, t.Kind) {
			return t
		}
	}
	return gpu.Of(gpu.String)
}

// objectType returns the type of objects: STRUCT, or MAP for those that have no keys, rare ones or very many.
func (n *jsonNode) objectType() gpu.Type {
	total, values := 0, newJSONNode()
	for _, name := range n.names {
		total += n.keys[name].count
	}
	rare := float64(total) < rareKey*float64(n.count)*float64(len(n.names))
	if rare || len(n.names) >= manyKeys || len(n.names) > maxColumns {
		for _, name := range n.names {
			values.merge(n.keys[name])
		}
	}
	several := len(n.names) >= manyKeys && values.typ() != gpu.Of(gpu.String) || len(n.names) > maxColumns
	if len(n.names) == 0 || rare || several {
		return gpu.MapOf(gpu.Of(gpu.String), values.typ())
	}
	fields := make([]gpu.Field, len(n.names))
	for i, name := range n.names {
		fields[i] = gpu.Field{Name: name, Type: n.keys[name].typ(), Nullable: true}
	}
	return gpu.StructOf(fields...)
}

// merge adds the values of another node.
func (n *jsonNode) merge(m *jsonNode) {
	n.kinds |= m.kinds
	n.left &= m.left
	n.count += m.count
	for _, name := range m.names {
		n.key(name).merge(m.keys[name])
	}
	if m.element != nil {
		if n.element == nil {
			n.element = newJSONNode()
		}
		n.element.merge(m.element)
	}
}

// jsonEncoder encodes values of JSON as values of a nested type.
type jsonEncoder struct {
	gpu.Type
	keys     map[string]int // of a STRUCT
	children []*jsonEncoder
	// others says that keys which are no fields of a STRUCT are left out.
	others bool
	root   *jsonEncoder
	why    string // of the root: the first mismatch
}

// newJSONEncoder returns the encoder of a type. root is nil for one that is in no other type.
func newJSONEncoder(t gpu.Type, others bool, root *jsonEncoder) *jsonEncoder {
	e := &jsonEncoder{Type: t, others: others, root: root}
	if root == nil {
		e.root = e
	}
	for i, f := range t.Children() {
		if e.children = append(e.children, newJSONEncoder(f.Type, others, e.root)); t.Kind == gpu.Struct {
			if e.keys == nil {
				e.keys = map[string]int{}
			}
			e.keys[f.Name] = i
		}
	}
	return e
}

// fails notes why a value has no encoding.
func (e *jsonEncoder) fails(format string, args ...any) bool {
	if e.root.why == "" {
		e.root.why = fmt.Sprintf(format, args...)
	}
	return false
}

// append appends the encoding of a value, which has been scanned. ok is false if the type has no such value.
func (e *jsonEncoder) append(out, text []byte, value field, kind jsonKind) (_ []byte, ok bool) {
	inside := text[value.from:value.to]
	switch {
	case kind == jsonNull:
		return gpu.AppendNull(out), true
	case e.Kind == gpu.List && kind == jsonList:
		out, ok = gpu.OpenNested(out), true
		s := jsonScanner{text: inside}
		s.elements(func(value field, kind jsonKind) bool {
			out, ok = e.children[0].append(out, inside, value, kind)
			return ok
		})
		return gpu.CloseNested(out), ok
	case e.Kind == gpu.Map && kind == jsonObject:
		return e.appendMap(out, inside)
	case e.Kind == gpu.Struct && kind == jsonObject:
		return e.appendStruct(out, inside)
	case e.IsNested():
		return out, e.fails("%s is no %v", quoted(string(inside)), e.Type)
	case e.Kind == gpu.String && !value.escaped:
		return gpu.AppendBytes(out, inside), true
	}
	if value.escaped {
		inside = unescapeJSON(nil, inside)
	}
	v, ok := parseScalar(string(inside), e.Type)
	if !ok {
		return out, e.fails("%s is no %v", quoted(string(inside)), e.Type)
	}
	return gpu.AppendScalar(out, v), true
}

func (e *jsonEncoder) appendMap(out, object []byte) (_ []byte, ok bool) {
	out, ok = gpu.OpenNested(out), true
	seen := map[string]bool{}
	s := jsonScanner{text: object}
	s.members(func(key, value field, kind jsonKind) bool {
		out = gpu.OpenNested(out)
		from := len(out)
		if out, ok = e.children[0].append(out, object, key, jsonString); !ok {
			return false
		}
		if seen[string(out[from:])] {
			ok = e.fails("the object has the key %s twice", quoted(string(object[key.from:key.to])))
			return false
		}
		seen[string(out[from:])] = true
		out, ok = e.children[1].append(out, object, value, kind)
		out = gpu.CloseNested(out)
		return ok
	})
	return gpu.CloseNested(out), ok
}

func (e *jsonEncoder) appendStruct(out, object []byte) (_ []byte, ok bool) {
	type member struct {
		value field
		kind  jsonKind
	}
	var few [8]member
	members := append(few[:0], make([]member, len(e.children))...)
	ok = true
	s := jsonScanner{text: object}
	s.members(func(key, value field, kind jsonKind) bool {
		name := object[key.from:key.to]
		if key.escaped {
			name = unescapeJSON(nil, name)
		}
		i, known := e.keys[string(name)]
		switch {
		case !known && e.others:
		case !known:
			ok = e.fails("the key %s is in no such object of the sample of the file", quoted(string(name)))
		case members[i].kind != 0:
			ok = e.fails("the object has the key %s twice", quoted(string(name)))
		default:
			members[i] = member{value, kind}
		}
		return ok
	})
	out = gpu.OpenNested(out)
	for i, child := range e.children {
		if !ok {
			break
		}
		if members[i].kind == 0 {
			members[i].kind = jsonNull
		}
		out, ok = child.append(out, object, members[i].value, members[i].kind)
	}
	return gpu.CloseNested(out), ok
}

// parseJSON parses objects and lists.
func parseJSON(c *column, text []byte, fields []token, bad []int) []int {
	c.bytes = c.bytes[:c.mark]
	offsets := gpu.Values[int32](c.offsets, c.rows+len(fields)+1)[c.rows+1:]
	for i, f := range fields {
		from, to := f.from(), f.to()
		if c.nulls.has(text[from:to]) {
			c.setNull(c.rows + i)
			offsets[i] = int32(len(c.bytes))
			continue
		}
		c.setValid(c.rows + i)
		kind := jsonKindOf(text, from)
		out, ok := c.json.append(c.bytes, text, field{from, to, f.escaped()}, kind)
		if !ok {
			bad, out = append(bad, i), out[:len(c.bytes)]
		}
		c.bytes = out
		offsets[i] = int32(len(out))
	}
	return bad
}

// jsonKindOf returns the kind of an object, a list or another value that begins at an offset of a line.
func jsonKindOf(text []byte, from int) jsonKind {
	switch {
	case from > 0 && text[from-1] == '"': // the quotes of a string are not in its field
		return jsonString
	case text[from] == '{':
		return jsonObject
	case text[from] == '[':
		return jsonList
	}
	return jsonInteger
}
