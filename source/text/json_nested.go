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
	names    []string
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
			e.keys[f.Name], e.names = i, append(e.names, f.Name)
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

// append appends the encoding of the value at which the scanner is. The value is sound. ok is false if the type has no
// such value.
func (e *jsonEncoder) append(out []byte, s *jsonScanner) (_ []byte, ok bool) {
	s.space()
	switch c := s.text[s.at]; {
	case c == '"':
		f, _ := s.string()
		return e.appendText(out, s.text, f)
	case c == '[' && e.Kind == gpu.List:
		return e.appendList(out, s)
	case c == '{' && e.Kind == gpu.Map:
		return e.appendMap(out, s)
	case c == '{' && e.Kind == gpu.Struct:
		return e.appendStruct(out, s)
	case c == '{' || c == '[':
		f := field{from: s.at}
		s.nested()
		f.to = s.at
		return e.appendText(out, s.text, f)
	}
	f := s.word()
	switch {
	case f.to-f.from == 4 && s.text[f.from] == 'n':
		return gpu.AppendNull(out), true
	case e.Kind == gpu.Int64:
		if v, fraction, ok := number(s.text, f.from, f.to); ok && fraction == 0 {
			return gpu.AppendFixed(out, e.Type, gpu.Int128From(v)), true
		}
	case e.Kind == gpu.Float64:
		if v, fraction, ok := exact(s.text, f.from, f.to); ok {
			return gpu.AppendFloat64(out, float64(v)/pow10[fraction]), true
		}
	}
	return e.appendText(out, s.text, f)
}

// appendText appends the encoding of a text as a value that is not nested.
func (e *jsonEncoder) appendText(out, text []byte, f field) (_ []byte, ok bool) {
	inside := text[f.from:f.to]
	switch {
	case e.IsNested():
		return out, e.fails("%s is no %v", quoted(string(inside)), e.Type)
	case e.Kind == gpu.String && !f.escaped:
		return gpu.AppendBytes(out, inside), true
	case e.Kind == gpu.Date && len(inside) == 10:
		if d, ok := days(inside); ok {
			return gpu.AppendFixed(out, e.Type, gpu.Int128From(d)), true
		}
	}
	if f.escaped {
		inside = unescapeJSON(nil, inside)
	}
	v, ok := parseScalar(string(inside), e.Type)
	if !ok {
		return out, e.fails("%s is no %v", quoted(string(inside)), e.Type)
	}
	return gpu.AppendScalar(out, v), true
}

func (e *jsonEncoder) appendList(out []byte, s *jsonScanner) (_ []byte, ok bool) {
	out = gpu.OpenNested(out)
	s.at++
	for more := !s.next(']'); more; more = !s.next(']') {
		if out, ok = e.children[0].append(out, s); !ok {
			return out, false
		}
		s.next(',')
	}
	return gpu.CloseNested(out), true
}

func (e *jsonEncoder) appendMap(out []byte, s *jsonScanner) (_ []byte, ok bool) {
	out = gpu.OpenNested(out)
	seen := map[string]bool{}
	s.at++
	for more := !s.next('}'); more; more = !s.next('}') {
		out = gpu.OpenNested(out)
		key, _ := s.string()
		from := len(out)
		if out, ok = e.children[0].appendText(out, s.text, key); !ok {
			return out, false
		}
		if seen[string(out[from:])] {
			return out, e.fails("the object has the key %s twice", quoted(string(s.text[key.from:key.to])))
		}
		seen[string(out[from:])] = true
		s.next(':')
		if out, ok = e.children[1].append(out, s); !ok {
			return out, false
		}
		out = gpu.CloseNested(out)
		s.next(',')
	}
	return gpu.CloseNested(out), true
}

// appendStruct appends the values of an object as they come if they come in the order of the fields.
func (e *jsonEncoder) appendStruct(out []byte, s *jsonScanner) (_ []byte, ok bool) {
	from, at := len(out), s.at
	out = gpu.OpenNested(out)
	s.at++
	field := 0
	for more := !s.next('}'); more; more = !s.next('}') {
		i, known := e.field(s, field)
		s.next(':')
		switch {
		case known && i < field, !known && !e.others:
			s.at = at
			return e.appendUnordered(out[:from], s)
		case !known:
			s.value()
		default:
			for ; field < i; field++ {
				out = gpu.AppendNull(out)
			}
			if out, ok = e.children[i].append(out, s); !ok {
				return out, false
			}
			field++
		}
		s.next(',')
	}
	for ; field < len(e.children); field++ {
		out = gpu.AppendNull(out)
	}
	return gpu.CloseNested(out), true
}

// field scans a key and returns the field that it is, most likely the given one.
func (e *jsonEncoder) field(s *jsonScanner, likely int) (int, bool) {
	key, _ := s.string()
	name := s.text[key.from:key.to]
	if key.escaped {
		name = unescapeJSON(nil, name)
	}
	if likely < len(e.names) && e.names[likely] == string(name) {
		return likely, true
	}
	i, known := e.keys[string(name)]
	return i, known
}

// appendUnordered appends the values of an object whose keys come in any order.
func (e *jsonEncoder) appendUnordered(out []byte, s *jsonScanner) (_ []byte, ok bool) {
	values := make([]int, len(e.children)) // where they begin
	s.at++
	for more := !s.next('}'); more; more = !s.next('}') {
		start := s.at
		i, known := e.field(s, 0)
		s.next(':')
		switch {
		case known && values[i] > 0:
			return out, e.fails("the object has the key %s twice", quoted(e.names[i]))
		case known:
			values[i] = s.at
		case !e.others:
			again := jsonScanner{text: s.text, at: start}
			key, _ := again.string()
			return out, e.fails("the key %s is in no such object of the sample of the file",
				quoted(string(s.text[key.from:key.to])))
		}
		s.value()
		s.next(',')
	}
	end := s.at
	out = gpu.OpenNested(out)
	for i, at := range values {
		if at == 0 {
			out = gpu.AppendNull(out)
			continue
		}
		s.at = at
		if out, ok = e.children[i].append(out, s); !ok {
			return out, false
		}
	}
	s.at = end
	return gpu.CloseNested(out), true
}

// parseJSON parses objects and lists.
func parseJSON(c *column, text []byte, fields []token, bad []int) []int {
	c.bytes = c.bytes[:c.mark]
	offsets := gpu.Values[int32](c.offsets, c.rows+len(fields)+1)[c.rows+1:]
	for i, f := range fields {
		if c.nulls.has(text[f.from():f.to()]) {
			c.setNull(c.rows + i)
			offsets[i] = int32(len(c.bytes))
			continue
		}
		c.setValid(c.rows + i)
		out, ok := c.json.column(c.bytes, text, f)
		if !ok {
			bad, out = append(bad, i), out[:len(c.bytes)]
		}
		c.bytes = out
		offsets[i] = int32(len(out))
	}
	return bad
}

// column appends the encoding of a value of the column.
func (e *jsonEncoder) column(out, text []byte, f token) (_ []byte, ok bool) {
	if from := f.from(); from > 0 && text[from-1] == '"' { // the quotes of a string are not in its field
		return e.appendText(out, text, field{from, f.to(), f.escaped()})
	}
	return e.append(out, &jsonScanner{text: text, at: f.from()})
}
