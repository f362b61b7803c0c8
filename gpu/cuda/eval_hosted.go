package cuda

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/jsontext"
)

// hosted evaluates an instruction that has no kernel (gpu.Operation.Host) on the CPU: its arguments are copied down,
// and its result is copied up. The copies count against the budget of host memory.
type hosted struct {
	q  *queue
	l  *gpu.Lease
	in *gpu.Instr
	n  int
}

// hostedRows is the number of rows that a core takes at a time, a multiple of 64.
const hostedRows = 8 << 10

// hostedPart is the result for some rows. Its bytes follow those of the parts before it.
type hostedPart struct {
	bytes   []byte
	ends    []int // of each row in bytes
	numbers []uint64
	valid   []bool
	nulls   bool
	err     error
}

func (h hosted) eval(args []gpu.Column) (out gpu.Column, err error) {
	memory := &hostMemory{lease: h.q.dev.host.Lease("operations on the CPU")}
	defer func() {
		memory.lease.Unreserve(memory.reserved.Load())
		if closed := memory.lease.Close(); err == nil {
			err = closed
		}
	}()
	host, err := h.down(memory, args)
	if err != nil {
		return out, err
	}
	parts := make([]hostedPart, (h.n+hostedRows-1)/hostedRows)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(len(parts), runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			f, err := jsontext.New(h.in)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(parts) {
					return
				}
				part := &parts[i]
				if part.err = err; err == nil {
					h.guarded(f, host, i*hostedRows, part)
				}
				size := int64(cap(part.bytes)) + int64(len(part.ends)+len(part.numbers))*8 + int64(len(part.valid))
				if err := memory.reserve(size); err != nil {
					part.err = err
				}
			}
		})
	}
	wait.Wait()
	for i := range parts {
		if err := parts[i].err; err != nil {
			return out, h.q.fail("evaluate", err)
		}
	}
	return h.up(parts)
}

// hostMemory is memory of the Go heap that counts against the budget of host memory.
type hostMemory struct {
	lease    *gpu.Lease
	reserved atomic.Int64
}

func (m *hostMemory) reserve(n int64) error {
	err := m.lease.Reserve(n)
	if err == nil {
		m.reserved.Add(n)
	}
	return err
}

// down copies the arguments to the host.
func (h hosted) down(m *hostMemory, args []gpu.Column) (out []gpu.Column, err error) {
	o := h.q.begin("evaluate", h.l)
	defer end(o, &out, &err)
	o.takes(args...)
	for _, c := range args {
		out = append(out, o.copyDown(m, c))
	}
	return out, nil
}

// copyDown returns a column in memory of the host.
func (o *op) copyDown(m *hostMemory, c gpu.Column) gpu.Column {
	n := int64(c.Len)
	read := func(b *gpu.Buffer, from, size int64) *gpu.Buffer {
		if o.err == nil {
			o.fail(m.reserve(size))
		}
		return o.local(b, from, size)
	}
	out := gpu.Column{Type: c.Type, Len: c.Len}
	if c.Valid != nil {
		out.Valid = read(c.Valid, 0, gpu.BitmapBytes(c.Len))
	}
	switch {
	case c.Len == 0:
	case c.Dict != nil:
		out.Data = read(c.Data, 0, 4*n)
		out.Dict = &gpu.Dictionary{Values: o.copyDown(m, c.Dict.Values)}
	case c.Type.IsVar():
		out.Offsets = read(c.Offsets, 0, 4*(n+1))
		offsets := gpu.Values[int32](out.Offsets, c.Len+1)
		first := offsets[0]
		out.Data = read(c.Data, int64(first), int64(max(offsets[n]-first, 0)))
		for i := range offsets {
			offsets[i] -= first
		}
	case c.Type.Kind == gpu.Bool:
		out.Data = read(c.Data, 0, gpu.BitmapBytes(c.Len))
	default:
		out.Data = read(c.Data, 0, n*int64(c.Type.Width()))
	}
	return out
}

// guarded is rows, and makes an error of a panic, which would end the process.
func (h hosted) guarded(f *jsontext.Function, args []gpu.Column, from int, out *hostedPart) {
	defer func() {
		if p := recover(); p != nil {
			out.err = gpu.Panicked("an operation on the CPU", p, debug.Stack())
		}
	}()
	h.rows(f, args, from, out)
}

