package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
)

// BenchmarkEncodePages encodes columns like those of lineitem, one at a time and with each codec, in row groups of a
// million rows: raw
// bytes per second, the file's bytes as a part of these, and how long the copy over the link alone would take. Phases
// are in milliseconds by the GPU's clock.
func BenchmarkEncodePages(b *testing.B) {
	const rows, groups = 1 << 20, 8
	if n, err := Count(""); err != nil || n == 0 {
		b.Skip("no GPU")
	}
	d, err := Open(Options{Memory: 16 << 30, HostMemory: 4 << 30})
	require.NoError(b, err)
	link, err := d.Link()
	require.NoError(b, err)
	r := rand.New(rand.NewPCG(1, 2))
	day := gpu.Of(gpu.Date)
	var words []string
	for range 1000 {
		word := make([]byte, 3+r.IntN(8))
		for k := range word {
			word[k] = "etaoinshrdlucmfwypvbgkqjxz"[r.IntN(1+r.IntN(26))]
		}
		words = append(words, string(word))
	}
	comment := func() string {
		var text strings.Builder
		for n := 10 + r.IntN(34); text.Len() < n; {
			text.WriteString(words[r.IntN(len(words))] + " ")
		}
		return text.String()
	}
	sensor := func(i int) any {
		return int64(math.Float64bits(20 + math.Sin(float64(i)/500) + 0.01*r.NormFloat64()))
	}
	for _, c := range []struct {
		name       string
		t          gpu.Type
		dictionary bool
		delta      bool
		value      func(i int) any // an int64 or a string
	}{
		{"orderkey/plain", gpu.Of(gpu.Int64), false, false, func(i int) any { return int64(i/4)*4 + int64(i/4)%4 }},
		{"orderkey/delta", gpu.Of(gpu.Int64), true, true, func(i int) any { return int64(i/4)*4 + int64(i/4)%4 }},
		{"partkey/plain", gpu.Of(gpu.Int64), false, false, func(int) any { return r.Int64N(6e6) }},
		{"partkey/delta", gpu.Of(gpu.Int64), true, true, func(int) any { return r.Int64N(6e6) }},
		{"suppkey/auto", gpu.Of(gpu.Int64), true, true, func(int) any { return r.Int64N(100e3) }},
		{"price/plain", gpu.Of(gpu.Int64), false, false, func(int) any { return 90000 + r.Int64N(1e7) }},
		{"price/delta", gpu.Of(gpu.Int64), true, true, func(int) any { return 90000 + r.Int64N(1e7) }},
		{"shipdate/auto", day, true, true, func(int) any { return 8000 + r.Int64N(2526) }},
		{"quantity/auto", gpu.Of(gpu.Int64), true, true, func(int) any { return 100 * r.Int64N(50) }},
		{"random/auto", gpu.Of(gpu.Float64), true, false, func(int) any { return int64(r.Uint64() >> 2) }},
		{"sensor/plain", gpu.Of(gpu.Float64), false, false, sensor},
		{"sensor/split", gpu.Of(gpu.Float64), false, false, sensor},
		{"comment/auto", gpu.Of(gpu.String), true, false, func(int) any { return comment() }},
		{"name/auto", gpu.Of(gpu.String), true, false, func(i int) any { return fmt.Sprintf("Customer#%09d", i) }},
		{"shipmode/auto", gpu.Of(gpu.String), true, false, func(int) any { return words[r.IntN(7)] }},
	} {
		b.Run(c.name, func(b *testing.B) {
			l, h := d.Budget().Lease("bench"), d.HostBudget().Lease("bench, host")
			q, err := d.NewQueue("bench")
			require.NoError(b, err)
			width := c.t.Width()
			data, offsets := make([]byte, 0, rows*groups*width), []int32{0}
			for i := range rows * groups {
				switch v := c.value(i).(type) {
				case int64:
					for k := range width {
						data = append(data, byte(v>>(8*k)))
					}
				case string:
					data = append(data, v...)
					offsets = append(offsets, int32(len(data)))
				}
			}
			column := gpu.Column{Type: c.t, Len: rows * groups, Data: gpu.WrapBytes(data)}
			if c.t.IsVar() {
				column.Offsets = gpu.WrapBytes(gpu.BytesOf(offsets))
			}
			schema := gpu.NewSchema(gpu.Field{Name: "c", Type: c.t})
			s, err := q.Upload(l, &gpu.Stride{Rows: rows * groups, Schema: schema,
				Cols: []gpu.Column{column}})
			require.NoError(b, err)
			for codec, name := range map[gpu.PageCodec]string{gpu.PageSnappy: "snappy", gpu.PageLZ4: "lz4",
				gpu.PageZstd: "zstd"} {
				var chunks []gpu.Chunk
				for g := range groups {
					part := gpu.Rows{Column: s.Cols[0], From: g * rows, To: (g + 1) * rows}
					chunks = append(chunks, gpu.Chunk{Parts: []gpu.Rows{part}, Width: width, Scale: 1,
						Dictionary: c.dictionary, Delta: c.delta, Split: c.name == "sensor/split",
						PageRows: 32768, PlainRows: 32768, PlainBytes: 1 << 20, Codec: codec,
						Head: func(gpu.EncodedPage) ([]byte, error) { return make([]byte, 40), nil }})
				}
				b.Run(name, func(b *testing.B) {
					encode := func() (bytes int64) {
						out, err := q.(gpu.PageEncoder).EncodePages(l, h, chunks)
						require.NoError(b, err)
						for _, e := range out {
							bytes += e.Data.Size()
							e.Data.Release()
						}
						return bytes
					}
					bytes := encode()
					d.Settle()
					began := d.Clock()
					for b.Loop() {
						encode()
					}
					b.SetBytes(int64(len(data)))
					took := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(bytes)/float64(len(data)), "size")
					b.ReportMetric(float64(bytes)/link.Down/took, "of-link")
					phases := map[string]float64{}
					for _, p := range d.Spans(l, h) {
						if p.Start >= began {
							phases[p.Name] += (p.End - p.Start).Seconds() * 1000
						}
					}
					text := ""
					for _, phase := range []string{"lengths", "values", "dictionaries", "bodies", "compression",
						"output"} {
						text += fmt.Sprintf(" %s %.2f", phase, phases["encode pages, "+phase]/float64(b.N))
					}
					b.Logf("%s, %s: %.2f ms:%s, copy down %.2f", c.name, name, 1000*took, text,
						phases["copy down"]/float64(b.N))
				})
			}
			s.Release()
			require.NoError(b, q.Close())
			require.NoError(b, l.Close())
			require.NoError(b, h.Close())
		})
	}
	require.NoError(b, d.Close())
}
