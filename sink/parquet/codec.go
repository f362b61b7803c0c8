package parquet

import (
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/compress/brotli"
	"github.com/parquet-go/parquet-go/compress/gzip"
	"github.com/parquet-go/parquet-go/compress/lz4"
	"github.com/parquet-go/parquet-go/compress/snappy"
	"github.com/parquet-go/parquet-go/compress/uncompressed"
	"github.com/parquet-go/parquet-go/compress/zstd"

	kzstd "github.com/klauspost/compress/zstd"
)

var codecNames = []string{"snappy", "zstd", "gzip", "brotli", "lz4_raw", "none"}

// codecLevels is the highest level of every codec.
var codecLevels = map[string]int{"snappy": 0, "zstd": 22, "gzip": 9, "brotli": 11, "lz4_raw": 0, "none": 0}

// codec returns the compression that the options name; they are valid.
func (o *Options) codec() compress.Codec {
	switch o.Compression {
	case "zstd":
		c := &zstd.Codec{Level: zstd.SpeedDefault}
		if o.Level > 0 {
			c.Level = kzstd.EncoderLevelFromZstd(o.Level)
		}
		return c
	case "gzip":
		c := &gzip.Codec{Level: gzip.DefaultCompression}
		if o.Level > 0 {
			c.Level = o.Level
		}
		return c
	case "brotli":
		c := &brotli.Codec{Quality: brotli.DefaultQuality, LGWin: brotli.DefaultLGWin}
		if o.Level > 0 {
			c.Quality = o.Level
		}
		return c
	case "lz4_raw":
		return &lz4.Codec{Level: lz4.Fastest}
	case "none":
		return &uncompressed.Codec{}
	}
	return &snappy.Codec{}
}
