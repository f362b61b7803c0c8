package word

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeysOfAPartitionAreSpreadOverATable counts keys by places of a table, where 32 are expected in each. With one
// constant for both there were up to eight times as many.
func TestKeysOfAPartitionAreSpreadOverATable(t *testing.T) {
	before := TableSeed
	defer func() { TableSeed = before }()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		seed := rnd.Uint64()
		TableSeed = rnd.Uint64()
		var keys []uint64
		for x := range uint64(1_000_000) {
			if Mix(x, seed)>>56 == 77 {
				keys = append(keys, x)
			}
		}
		places := make([]float64, len(keys)/32)
		for _, k := range keys {
			at, _ := bits.Mul64(TableMix(k), uint64(len(places)))
			places[at]++
		}
		met := 0.0 // keys in the place of a key, on average
		for _, n := range places {
			met += n * n / float64(len(keys))
		}
		require.Less(t, met, 1.5*32, "seeds %x and %x", seed, TableSeed)
	}
}
