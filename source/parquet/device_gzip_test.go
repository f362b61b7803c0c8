package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/host/hosttest"
	"github.com/gstream/gstream/source"
)

// deflater writes blocks of RFC 1951, also wrong ones.
type deflater struct {
	b []byte
	n int // bits
}

// bits writes the lowest n bits of v, the lowest one first.
func (d *deflater) bits(v, n int) *deflater {
	for i := range n {
		if d.n%8 == 0 {
			d.b = append(d.b, 0)
		}
		d.b[d.n/8] |= byte(v>>i&1) << (d.n % 8)
		d.n++
	}
	return d
}

// code writes a Huffman code.
func (d *deflater) code(v, n int) *deflater {
	for i := n - 1; i >= 0; i-- {
		d.bits(v>>i, 1)
	}
	return d
}

// fixed begins the last block, which has no codes. literal and match write its symbols.
func fixed() *deflater { return new(deflater).bits(1, 1).bits(1, 2) }

func (d *deflater) literal(v int) *deflater {
	switch {
	case v < 144:
		return d.code(0x30+v, 8)
	case v < 256:
		return d.code(0x190+v-144, 9)
	case v < 280:
		return d.code(v-256, 7)
	}
	return d.code(0xc0+v-280, 8)
}

func (d *deflater) end() []byte { return d.literal(256).b }

// dynamic begins the last block, with codes of as many bits. A code of n bits is that of RFC 1951.
func dynamic(literals, distances []int) *deflater {
	d := new(deflater).bits(1, 1).bits(2, 2).bits(len(literals)-257, 5).bits(len(distances)-1, 5).bits(15, 4)
	for range 3 { // 16, 17, 18
		d.bits(0, 3)
	}
	for range 16 { // 0 to 15
		d.bits(4, 3)
	}
	for _, n := range append(literals[:len(literals):len(literals)], distances...) {
		d.code(n, 4)
	}
	return d
}

// lengths returns n lengths of codes, which are 0 but for some symbols.
func lengths(n int, of map[int]int) []int {
	out := make([]int, n)
	for s, k := range of {
		out[s] = k
	}
	return out
}

// gzipMember returns a member with blocks that decompress to raw. change changes the member.
func gzipMember(raw, blocks []byte, change ...func(b []byte) []byte) []byte {
	b := append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}, blocks...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(raw))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(raw)))
	for _, f := range change {
		b = f(b)
	}
	return b
}

// withField adds a field to the header, whose flag is given.
func withField(flag byte, field string) func(b []byte) []byte {
	return func(b []byte) []byte {
		b[3] |= flag
		return append(append(bytes.Clone(b[:10]), field...), b[10:]...)
	}
}

// TestLargePagesOfGzipStayOnTheCPU reads pages of the largest size that a device decodes, and of one value more.
func TestLargePagesOfGzipStayOnTheCPU(t *testing.T) {
	for _, more := range []int{0, 8} {
		raw := make([]byte, gzipPageMost+more)
		p := v1Page(len(raw)/8, format.Plain, raw)
		p.body = compressed(t, &pq.Gzip, raw)
		table, err := Open(rawFile(t, schemaElement(format.Int64, format.Required), len(raw)/8, format.Gzip, p),
			OpenOptions{})
		require.NoError(t, err)
		lease := hosttest.Budget(t, 0).Lease("scan")
		r, err := table.Scan(t.Context(), source.ScanOptions{Columns: []int{0}, StrideRows: len(raw), Lease: lease,
			Decode: source.DecodeOptions{Pages: true}})
		require.NoError(t, err)
		s, err := r.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, more == 0, s.HasPages())
		if more > 0 {
			require.Equal(t, reasonLargeGzip, r.Progress().Columns[0].Reason)
		}
		s.Release()
		require.NoError(t, r.Close())
		require.NoError(t, lease.Close())
	}
}

