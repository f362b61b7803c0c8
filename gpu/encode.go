package gpu

import "fmt"

// Chunk is a column chunk of a Parquet file that a device encodes, from the columns of one or more strides.
type Chunk struct {
	Parts []Rows // in order
	// Width is the number of bytes of a PLAIN value: 4 or 8, 16 for decimals and binaries of that length, the highest
	// byte first, or 0 for booleans and other strings. Scale is what values are multiplied by.
	Width int
	Scale int64
	// Nullable says that pages have definition levels. A null in another chunk is not Able.
	Nullable bool
	// Dictionary says that values may be codes of a dictionary, if that pays off. Delta says that integers may be
	// packed differences, if those are smaller. Split says that floats, unless they are codes, are streams of bytes:
	// the lowest bytes of all values of a page, then their second bytes, and so on.
	Dictionary, Delta, Split bool
	PageRows                 int // the rows of a page; of strings, if they are codes of a dictionary
	// Strings that are not codes are in pages of at most so many rows, and so many bytes unless one value has more.
	PlainRows, PlainBytes int
	Codec                 PageCodec
	// Head returns the bytes that the file has before a page.
	Head func(p EncodedPage) ([]byte, error)
	// Filter, when set, asks for a Bloom filter after the pages. It returns the bytes that the file has before a filter
	// of some values that differ, and the size of the filter.
	Filter func(distinct int64) (head []byte, size int, err error)
}

// Rows are rows of a column.
type Rows struct {
	Column   Column
	From, To int
}

// Len returns the number of rows of the chunk.
func (c *Chunk) Len() (n int) {
	for _, p := range c.Parts {
		n += p.To - p.From
	}
	return n
}

// Encodes reports whether devices with the capability EncodePages encode values of a type.
func Encodes(t Type) bool {
	switch t.Kind {
	case Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, Date, Time, Timestamp,
		Decimal, String, Binary:
		return true
	}
	return false
}

// EncodedChunk is a column chunk as it is in a file.
type EncodedChunk struct {
	// Data is host memory with the pages, the dictionary first, each after its head.
	Data *Buffer
	// Dictionary is nil if values are not codes.
	Dictionary *EncodedPage
	Pages      []EncodedPage
	// Filter is where the Bloom filter begins in Data, with its head; 0 for none. It goes to the end of Data.
	Filter int64
	// Unable says that the CPU must encode the chunk: a value does not fit the type of the file or a page, or is null
	// and may not be, or two strings of a dictionary have the same hash. The chunk has no pages.
	Unable bool
}

// EncodedPage is a page of an EncodedChunk.
type EncodedPage struct {
	At       int64 // position of its head in Data
	Head     int   // bytes of the head
	Size     int   // bytes of the body
	Raw      int   // bytes of the body before compression
	Checksum uint32
	Encoding PageEncoding
	Rows     int // values of a dictionary
	Nulls    int
	// Least and Most are the least and the greatest value as they are in the file, if the page is Bounded: it has
	// values, and each of them has an order.
	Bounded     bool
	Least, Most uint64
	// LeastText and MostText are the first TextBound bytes of the least and the greatest string or value of 16
	// bytes.
	LeastText, MostText []byte
}

// TextBound is the number of bytes of the bounds of strings.
const TextBound = 72

// PageEncoding is the encoding of the values of a page.
type PageEncoding uint8

// The encodings of pages.
const (
	PlainPage      PageEncoding = iota
	CodedPage                   // codes of the dictionary
	DeltaPage                   // packed differences
	SplitPage                   // streams of bytes
	DictionaryPage              // the values of a dictionary
)

// PageEncoder is a Queue of a device with the capability EncodePages.
type PageEncoder interface {
	Queue
	// EncodePages encodes column chunks by the rules of the encoder of the CPU in sink/parquet. l pays for memory
	// of the device, host for the results.
	//
	// Errors: a chunk of a type or form that Encodes does not have, memory denied.
	//
	// Cost: a few passes over the values, and the encoded bytes cross the link. It waits for the sizes of pages, and
	// for the copies.
	EncodePages(l, host *Lease, chunks []Chunk) ([]EncodedChunk, error)
}

// Check verifies that a device may encode the chunk.
func (c *Chunk) Check() error {
	var t Type
	if len(c.Parts) > 0 {
		t = c.Parts[0].Column.Type
	}
	if t.IsVar() && c.Width == 0 && (c.PlainRows < 1 || c.PlainBytes < 1) {
		return fmt.Errorf("encode strings in pages of %d rows and %d bytes", c.PlainRows, c.PlainBytes)
	}
	if !c.hasWidth(t) || c.Scale < 1 || c.PageRows < 1 || len(c.Parts) == 0 ||
		t.Kind == Bool && (c.Dictionary || c.Filter != nil) || c.Split && !t.IsFloat() {
		return fmt.Errorf("encode a chunk of %d parts, type %v, width %d, scale %d, pages of %d rows, dictionary %v, "+
			"split %v", len(c.Parts), t, c.Width, c.Scale, c.PageRows, c.Dictionary, c.Split)
	}
	for _, p := range c.Parts {
		if d := p.Column; !Encodes(t) || d.Type != t || d.Dict != nil && !t.IsVar() || d.CodeWidth != 0 ||
			d.Pages != nil {
			return fmt.Errorf("encode a column of type %v among %v, dictionary %v", d.Type, t, d.Dict != nil)
		}
		if p.From < 0 || p.From > p.To || p.To > p.Column.Len {
			return fmt.Errorf("encode rows [%d, %d) of a column of %d", p.From, p.To, p.Column.Len)
		}
	}
	if n := c.Len(); n < 1 || n > MaxRows {
		return fmt.Errorf("encode a chunk of %d rows", n)
	}
	return nil
}

// hasWidth reports whether values of a type may have the chunk's width in the file.
func (c *Chunk) hasWidth(t Type) bool {
	switch {
	case t.Kind == Bool:
		return c.Width == 0
	case t.IsVar():
		return c.Width == 0 || c.Width == 16
	}
	return c.Width == 4 || c.Width == 8 || c.Width == 16 && t.Kind == Decimal
}
