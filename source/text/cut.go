package text

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
)

// padding is the bytes behind the text of a block that the tokenizer may read. A buffer has one more, for a line break
// that the file lacks.
const padding = 64

// block is a part of a file that begins and ends with rows. Its text ends with a line break.
type block struct {
	number  int
	file    *file
	text    []byte // padding bytes follow
	line    int64  // number of its first line, from 1
	lines   int    // line breaks, an upper bound of its rows
	read    int64  // bytes that were read of the files for it
	skipped int    // bytes before its first row
}

// cutter cuts files into blocks. One goroutine at a time uses it.
type cutter struct {
	ctx    context.Context
	table  *Table
	lease  *gpu.Lease
	target int // bytes of a block
	in     *input
	next   int    // index of the next file
	rest   []byte // what follows the last block in the file
	ended  bool   // rest is the end of the file
	number int    // of the next block
	err    error  // that ends the scan
	line   int64

	pool sync.Mutex // guards free, since workers give buffers back while a block is cut
	free [][]byte
}

// errEnd means that there are no more blocks.
var errEnd = errors.New("no more blocks")

// buffer returns a buffer for a text of n bytes, and reserves its memory.
func (c *cutter) buffer(n int) ([]byte, error) {
	if b := c.kept(n + padding + 1); b != nil {
		return b[:n], nil
	}
	c.drop()
	if err := c.lease.Reserve(int64(n + padding + 1)); err != nil {
		return nil, err
	}
	return make([]byte, n, n+padding+1), nil
}

// kept returns a buffer that is not in use and has room for n bytes, or nil.
func (c *cutter) kept(n int) []byte {
	c.pool.Lock()
	defer c.pool.Unlock()
	i := slices.IndexFunc(c.free, func(b []byte) bool { return cap(b) >= n })
	if i < 0 {
		return nil
	}
	b := c.free[i]
	c.free = slices.Delete(c.free, i, i+1)
	return b
}

// release takes back the buffer of a block, and frees it if memory is scarce: somebody may wait for it.
func (c *cutter) release(b []byte) {
	if cap(b) == 0 {
		return
	}
	c.pool.Lock()
	defer c.pool.Unlock()
	if c.lease.Available() < 4*int64(cap(b)) {
		c.lease.Unreserve(int64(cap(b)))
		return
	}
	c.free = append(c.free, b)
}

// drop frees the buffers that are not in use.
func (c *cutter) drop() {
	c.pool.Lock()
	defer c.pool.Unlock()
	for _, b := range c.free {
		c.lease.Unreserve(int64(cap(b)))
	}
	c.free = nil
}

// close ends the cutter.
func (c *cutter) close() {
	if c.in != nil {
		c.in.end()
		c.in = nil
	}
	c.release(c.rest)
	c.rest = nil
	c.drop()
}

// cut returns the next block, or errEnd. After an error every call returns it, unless memory was denied.
func (c *cutter) cut() (*block, error) {
	if c.err != nil {
		return nil, c.err
	}
	b, err := c.block()
	if err != nil && !gpu.IsOutOfMemory(err) {
		c.err = err
	}
	return b, err
}

// block cuts the next block.
func (c *cutter) block() (_ *block, err error) {
	for c.in == nil {
		if c.next == len(c.table.files) {
			return nil, errEnd
		}
		if err := c.open(c.table.files[c.next]); err != nil {
			return nil, err
		}
		c.next++
	}
	d := c.in.file.layout.dialect
	before := c.in.read
	size := max(c.target, len(c.rest)+1)
	buf, err := c.buffer(size)
	if err != nil {
		return nil, err
	}
	n := copy(buf, c.rest)
	defer func() {
		if err != nil { // another call continues where this one was denied memory
			c.release(c.rest)
			c.rest = buf[:n]
		}
	}()
	end := 0
	for {
		if !c.ended {
			var more int
			if more, c.ended, err = c.in.fill(buf[n:]); err != nil {
				return nil, err
			}
			n += more
		}
		if c.ended {
			if n > 0 && buf[n-1] != d.Newline {
				buf = append(buf[:n], d.Newline) // into the padding
				n++
			}
			end = n
			break
		}
		if end = d.cut(buf[:n]); end > 0 {
			break
		}
		if n >= maxRow {
			hint := ""
			if d.Quote != 0 {
				hint = fmt.Sprintf("; is a quote (%c) not closed?", d.Quote)
			}
			return nil, fmt.Errorf("%s, %s %d: %w", c.in.file.path, c.in.file.layout.form.unit(), c.line,
				badf("a row has more than %d bytes%s", maxRow, hint))
		}
		larger, err := c.buffer(min(2*n, maxRow))
		if err != nil {
			return nil, err
		}
		copy(larger, buf[:n])
		c.release(buf)
		buf = larger
	}
	b := &block{number: c.number, file: c.in.file, line: c.line, read: c.in.read - before}
	// What follows the block is copied before anybody parses it.
	c.release(c.rest)
	c.rest = nil
	if n > end {
		if c.rest, err = c.buffer(n - end); err != nil {
			return nil, err
		}
		copy(c.rest, buf[end:n])
	}
	b.text = buf[:end]
	clear(b.text[end : end+padding])
	b.text[:end+1][end] = nullMark[0]
	b.lines = bytes.Count(b.text, []byte{d.Newline})
	c.line += int64(b.lines)
	if c.in.header {
		c.in.header = false
		if err := c.table.header(b); err != nil {
			return nil, err
		}
	}
	if c.ended {
		c.in.end()
		c.in, c.ended = nil, false
	}
	c.number++
	return b, nil
}

// open opens the next file.
func (c *cutter) open(f *file) (err error) {
	if c.in, err = f.open(c.ctx, c.table.sampler, c.lease); err != nil {
		return err
	}
	if err := c.in.skip(c.table.skip); err != nil {
		return err
	}
	c.in.header = f.layout.header
	c.line = c.in.line
	if f.layout.form != jsonLines {
		c.in.text, c.line = bufio.NewReaderSize(newLineReader(f.layout.form, c.in.text), inputBuffer), 1
	}
	return nil
}

// header checks the header of a file, and takes it from the block.
func (t *Table) header(b *block) error {
	l := b.file.layout
	fields, next, what := l.dialect.split(b.text, nil)
	if len(b.text) == 0 {
		return nil // an empty file among others
	}
	at := fmt.Sprintf("%s, line %d", b.file.path, b.line)
	if what != sound {
		return fmt.Errorf("%s: %w", at, badf("%s", what.describe(0, 0)))
	}
	var names []string
	for _, f := range fields {
		names = append(names, l.dialect.value(b.text, f))
	}
	names = columnNames(names)
	for i, want := range l.names {
		if i >= len(names) || names[i] != want {
			got := "there is none"
			if i < len(names) {
				got = fmt.Sprintf("it is %q", names[i])
			}
			return fmt.Errorf("%s: %w", at, badf("column %d of the header must be %q, as in %s, and %s; files with "+
				"other columns are sources of their own, or are united by name (union_by_name)", i+1, want, l.path,
				got))
		}
	}
	if len(names) > len(l.names) {
		return fmt.Errorf("%s: %w", at, badf("the header has the column %q, which %s has not; files with other "+
			"columns are sources of their own, or are united by name (union_by_name)", names[len(l.names)], l.path))
	}
	lines := bytes.Count(b.text[:next], []byte{l.dialect.Newline})
	b.line += int64(lines)
	b.lines -= lines
	b.skipped = next
	return nil
}

// checkText returns the offset of the first byte that is not UTF-8, or -1.
func checkText(text []byte) int {
	if utf8.Valid(text) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}
