package parquet

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// The caller provides an output buffer of the size that the page header states. A codec never
// writes or allocates more than that. A page of another size is an error.

// maxZstdWindow is the largest size of a page. A window takes no memory, because a page is decoded
// in one call and its output serves as the window.
const maxZstdWindow = 1 << 31

var (
	gzipReaders   sync.Pool // of *gzip.Reader
	brotliReaders = sync.Pool{New: func() any { return brotli.NewReader(nil) }}
	zstdDecoders  = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	}}
)

// maxExpansion bounds the number of bytes that one compressed byte can expand to, so that
// impossible sizes are rejected before memory is allocated for them. zstd and brotli reach large
// ratios on constant data, but stay below the last bound.
func maxExpansion(codec format.CompressionCodec) int {
	switch codec {
	case format.Uncompressed:
		return 1
	case format.Snappy:
		return 32
	case format.Lz4Raw, format.Lz4:
		return 256
	case format.Gzip:
		return 1100
	}
	return 1 << 17
}

// decompress fills dst from src.
func decompress(codec format.CompressionCodec, dst, src []byte) error {
	n, err := 0, error(nil)
	switch codec {
	case format.Uncompressed:
		if len(src) == len(dst) {
			copy(dst, src)
		}
		n = len(src)
	case format.Snappy:
		if n, err = snappy.DecodedLen(src); err == nil && n == len(dst) {
			_, err = snappy.Decode(dst, src)
		}
	case format.Zstd:
		d := zstdDecoders.Get().(*zstd.Decoder)
		var out []byte
		out, err = d.DecodeAll(src, dst[:0:len(dst)])
		zstdDecoders.Put(d)
		n = len(out)
	case format.Lz4Raw:
		n, err = lz4.UncompressBlock(src, dst)
	case format.Lz4:
		if n, err = hadoopLz4(src, dst); err != nil || n != len(dst) {
			// Other writers use the same codec number for a block without a frame.
			n, err = lz4.UncompressBlock(src, dst)
		}
	case format.Gzip:
		r, _ := gzipReaders.Get().(*gzip.Reader)
		if r == nil {
			r = new(gzip.Reader)
		}
		if err = r.Reset(bytes.NewReader(src)); err == nil {
			n, err = readExactly(r, dst)
		}
		gzipReaders.Put(r)
	case format.Brotli:
		r := brotliReaders.Get().(*brotli.Reader)
		if err = r.Reset(bytes.NewReader(src)); err == nil {
			n, err = readExactly(r, dst)
		}
		brotliReaders.Put(r)
	default:
		return badf("compression %v is not supported", codec)
	}
	if err != nil {
		return badf("a page of %d bytes does not decompress with %v: %v", len(src), codec, err)
	}
	if n != len(dst) {
		return badf("a page decompresses to %d bytes or more, its header says %d", n, len(dst))
	}
	return nil
}

// hadoopLz4 decompresses Hadoop's frames: the uncompressed size as a big-endian integer,
// then the blocks, each after its compressed size.
func hadoopLz4(src, dst []byte) (n int, err error) {
	size := func() (v uint64) {
		if len(src) < 4 {
			err = io.ErrUnexpectedEOF
			return 0
		}
		v = uint64(binary.BigEndian.Uint32(src))
		src = src[4:]
		return v
	}
	for len(src) > 0 {
		raw := size()
		if raw > uint64(len(dst)-n) {
			return n, lz4.ErrInvalidSourceShortBuffer
		}
		for end := n + int(raw); n < end; {
			k := size()
			if k > uint64(len(src)) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return n, err
			}
			m, err := lz4.UncompressBlock(src[:k], dst[n:end])
			if err == nil && m == 0 {
				err = lz4.ErrInvalidSourceShortBuffer
			}
			if err != nil {
				return n, err
			}
			src, n = src[k:], n+m
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readExactly reads len(dst) bytes and checks that the stream ends after them, which also
// checks the checksum.
func readExactly(r io.Reader, dst []byte) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err != nil {
		return n, err
	}
	var more [1]byte
	m, err := io.ReadFull(r, more[:])
	if err == io.EOF {
		err = nil
	}
	return n + m, err
}
