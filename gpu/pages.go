package gpu

import "fmt"

// Pages describes a column in the encoding of a Parquet file: the Data of the column has the bytes of its pages, in
// host memory. Scans make such columns for devices with the capability DecodePages. Queue.Upload turns them into
// ordinary ones; no other primitive accepts them. If the column has a Dict, all pages are coded, and the column keeps
// their codes, which count through the dictionaries of all row groups.
type Pages struct {
	// Dictionaries are the dictionary pages that data pages refer to. A column with a Dict needs none.
	Dictionaries []Page
	// Data are the pages with the rows of the column, in order.
	Data []Page
	// Zstd are the blocks of all pages with PageZstd, in the order of the pages.
	Zstd []ZstdBlock
	// Form says how values are stored.
	Form StoredForm
	// Stored is the number of bytes of a value; 0 for booleans, and for strings and decimals of any length, which
	// follow their length if they are PLAIN. Values of StoredValues have 4 or 8 bytes.
	Stored int
	// Digits is the most digits of a decimal of StoredBigEndian.
	Digits int
	// Least and Most bound the values of a column of integers, before they are multiplied. A value outside is bad data.
	Least, Most int64
	// Factor is what integers of StoredScaled are multiplied by.
	Factor int64
	// Unsigned says that integers of StoredScaled and StoredWhole have no sign.
	Unsigned bool
	// Optional says that pages may have nulls.
	Optional bool
	// Decode decodes the column on the CPU, from the file; the lease of the scan pays. A device calls it if it finds
	// bad data, so that the error is the same on all devices, and names the place. reason is for the report of the
	// scan: why the device did not decode the column, in words of a user.
	Decode func(reason string) (Column, error)
}

// Page is a page of a column chunk, without its header.
type Page struct {
	At   int64 // position in the Data of the column
	Size int   // number of bytes there
	// Levels is the number of bytes of definition levels before the values, which are never compressed. In a page of
	// version 1 they are part of the body, and Levels is LevelsInBody.
	Levels     int
	Raw        int       // bytes of the body, which is the page without its levels, after decompression
	Codec      PageCodec // of the body
	ZstdFrom   int       // of a page with PageZstd: its blocks are [ZstdFrom, ZstdTo) of Zstd
	ZstdTo     int
	Coded      bool           // values are codes of the dictionary
	Encoding   StoredEncoding // of values that are not codes
	Dictionary int            // the position of the page's dictionary in Dictionaries
	Base       int            // of a column with a Dict: what is added to codes
	Entries    int            // of a coded page: the number of values in its dictionary
	Values     int            // number of values, with nulls
	Skip, Rows int            // the column has rows [Skip, Skip+Rows) of the page
}

// LevelsInBody is the number of bytes of levels of a page that has them in its body, after their length.
const LevelsInBody = -1

// PageCodec is the compression of a page.
type PageCodec uint8

// The codecs of pages.
const (
	PageUncompressed PageCodec = iota
	PageSnappy
	PageZstd
	PageLZ4
	PageHadoopLZ4 // Hadoop's frames, or LZ4 without them
	PageGzip
)

// StoredEncoding is the encoding of values that are not codes.
type StoredEncoding int32

// The encodings of pages.
const (
	StoredPlain StoredEncoding = iota
	StoredDelta
	StoredDeltaLength
	StoredDeltaBytes
	StoredStreamSplit
	StoredRuns // booleans
)

// StoredForm is how the values of a column in pages become values of its type.
type StoredForm int32

// The forms of stored values.
const (
	StoredValues    StoredForm = iota // values of the type; integers within bounds become wider or narrower
	StoredBigEndian                   // decimals in two's complement
	StoredInt96                       // nanoseconds of the day and the Julian day become microseconds since 1970
	StoredHalf                        // floats of 2 bytes
	StoredBits                        // booleans
	StoredBytes                       // strings of Stored bytes
	StoredScaled                      // integers become wider and are multiplied
	StoredWhole                       // integers become floats
	StoredSingle                      // floats of 4 bytes become floats of 8
)

// DecodePages decodes the columns of a stride that are in pages on the CPU (Pages.Decode), for a reason. After an error
// the stride is unchanged.
func (s *Stride) DecodePages(reason string) error {
	cols := make([]Column, len(s.Cols))
	for i, c := range s.Cols {
		if c.Pages == nil {
			cols[i] = c.Retain()
			continue
		}
		var err error
		if cols[i], err = c.Pages.Decode(reason); err != nil {
			ReleaseColumns(cols[:i])
			return err
		}
	}
	ReleaseColumns(s.Cols)
	s.Cols = cols
	return nil
}

// UploadedBytes returns about the bytes that the stride takes on a device, until its pages are decoded there.
func (s *Stride) UploadedBytes() int64 {
	n := s.Bytes()
	for _, c := range s.Cols {
		if c.Pages == nil {
			continue
		}
		n += int64(c.Len) * int64(max(c.Type.Width(), 12)) // strings have lengths and addresses
		for _, p := range c.Pages.Data {
			n += int64(p.Raw)
			if c.Dict == nil && c.Type.IsVar() {
				n += int64(p.Raw) // characters
			}
		}
	}
	return n
}

// HasPages reports whether a column of the stride is in pages.
func (s *Stride) HasPages() bool {
	for _, c := range s.Cols {
		if c.Pages != nil {
			return true
		}
	}
	return false
}

// check verifies that the pages are within the bytes of the column, and have all its rows.
func (p *Pages) check(c Column) error {
	rows := 0
	for _, list := range [][]Page{p.Dictionaries, p.Data} {
		for i, g := range list {
			if g.At < 0 || g.Size < 0 || g.At > c.Data.Size()-int64(g.Size) || g.Levels > g.Size || g.Raw < 0 {
				return fmt.Errorf("page %d has bytes [%d, %d) of %d", i, g.At, g.At+int64(g.Size), c.Data.Size())
			}
			if g.Skip < 0 || g.Rows < 0 || g.Skip > g.Values-g.Rows {
				return fmt.Errorf("rows [%d, %d) of page %d with %d values", g.Skip, g.Skip+g.Rows, i, g.Values)
			}
			if g.ZstdFrom < 0 || g.ZstdFrom > g.ZstdTo || g.ZstdTo > len(p.Zstd) {
				return fmt.Errorf("page %d has ZSTD blocks [%d, %d) of %d", i, g.ZstdFrom, g.ZstdTo, len(p.Zstd))
			}
			if g.Coded && c.Dict == nil && (g.Dictionary < 0 || g.Dictionary >= len(p.Dictionaries)) {
				return fmt.Errorf("page %d has dictionary %d of %d", i, g.Dictionary, len(p.Dictionaries))
			}
		}
	}
	for _, g := range p.Data {
		rows += g.Rows
	}
	if rows != c.Len {
		return fmt.Errorf("pages have %d rows, the column %d", rows, c.Len)
	}
	return nil
}
