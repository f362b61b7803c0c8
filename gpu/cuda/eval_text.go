package cuda

import (
	"encoding/binary"
	"math"
	"math/big"
	"sync"
	"unicode"

	"github.com/gstream/gstream/gpu"
)

// evalScanTile is the values of a tile of the scan in eval_strings.cu.
const evalScanTile = evalThreads * 8

// evalScan is ScanArgs of eval_strings.cu.
type evalScan struct {
	at, tiles uint64
	n         int64
}

// positions replaces the sizes of n strings by their start offsets in 64 bits, followed
// by the total. It returns the total.
func (e *evaluation) positions(at *gpu.Buffer) int64 {
	tiles := blocks(e.n+1, evalScanTile)
	sums := e.alloc(int64(tiles) * 8)
	a := evalScan{at: addr(at), tiles: addr(sums), n: int64(e.n)}
	launch(e.op, "eval_scan_sums", tiles, evalThreads, 0, a)
	launch(e.op, "eval_scan_tiles", 1, evalThreads, 0, evalScan{tiles: addr(sums), n: int64(tiles)})
	launch(e.op, "eval_scan_apply", tiles, evalThreads, 0, a)
	var total [1]int64
	e.read(at, int64(e.n)*8, gpu.BytesOf(total[:]))
	e.free(sums)
	return total[0]
}

// makeTexts runs a kernel that makes strings twice: for the sizes, then for the bytes.
func (e *evaluation) makeTexts(kernel string, out register, a evalArgs) register {
	at := e.alloc(int64(e.n+1) * 8)
	a.at = addr(at)
	count := a
	count.out, count.nulls = 0, 0
	e.rows(kernel, count)
	bytes := e.alloc(e.positions(at))
	a.bytes = addr(bytes)
	e.rows(kernel, a)
	e.free(at)
	if bytes != nil {
		out.viewed = append(out.viewed, bytes)
	}
	return out
}

// joinTexts returns the bytes and offsets of a register of strings as a column.
func (e *evaluation) joinTexts(v *register) (data, offsets *gpu.Buffer) {
	at := e.alloc(int64(e.n+1) * 8)
	a := evalArgs{x: v.operand(), valid: addr(v.valid), at: addr(at), n: int64(e.n)}
	e.rows("eval_text_sizes", a)
	total := e.positions(at)
	if total > math.MaxInt32 {
		e.fail(gpu.TooManyBytes(total, e.n))
		return nil, nil
	}
	data, offsets = e.alloc(total), e.alloc(int64(e.n+1)*4)
	a.bytes, a.out = addr(data), addr(offsets)
	launch(e.op, "eval_text_copy", blocks(e.n+1, evalThreads), evalThreads, 0, a)
	e.free(at)
	return data, offsets
}

// upload copies a small table of the program to the device.
func (e *evaluation) upload(table []byte) *gpu.Buffer {
	b := e.alloc(int64(len(table)))
	e.write(b, 0, table)
	return b
}

// caseTableSize is the number of entries of a table of upper or lower case. Code points
// above have no case.
var caseTableSize = int(unicode.CaseRanges[len(unicode.CaseRanges)-1].Hi) + 1

// accentTableSize is the number of entries of the table of OpStripAccents: the last mark is
// U+E01EF.
const accentTableSize = 0xe01f0

var accentTable = sync.OnceValue(func() []byte { return mapTable(accentTableSize, gpu.WithoutAccent) })

// mapTable returns the table of to over code points; -1 means that a code point is dropped.
func mapTable(size int, to func(rune) rune) []byte {
	table := make([]int32, size)
	for r := range table {
		table[r] = to(rune(r))
	}
	return gpu.BytesOf(table)
}

func caseTable(to func(rune) rune) []byte { return mapTable(caseTableSize, to) }

func (e *evaluation) lowerCase() uint64 {
	return e.table("lower case", func() []byte { return caseTable(unicode.ToLower) })
}

func (e *evaluation) upperCase() uint64 {
	return e.table("upper case", func() []byte { return caseTable(gpu.Upper) })
}

// The range of the powers of ten in the table of eval_float.cuh.
const (
	minPower10 = -342
	maxPower10 = 324
)

// powersOf10 has the leading 128 bits of each power of ten, the upper word first.
var powersOf10 = sync.OnceValue(func() []byte {
	var table []byte
	for k := minPower10; k <= maxPower10; k++ {
		hi, lo := leadingBits(k)
		table = binary.LittleEndian.AppendUint64(table, hi)
		table = binary.LittleEndian.AppendUint64(table, lo)
	}
	return table
})

// leadingBits returns the first 128 bits of 10^k, truncated.
func leadingBits(k int) (hi, lo uint64) {
	m := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(k, -k))), nil)
	if k < 0 {
		m.Quo(new(big.Int).Lsh(big.NewInt(1), uint(m.BitLen()+128)), m)
	}
	if cut := m.BitLen() - 128; cut > 0 {
		m.Rsh(m, uint(cut))
	} else {
		m.Lsh(m, uint(-cut))
	}
	return new(big.Int).Rsh(m, 64).Uint64(), new(big.Int).And(m, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}

func (e *evaluation) powers() uint64 { return e.table("powers of ten", powersOf10) }
