package parquet

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/gstream/gstream/gpu"
)

// A device decodes all blocks of a ZSTD page at the same time, so the host finds them (RFC 8878).

const (
	zstdBlockMost = 128 << 10 // bytes of a block, and of its output
	zstdPageMost  = 1 << 27   // bytes of output of a page that a device decodes
	zstdMatch     = 3         // least bytes of output of a sequence
)

var (
	zstdMagic     = []byte{0x28, 0xb5, 0x2f, 0xfd}
	zstdSkippable = []byte{0x2a, 0x4d, 0x18}
)

// zstdBlocks appends the blocks of a page with raw bytes of output. ok is false if a device cannot decode the page, or
// if the page is damaged: the CPU says in which way.
func zstdBlocks(blocks []gpu.ZstdBlock, src []byte, raw int) (out []gpu.ZstdBlock, ok bool) {
	w := zstdWalk{blocks: blocks, from: len(blocks), src: src, left: raw, more: 64 + raw/1024}
	if raw > zstdPageMost {
		return blocks, false
	}
	for w.at < len(src) {
		if !w.frame() {
			return blocks[:w.from], false
		}
	}
	return w.blocks, true
}

// zstdWalk goes through the headers of a page.
type zstdWalk struct {
	blocks []gpu.ZstdBlock
	from   int // first block of the page
	src    []byte
	at     int
	left   int // bytes of output that frames and blocks have not claimed yet
	more   int // number of further blocks, so that a page of tiny ones does not take much memory

	tree   int // last block of the frame with a tree of literals, or -1
	tables [3]int
}

// take returns the next n bytes.
func (w *zstdWalk) take(n int) (b []byte, ok bool) {
	if n < 0 || n > len(w.src)-w.at {
		return nil, false
	}
	w.at += n
	return w.src[w.at-n : w.at], true
}

// number returns the next n ≤ 8 bytes as a number.
func (w *zstdWalk) number(n int) (v uint64, ok bool) {
	b, ok := w.take(n)
	var all [8]byte
	copy(all[:], b)
	return binary.LittleEndian.Uint64(all[:]), ok
}

func (w *zstdWalk) frame() bool {
	magic, ok := w.take(4)
	if !ok {
		return false
	}
	if magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], zstdSkippable) {
		n, ok := w.number(4)
		if ok && n < math.MaxInt32 {
			_, ok = w.take(int(n))
			return ok
		}
		return false
	}
	head, ok := w.number(1)
	if !ok || !bytes.Equal(magic, zstdMagic) || head&8 != 0 || head&3 != 0 { // a reserved bit, a dictionary
		return false
	}
	single, checked := head&32 != 0, head&4 != 0
	window := uint64(0)
	if !single {
		v, ok := w.number(1)
		if !ok {
			return false
		}
		window = 1 << (10 + v>>3)
		window += window / 8 * (v & 7)
	}
	size := [4]int{0, 2, 4, 8}[head>>6]
	if size == 0 && single {
		size = 1
	}
	content, ok := w.number(size)
	if size == 2 {
		content += 256
	}
	if !ok || size > 0 && content > uint64(w.left) || window > maxZstdWindow {
		return false
	}
	if single {
		window = max(content, 1<<10)
	}
	first := len(w.blocks)
	w.tree, w.tables = -1, [3]int{-1, -1, -1}
	for last := false; !last; {
		head, ok := w.number(3)
		if w.more--; !ok || w.more < 0 {
			return false
		}
		last = head&1 != 0
		b := gpu.ZstdBlock{Window: int(min(window, math.MaxInt32)), At: w.at}
		if !w.block(&b, head>>1&3, int(head>>3), int(min(window, zstdBlockMost))) {
			return false
		}
		w.blocks = append(w.blocks, b)
	}
	b := &w.blocks[first]
	b.First, b.Content, b.Check = true, -1, -1
	if size > 0 {
		b.Content = int(content)
	}
	if checked {
		b.Check = w.at
		_, ok = w.take(4)
	}
	return ok
}

// block reads a block of a kind after its header. most bounds its bytes and those of its output.
func (w *zstdWalk) block(b *gpu.ZstdBlock, kind uint64, size, most int) bool {
	if size > most {
		return false
	}
	switch kind {
	case 0:
		b.Kind, b.Size, b.Raw = gpu.ZstdRaw, size, size
	case 1:
		b.Kind, b.Size, b.Raw = gpu.ZstdRepeated, 1, size
	case 2:
		src, ok := w.take(size)
		return ok && w.compressed(b, src, most)
	default:
		return false
	}
	_, ok := w.take(b.Size)
	return ok && w.claim(b.Raw)
}

// claim counts bytes of output.
func (w *zstdWalk) claim(n int) bool {
	w.left -= n
	return w.left >= 0
}

// compressed reads the headers of literals and sequences in a compressed block.
func (w *zstdWalk) compressed(b *gpu.ZstdBlock, src []byte, most int) bool {
	if len(src) < 2 {
		return false
	}
	var head [8]byte
	copy(head[:], src)
	v := binary.LittleEndian.Uint64(head[:])
	b.Kind = gpu.ZstdLiterals(v & 3)
	format := v >> 2 & 3
	bytes, bits, coded := 1, 5, b.Kind >= gpu.ZstdCompressed
	switch {
	case coded:
		bytes, bits = [4]int{3, 3, 4, 5}[format], [4]int{10, 10, 14, 18}[format]
		b.Raw, b.Size = int(v>>4&(1<<bits-1)), int(v>>(4+bits)&(1<<bits-1))
		b.Streams = format != 0
	case format == 1:
		bytes, b.Raw = 2, int(v>>4&0xfff)
	case format == 3:
		bytes, b.Raw = 3, int(v>>4&0xfffff)
	default:
		b.Raw = int(v >> 3 & 31)
	}
	switch b.Kind {
	case gpu.ZstdRaw:
		b.Size = b.Raw
	case gpu.ZstdRepeated:
		b.Size = 1
	}
	b.At += bytes
	if bytes > len(src) || b.Size > len(src)-bytes || b.Raw > most {
		return false
	}
	self := len(w.blocks) - w.from
	if b.Kind == gpu.ZstdCompressed {
		w.tree = self
	}
	if b.Tree = max(w.tree, 0); coded && w.tree < 0 {
		return false
	}
	used := bytes + b.Size
	return w.sequences(b, src[used:], b.At+b.Size) && w.claim(b.Raw+zstdMatch*b.Sequences)
}

// sequences reads the header of the sequences of a block, at a position of the page.
func (w *zstdWalk) sequences(b *gpu.ZstdBlock, src []byte, at int) bool {
	var head [4]byte
	copy(head[:], src)
	used := 1
	switch n := int(head[0]); {
	case n < 128:
		b.Sequences = n
	case n < 255:
		used, b.Sequences = 2, (n-128)<<8+int(head[1])
	default:
		used, b.Sequences = 3, 0x7f00+int(head[1])+int(head[2])<<8
	}
	if b.Sequences == 0 {
		return len(src) == used
	}
	if len(src) < used+1 {
		return false
	}
	modes := src[used]
	b.From, b.To = at+used, at+len(src)
	for i := range w.tables {
		if modes>>(6-2*i)&3 != 3 {
			w.tables[i] = len(w.blocks) - w.from
		}
		if w.tables[i] < 0 {
			return false
		}
	}
	b.Tables = w.tables
	return modes&3 == 0
}
