package parquet

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
)

// The decoder of the thrift compact protocol allocates lists of the length that the input claims.
// compactLen therefore walks a structure first, without allocating. Only structures that have the
// bytes for all claimed elements are decoded.

const (
	maxCompactDepth = 16
	// minStructBytes is the least size of a struct in a list of Parquet metadata. It is that of
	// ColumnOrder: a field header, an empty struct and the stop byte.
	minStructBytes = 3
)

var errCompact = errors.New("metadata is not valid thrift")

// compactLen returns the size of the thrift struct at the start of b. It returns
// io.ErrUnexpectedEOF when b ends before the struct does.
func compactLen(b []byte) (int, error) {
	w := compactWalk{b: b}
	if err := w.structure(0); err != nil {
		return 0, err
	}
	return w.pos, nil
}

// unmarshalCompact decodes the struct at the start of b into v and returns its size. v
// does not refer to b.
func unmarshalCompact(b []byte, v any) (int, error) {
	n, err := compactLen(b)
	if err != nil {
		return 0, err
	}
	return n, thrift.Unmarshal(new(thrift.CompactProtocol), b[:n], v)
}

type compactWalk struct {
	b   []byte
	pos int
	// listed is the number of a field of the outermost structure. If this field is a list, elements
	// are the positions of its elements and of its end. Otherwise elements is nil.
	listed   int
	at       int // position of the list
	elements []int
}

func (w *compactWalk) uvarint() (uint64, error) {
	v, n := binary.Uvarint(w.b[w.pos:])
	if n == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	if n < 0 {
		return 0, errCompact
	}
	w.pos += n
	return v, nil
}

func (w *compactWalk) byte() (byte, error) {
	if w.pos >= len(w.b) {
		return 0, io.ErrUnexpectedEOF
	}
	w.pos++
	return w.b[w.pos-1], nil
}

func (w *compactWalk) skip(n uint64) error {
	if n > uint64(len(w.b)-w.pos) {
		return io.ErrUnexpectedEOF
	}
	w.pos += int(n)
	return nil
}

func (w *compactWalk) structure(depth int) error {
	for id := 0; ; {
		h, err := w.byte()
		if err != nil || h == 0 {
			return err
		}
		if id += int(h >> 4); h>>4 == 0 { // the field id follows
			v, err := w.uvarint()
			if err != nil {
				return err
			}
			id = int(int16(v>>1) ^ -int16(v&1))
		}
		if depth == 0 && id == w.listed && thrift.Type(h&15) == thrift.LIST {
			w.at, w.elements = w.pos, []int{} // the last list counts, as for a decoder
			if w.pos < len(w.b) && w.b[w.pos]>>4 != 0 && thrift.Type(w.b[w.pos]&15) != thrift.STRUCT {
				return errCompact // the elements will be decoded as structures, so they must be walked as such
			}
			if err := w.list(1, func() { w.elements = append(w.elements, w.pos) }); err != nil {
				return err
			}
			continue
		}
		if t := thrift.Type(h & 15); t != thrift.TRUE && t != thrift.FALSE { // a boolean is in the header
			if err := w.value(t, depth+1); err != nil {
				return err
			}
		}
	}
}

func (w *compactWalk) value(t thrift.Type, depth int) error {
	if depth > maxCompactDepth {
		return errCompact
	}
	switch t {
	case thrift.TRUE, thrift.FALSE, thrift.I8:
		return w.skip(1)
	case thrift.I16, thrift.I32, thrift.I64:
		_, err := w.uvarint()
		return err
	case thrift.DOUBLE:
		return w.skip(8)
	case thrift.BINARY:
		n, err := w.uvarint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thrift.STRUCT:
		return w.structure(depth)
	case thrift.LIST, thrift.SET:
		return w.list(depth, nil)
	}
	return errCompact // Parquet has no maps
}

// list walks a list. It calls element, if that is set, before each element and at the end.
func (w *compactWalk) list(depth int, element func()) error {
	h, err := w.byte()
	if err != nil {
		return err
	}
	n, t := uint64(h>>4), thrift.Type(h&15)
	if n == 15 {
		if n, err = w.uvarint(); err != nil {
			return err
		}
	}
	least := uint64(1)
	if t == thrift.STRUCT {
		least = minStructBytes
	}
	if n > uint64(len(w.b)-w.pos)/least {
		return io.ErrUnexpectedEOF
	}
	for range n {
		if element != nil {
			element()
		}
		if err := w.value(t, depth+1); err != nil {
			return err
		}
	}
	if element != nil {
		element()
	}
	return nil
}
