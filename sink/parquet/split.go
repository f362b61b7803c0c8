package parquet

import (
	"time"

	"github.com/parquet-go/parquet-go/encoding/bytestreamsplit"
	"github.com/parquet-go/parquet-go/format"

	"github.com/gstream/gstream/gpu"
)

const (
	// splitRows is the number of rows of a sample, in splitRuns runs at equal distances over the row group. A page has
	// as many by default. A smaller sample misleads: ZSTD makes one code for 128 KiB, then of bytes of all streams.
	splitRows, splitRuns = 32 << 10, 4
	// splitMost is the size up to which compressed streams of bytes are chosen, as a part of the compressed values'.
	// A core reads random values, which do not compress, at 3.5 GB/s and their streams at 1.3 GB/s. So 15 % fewer bytes
	// save time from storage of up to 300 MB/s for each core that reads.
	splitMost = 0.85
)

// isFloat reports whether the values are FLOAT or DOUBLE.
func (c *column) isFloat() bool { return c.physical == format.Float || c.physical == format.Double }

// chooseSplit decides for each column of floats whether its values, where they are not codes of a dictionary, are
// written as streams of bytes (BYTE_STREAM_SPLIT). They are if that makes a sample of the first row group clearly
// smaller. The CPU compresses the sample, even if a device encodes the column, so both choose the same encodings. Write
// calls it before it queues a row group; later row groups change nothing.
//
// Cost: it compresses each sample twice, and copies those that lie in memory of a device.
func (w *Writer) chooseSplit(g *group) (err error) {
	if w.chosen || w.opt.Encoding != "auto" || w.opt.Compression == "none" {
		return nil
	}
	w.chosen = true
	e := &encoder{codec: w.opt.codec(), lease: w.opt.Lease}
	defer e.free()
	for i := range w.columns {
		c := &w.columns[i]
		if !c.isFloat() {
			continue
		}
		begin := time.Now()
		sample, err := w.sample(g, i)
		if err == nil {
			c.split, err = e.splitIsSmaller(c, sample)
		}
		releaseRanges(sample)
		if err != nil && !gpu.IsOutOfMemory(err) { // a column without memory for its sample stays PLAIN
			return ofOutput(err)
		}
		w.traced("sample "+c.field.Name, begin)
	}
	return nil
}

// sample returns splitRows rows of a column, or all of fewer, in memory of the host. The caller releases them, also
// after an error.
func (w *Writer) sample(g *group, column int) (out []rowRange, err error) {
	runs, rows := splitRuns, splitRows/splitRuns
	if g.rows <= splitRows {
		runs, rows = 1, g.rows
	}
	for k := range runs {
		from := (g.rows - rows) / max(1, runs-1) * k
		for _, r := range g.rangesOf(column, from, from+rows) {
			if isHost(r.col) {
				r.col.Retain()
			} else if r, err = w.bringRange(r); err != nil {
				return out, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// rangesOf returns rows [from, to) of a column of the row group.
func (g *group) rangesOf(column, from, to int) (out []rowRange) {
	for _, r := range g.ranges(column) {
		n := r.to - r.from
		if lo, hi := max(from, 0), min(to, n); lo < hi {
			out = append(out, rowRange{r.col, r.from + lo, r.from + hi})
		}
		from, to = from-n, to-n
	}
	return out
}

// splitIsSmaller compresses a sample as values and as streams of bytes.
func (e *encoder) splitIsSmaller(c *column, sample []rowRange) (bool, error) {
	rows := 0
	for _, r := range sample {
		rows += r.to - r.from
	}
	_, nulls, err := e.validity(sample, rows)
	if err != nil {
		return false, err
	}
	plain, err := e.denseValues(c, sample, rows-nulls)
	if err != nil {
		return false, err
	}
	if e.packedOut, err = e.codec.Encode(e.packedOut[:0], plain); err != nil {
		return false, err
	}
	values := len(e.packedOut)
	split, err := e.split(c, plain, rows-nulls)
	if err != nil {
		return false, err
	}
	e.packedOut, err = e.codec.Encode(e.packedOut[:0], split)
	return float64(len(e.packedOut)) <= splitMost*float64(values), err
}

// split writes the lowest bytes of all of n floats, then their second bytes, and so on.
func (e *encoder) split(c *column, plain []byte, n int) ([]byte, error) {
	var err error
	if c.physical == format.Float {
		e.packedRun, err = (&bytestreamsplit.Encoding{}).EncodeFloat(e.packedRun, view[float32](plain, n))
	} else {
		e.packedRun, err = (&bytestreamsplit.Encoding{}).EncodeDouble(e.packedRun, view[float64](plain, n))
	}
	return e.packedRun, err
}