func TestADeviceReadsGzipLikeTheCPU(t *testing.T) {
	if decoder(t) == nil {
		t.Skip("kernels are not seen by the race detector")
	}
	a, far := []byte("aaaaaaaa"), []byte("a"+strings.Repeat("b", 32767)+"abbbbbbb")
	repeat := fixed().literal('a').literal(261).code(0, 5).end() // a copy of 7 bytes
	small := map[int]int{'a': 1, 256: 2, 261: 2}
	two := map[int]int{'a': 2, 'b': 2, 256: 2, 261: 2}
	one := lengths(1, map[int]int{0: 1})
	coded := func(literals map[int]int, distances []int) *deflater {
		return dynamic(lengths(286, literals), distances)
	}
	farther := func(copies int) []byte { // the largest distance, after 'a', 'b' and copies of 258 bytes
		d := fixed().literal('a').literal('b')
		for range copies {
			d.literal(285).code(0, 5)
		}
		return d.literal(262).code(29, 5).bits(1<<13-1, 13).end()
	}
	long := map[int]int{256: 15, 261: 15, 'a': 1}
	for k := 2; k < 15; k++ {
		long['a'+k] = k
	}
	longDistances := lengths(30, map[int]int{0: 15, 1: 15, 29: 1})
	for k := 2; k < 15; k++ {
		longDistances[k] = k
	}
	stored := []byte{1, 8, 0, 0xf7, 0xff}
	for _, c := range []struct {
		name string
		raw  []byte
		body []byte
		ok   bool
	}{
		{"copy", a, gzipMember(a, repeat), true},
		{"copy of a single code", a,
			gzipMember(a, coded(small, one).code(0, 1).code(3, 2).code(0, 1).code(2, 2).b), true},
		{"no distances", a, gzipMember(a, coded(map[int]int{'a': 1, 256: 1}, []int{0}).code(0, 8).code(1, 1).b), true},
		{"long codes", a, gzipMember(a,
			coded(long, longDistances).code(0, 1).code(1<<15-1, 15).code(1<<15-2, 15).code(1<<15-2, 15).b), true},
		{"stored", a, gzipMember(a, append(stored, a...)), true},
		{"stored after a code", a, gzipMember(a,
			append(new(deflater).bits(2, 3).literal('a').literal(256).bits(1, 3).b, 7, 0, 0xf8, 0xff, 97, 97, 97, 97,
				97, 97, 97)), true},
		{"name of 511 bytes", a, gzipMember(a, repeat, withField(8, strings.Repeat("n", 511)+"\x00")), true},
		{"no member after it", a, gzipMember(a, repeat, func(b []byte) []byte { return append(b, 0x1f) }), false},
		{"name of 512 bytes", a, gzipMember(a, repeat, withField(8, strings.Repeat("n", 512)+"\x00")), false},
		{"name without an end", a, gzipMember(a, repeat, withField(8, "n"))[:20], false},
		{"reserved flag", a, gzipMember(a, repeat, withField(32, "")), false},
		{"checksum of the header", a, gzipMember(a, repeat, withField(2, "xx")), false},
		{"extra field behind the end", a, gzipMember(a, repeat, withField(4, "\xff\xff")), false},
		{"checksum", a, gzipMember([]byte("aaaaaaab"), repeat), false},
		{"size", a, gzipMember(a, repeat, func(b []byte) []byte { b[len(b)-4]++; return b }), false},
		{"too long", a, gzipMember([]byte("aaaaaaaaa"), fixed().literal('a').literal(262).code(0, 5).end()), false},
		{"distance 30", a, gzipMember(a, fixed().literal('a').literal(261).code(30, 5).end()), false},
		{"length 286", a, gzipMember(a, fixed().literal('a').literal(286).code(0, 5).end()), false},
		{"before the output", a, gzipMember(a, fixed().literal('a').literal(261).code(1, 5).end()), false},
		{"before the member", a, append(gzipMember(a[:1], fixed().literal('a').end()),
			gzipMember(a[:7], fixed().literal(261).code(0, 5).end())...), false},
		{"block 3", a, gzipMember(a, append(new(deflater).bits(7, 3).b, a...)), false},
		{"stored in other bytes", a, gzipMember(a, append([]byte{1, 8, 0, 0xf6, 0xff}, a...)), false},
		{"stored behind the end", a, gzipMember(a, append([]byte{1, 30, 0, 0xe1, 0xff}, a...)), false},
		{"another bit of a single code", a,
			gzipMember(a, coded(small, one).code(0, 1).code(3, 2).code(1, 1).code(2, 2).b), false},
		{"two literals of three", a, gzipMember(a, coded(map[int]int{'a': 2, 256: 2}, one).code(0, 16).code(1, 2).b),
			false},
		{"more codes than bits", a,
			gzipMember(a, coded(map[int]int{'a': 1, 256: 1, 261: 2}, one).code(0, 8).code(1, 1).b), false},
		{"two distances of four", a,
			gzipMember(a, coded(small, []int{2, 2}).code(0, 1).code(3, 2).code(0, 2).code(2, 2).b), false},
		{"three distances of one bit", a,
			gzipMember(a, coded(small, []int{1, 1, 1}).code(0, 1).code(3, 2).code(0, 1).code(2, 2).b), false},
		{"no end", a, gzipMember(a, coded(map[int]int{'a': 2, 'b': 2, 'c': 2, 261: 2}, one).code(0, 16).b), false},
		{"287 literals", a, gzipMember(a, dynamic(lengths(287, two), one).code(0, 16).code(2, 2).b), false},
		{"31 distances", a, gzipMember(a, coded(two, lengths(31, map[int]int{0: 1})).code(0, 16).code(2, 2).b), false},
		{"farthest", far, gzipMember(far, farther(127)), true},
		{"before the output of others", far[:32520], gzipMember(far[:32520], farther(126)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := decompress(format.Gzip, make([]byte, len(c.raw)), c.body)
			require.Equal(t, c.ok, err == nil, "%v", err)
			got := decompressOnDevice(t, format.Gzip, []devicePage{{body: c.body, raw: c.raw}})
			require.Equal(t, c.ok, got[0] != nil)
			if c.ok {
				require.Equal(t, c.raw, got[0])
			}
		})
	}
}
