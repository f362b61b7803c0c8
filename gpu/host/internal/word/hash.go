package word

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

const (
	// mixA and mixB are odd constants with evenly spread bits. Any such numbers would work.
	mixA = 0x9e3779b97f4a7c15
	mixB = 0xd6e8feb86659fd93
)

// TableSeed is the seed of the hash tables of this process. No result depends on it:
// groups are numbered as they appear, and matches come in build order.
var TableSeed = rand.Uint64()

// Mix is a 64-bit finaliser: it folds the two halves of a 128-bit product.
func Mix(x, seed uint64) uint64 {
	hi, lo := bits.Mul64(x^seed, mixA)
	return hi ^ lo
}

// TableMix is Mix for hash tables, with another constant. The keys of a partition, which Queue.Hash
// selects, have similar products with the first constant: with it, keys that are close to each
// other would collide in a few slots of a table, whatever the seeds.
func TableMix(x uint64) uint64 {
	hi, lo := bits.Mul64(x^TableSeed, mixB)
	return hi ^ lo
}

// HashBytes hashes a string eight bytes at a time.
func HashBytes(b []byte, seed uint64) uint64 {
	h := uint64(len(b)) * mixA
	for len(b) >= 8 {
		h = Mix(h^binary.LittleEndian.Uint64(b), seed)
		b = b[8:]
	}
	return Mix(h^LoadShort(b), seed)
}

// LoadShort loads less than 8 bytes as a little-endian integer.
func LoadShort(b []byte) (x uint64) {
	if n := len(b); n >= 4 {
		return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[n-4:]))<<(8*(n-4))
	}
	for i, c := range b {
		x |= uint64(c) << (8 * i)
	}
	return x
}
