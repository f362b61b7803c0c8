package cuda

import "github.com/gstream/gstream/gpu"

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
// they have more, the CPU decodes the column.
const prefixedBytes = 4

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
	x.bytes = b.reserve(x.capacity)
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
