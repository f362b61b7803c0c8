package gpu

// ZstdBlock is a block of a page that is compressed with ZSTD, as the headers of frames and blocks describe it. So
// a device can decode the blocks of a page at the same time. Positions count from the first byte of the body of the
// page, blocks from the first one of the page. A block without compression has only literals.
type ZstdBlock struct {
	First     bool // of a frame
	Window    int  // of the frame: the largest distance of a copy
	Content   int  // of the first block of a frame: the bytes of output of the frame, or -1
	Check     int  // of the first block of a frame: the position of the checksum of its output, or -1
	Kind      ZstdLiterals
	At, Size  int    // position and number of the bytes of literals, of Compressed ones with their tree
	Raw       int    // number of literals
	Streams   bool   // Compressed and Treeless literals are in four streams
	Tree      int    // the block that has their tree
	Sequences int    // number of sequences
	From, To  int    // the bytes of sequences, after their number
	Tables    [3]int // the blocks that have the tables of literal lengths, offsets and match lengths
}

// ZstdLiterals says how the literals of a block are stored.
type ZstdLiterals uint8

// The kinds of literals, with the numbers of the format.
const (
	ZstdRaw ZstdLiterals = iota
	ZstdRepeated
	ZstdCompressed
	ZstdTreeless
)
