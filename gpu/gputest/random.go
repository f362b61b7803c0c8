package gputest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seed returns the seed of a test's random data and prints it: a new one each time, or
// GSTREAM_SEED to draw the same data again. A test of many cases uses Seed for the first
// case, and the numbers after it for the others.
func Seed(t testing.TB) uint64 {
	t.Helper()
	return SeedOr(t, uint64(rand.Uint32())) // short enough to type
}

// SeedOr is Seed with a seed of the caller's instead of a new one. It is for comparisons
// with a program that has differences of its own.
func SeedOr(t testing.TB, seed uint64) uint64 {
	t.Helper()
	if text := os.Getenv("GSTREAM_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "GSTREAM_SEED is a number")
	}
	t.Logf("GSTREAM_SEED=%d", seed)
	return seed
}

// SkipWithRaceDetector skips a test that has one goroutine, or whose goroutines other tests have too, and that takes
// minutes under the race detector.
func SkipWithRaceDetector(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("the race detector finds no more in it, and makes it slow")
	}
}

// ThinOr returns how thin a suite is: GSTREAM_THIN, or thin. The checks of a commit run all cases.
func ThinOr(t testing.TB, thin int) int {
	t.Helper()
	return numberOr(t, "GSTREAM_THIN", thin)
}

// Takes reports whether a suite that is thin runs its case i: one in thin, or all if thin is at most 1. The first one
// is GSTREAM_FIRST, or the second case.
func Takes(thin, i int) bool { return thin <= 1 || i%thin == first%thin }

// first is GSTREAM_FIRST. What is no number is none.
var first = func() int {
	n, err := strconv.ParseUint(os.Getenv("GSTREAM_FIRST"), 10, 16)
	if err != nil {
		return 1
	}
	return int(n)
}()

// Cases returns how many random cases a test tries: n, or GSTREAM_CASES.
func Cases(t testing.TB, n int) int {
	t.Helper()
	return numberOr(t, "GSTREAM_CASES", n)
}

// numberOr returns a number that the environment has under a name, or n.
func numberOr(t testing.TB, name string, n int) int {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, "%s is a number", name)
	}
	return n
}