// rows evaluates rows from a first one on.
func (h hosted) rows(f *jsontext.Function, args []gpu.Column, from int, out *hostedPart) {
	n := min(hostedRows, h.n-from)
	isText := h.in.Type.IsVar()
	out.valid = make([]bool, n)
	if isText {
		out.ends = make([]int, n)
	} else {
		out.numbers = make([]uint64, n)
	}
	var texts [2]string
	values := args[:len(h.in.Args)]
	for i := range n {
		row, live := from+i, true
		for k, c := range values {
			if live = live && c.IsValid(row); live {
				texts[k] = textAt(c, row)
			}
		}
		start := len(out.bytes)
		if live {
			var number uint64
			var err error
			out.bytes, number, out.valid[i], err = f.Row(out.bytes, texts[0], texts[1])
			if err != nil && h.needed(args, row) {
				out.err = h.in.Failed("%v", err)
				return
			}
			if !isText {
				out.numbers[i] = number
			}
		}
		if !out.valid[i] {
			out.bytes, out.nulls = out.bytes[:start], true
		}
		if isText {
			out.ends[i] = len(out.bytes)
		}
	}
}

// needed reports whether the mask of the instruction has a row.
func (h hosted) needed(args []gpu.Column, row int) bool {
	if h.in.Mask < 0 {
		return true
	}
	v := args[len(args)-1].ScalarAt(row)
	return v.Valid && v.Int.Lo != 0
}

// textAt returns a string of a column that is not null there.
func textAt(c gpu.Column, row int) string {
	if c.Dict != nil {
		row = int(gpu.Values[int32](c.Data, c.Len)[row])
		c = c.Dict.Values
	}
	offsets := gpu.Values[int32](c.Offsets, c.Len+1)
	b := c.Data.Bytes()[offsets[row]:offsets[row+1]]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// up makes a column of the device of the parts.
func (h hosted) up(parts []hostedPart) (out gpu.Column, err error) {
	o := h.q.begin("evaluate", h.l)
	defer end(o, &out, &err)
	out = gpu.Column{Type: h.in.Type, Len: h.n}
	bits := make([]uint64, (h.n+63)/64)
	put := func(values func(part *hostedPart, i int) bool) *gpu.Buffer {
		clear(bits)
		for p := range parts {
			for i := range parts[p].valid {
				if row := p*hostedRows + i; values(&parts[p], i) {
					bits[row>>6] |= 1 << (row & 63)
				}
			}
		}
		b := o.alloc(gpu.BitmapBytes(h.n))
		o.fill(b, 0, b.Size(), 0)
		o.write(b, 0, gpu.BytesOf(bits)[:min(int64(len(bits))*8, b.Size())])
		return b
	}
	total, nulls := 0, false
	for i := range parts {
		total += len(parts[i].bytes)
		nulls = nulls || parts[i].nulls
	}
	if nulls {
		out.Valid = put(func(part *hostedPart, i int) bool { return part.valid[i] })
	}
	switch {
	case out.Type.Kind == gpu.Bool:
		out.Data = put(func(part *hostedPart, i int) bool { return part.numbers[i]&1 != 0 })
	case out.Type.IsVar():
		if total > math.MaxInt32 {
			o.fail(gpu.TooManyBytes(int64(total), h.n))
			return out, nil
		}
		offsets, at := make([]int32, 1, h.n+1), 0
		out.Data = o.alloc(int64(total))
		for i := range parts {
			o.write(out.Data, int64(at), parts[i].bytes)
			for _, end := range parts[i].ends {
				offsets = append(offsets, int32(at+end))
			}
			at += len(parts[i].bytes)
		}
		out.Offsets = o.alloc(int64(len(offsets)) * 4)
		o.write(out.Offsets, 0, gpu.BytesOf(offsets))
	default:
		out.Data = o.alloc(int64(h.n) * int64(out.Type.Width()))
		for i := range parts {
			o.write(out.Data, int64(i)*hostedRows*int64(out.Type.Width()), gpu.BytesOf(parts[i].numbers))
		}
	}
	if o.failed() {
		return out, nil
	}
	return o.retainColumn(out), nil
}
