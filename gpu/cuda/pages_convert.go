package cuda

import (
	"math"
	"unsafe"

	"github.com/gstream/gstream/gpu"
)

// The layouts of pages_convert.cu.
type (
	pageConversion struct {
		values, lengths, bytes       uint64
		capacity, factor             int64
		page, encoding, form, digits int32
		isUnsigned, _                int32
	}
	convertArgs struct{ pages, columns, status, list uint64 }
)

// pageConversions are the pages of a stride whose values become an array before they become those of a column.
type pageConversions struct {
	list []pageConversion
	at   uint64 // position of list in the table
}

// prefixedBytes is the memory for the bytes of values that share prefixes, as a multiple of the bytes of their page. If
// they have more, the kernel finds out how many, and the column is decoded again (enlarge).
const prefixedBytes = 4

// pagesFull is the status of a column whose values need more memory: PAGES_FULL of pages_convert.cu.
const pagesFull = 2

// converts reports whether the values of a page of a column are not PLAIN ones that pages_decode takes.
func converts(g gpu.Page, c gpu.Column) bool {
	return !g.Coded && (g.Encoding != gpu.StoredPlain || c.Pages.Form != gpu.StoredValues || c.Type.Width() == 16)
}

// reserveConversion returns the conversion of a page of a column, with positions in the memory of the decoding, and
// what pages_decode finds then.
func (b *pageBatch) reserveConversion(g gpu.Page, c gpu.Column) (x pageConversion, coded int32) {
	p := c.Pages
	x = pageConversion{encoding: int32(g.Encoding), form: int32(p.Form), digits: int32(p.Digits),
		factor: p.Factor, isUnsigned: flag(p.Unsigned)}
	if c.Type.IsVar() {
		x.values = b.reserve(int64(g.Values) * 8)
	} else {
		x.values = b.reserve(int64(g.Values) * int64(max(c.Type.Width(), 1)))
	}
	if c.Type.IsVar() || p.Form == gpu.StoredBigEndian && p.Stored == 0 { // values of any length
		x.lengths = b.reserve(int64(g.Values) * 4)
	}
	switch {
	case g.Encoding == gpu.StoredDeltaBytes && p.Stored == 0:
		x.capacity = prefixedBytes*int64(g.Raw) + 1<<16
	case g.Encoding == gpu.StoredDeltaBytes || g.Encoding == gpu.StoredStreamSplit && p.Form == gpu.StoredBytes:
		x.capacity = int64(g.Values) * int64(p.Stored)
	}
	if g.Encoding == gpu.StoredDeltaBytes {
		x.capacity += int64(g.Values)*8 + pageSlack // lengths
	}
	x.bytes = b.reserve(x.capacity + pageSlack)
	if g.Encoding == gpu.StoredPlain || g.Encoding == gpu.StoredRuns {
		return x, pageArray
	}
	return x, pageAll
}

// add adds a page.
func (v *pageConversions) add(page int32, x pageConversion) {
	x.page = page
	v.list = append(v.list, x)
}

// place writes the conversions with their addresses to a table. base is the address of the memory of the decoding.
func (v *pageConversions) place(t *pageTable, base uint64) {
	for i := range v.list {
		x := &v.list[i]
		x.values += base
		x.lengths += base
		x.bytes += base
	}
	copy(t.bytes[v.at:], gpu.BytesOf(v.list))
}

// convert starts the kernel that makes the arrays. at is the address of the table.
func (v *pageConversions) convert(w *decoding, pages pagesArgs, at uint64) {
	launchPages(w, "pages_convert", len(v.list), pageThreads, convertArgs{pages: pages.pages, columns: pages.columns,
		status: pages.status, list: at + v.at})
}

// enlarge decodes a column again, after the kernels have found how many bytes its values have. It returns the memory
// for them, which must live until the column is complete. It waits for the decoding.
func (w *decoding) enlarge(c pageColumn) (room *gpu.Buffer, err error) {
	b, before := &w.batch, addr(w.work)+uint64(w.table.before)
	first := int32(len(b.dictionaries))
	var list []pageConversion // of the column, which follow each other
	at := before + b.conversions.at
	for _, x := range b.conversions.list {
		if x.page < first+int32(c.from) {
			at += uint64(unsafe.Sizeof(x))
		} else if x.page < first+int32(c.to) {
			list = append(list, x)
		}
	}
	found := make([]pageConversion, len(list))
	to := gpu.BytesOf(found)
	if err := w.d.ctx.do(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(to))), uintptr(at),
		uintptr(len(to)), uintptr(w.d.decode)); err != nil {
		return nil, err // otherwise the bytes have arrived, since they are pageable
	}
	var grown []int
	need := int64(0)
	for i, x := range found {
		if x.capacity > list[i].capacity {
			grown = append(grown, i)
			list[i].bytes, list[i].capacity = uint64(need), x.capacity
			need += (x.capacity + 2*pageSlack - 1) / pageSlack * pageSlack
		}
	}
	if need == 0 || need > 2*math.MaxInt32 {
		w.read[c.own].bad = 1 // no column of a stride has so many bytes
		return nil, nil
	}
	if room, err = w.lease.AllocFrom(streamPool{w.d.pool, w.d.decode}, need); err != nil {
		return nil, err
	}
	for _, i := range grown {
		list[i].bytes += addr(room)
	}
	args := pagesArgs{pages: before + w.table.pages, columns: before + w.table.columns, status: before + w.table.status,
		first: first + int32(c.from)}
	w.do(func() error {
		w.begin, err = w.d.record(w.d.decode)
		return err
	})
	from := gpu.BytesOf(list)
	w.do(func() error { // the bytes are pageable, so the driver has read them when the call returns
		return w.d.ctx.do(cuMemcpyHtoDAsync, uintptr(at), uintptr(unsafe.Pointer(unsafe.SliceData(from))),
			uintptr(len(from)), uintptr(w.d.decode))
	})
	w.do(func() error {
		return w.d.ctx.do(cuMemsetD8Async, uintptr(args.status)+unsafe.Sizeof(pageStatus{})*uintptr(c.own), 0,
			unsafe.Sizeof(pageStatus{}), uintptr(w.d.decode))
	})
	launchPages(w, "pages_convert", len(list), pageThreads, convertArgs{pages: args.pages, columns: args.columns,
		status: args.status, list: at})
	var group pageGroup[pagesArgs]
	group.add(args, c.to-c.from)
	group.launch(w, "pages_decode", pageThreads)
	w.readStatus()
	w.do(w.wait)
	if w.err != nil {
		room.Release()
		return nil, w.err
	}
	return room, nil
}
