package arrow

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// zstdDecoder decompresses buffers of any number of goroutines.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
})

var lz4Readers = sync.Pool{New: func() any { return lz4.NewReader(nil) }}

const (
	// lz4Most is the most bytes that a byte of LZ4 decompresses to, and zstdMost that of ZSTD: a block of 128 KiB takes
	// 4 bytes.
	lz4Most, zstdMost = 255, 32 << 10
	// slack is what buffers may have in addition.
	slack = 1 << 17
)

// decompress returns n bytes of a buffer, for which it pays first.
func decompress(codec int, b []byte, n int64, pay func(int64) error) ([]byte, error) {
	most := int64(lz4Most)
	if codec == codecZSTD {
		most = zstdMost
	}
	if n < 0 || n > slack+most*int64(len(b)) {
		return nil, badf("a buffer of %d bytes cannot have %d when it is decompressed", len(b), n)
	}
	if err := pay(n); err != nil {
		return nil, err
	}
	out := make([]byte, n)
	if codec == codecZSTD {
		d, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		got, err := d.DecodeAll(b, out[:0:n])
		if err == nil && int64(len(got)) != n {
			err = errors.New("it has another length than it says")
		}
		if err != nil {
			return nil, badf("a buffer with ZSTD is damaged: %v", err)
		}
		return got, nil
	}
	r := lz4Readers.Get().(*lz4.Reader)
	defer lz4Readers.Put(r)
	r.Reset(bytes.NewReader(b))
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, badf("a buffer with LZ4 is damaged: %v", err)
	}
	return out, nil
}
