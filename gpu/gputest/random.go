package gputest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seed returns and prints the seed of a test's random data: a new one each time, or GSTREAM_SEED to
// repeat a test. A test of many cases uses Seed for the first case, and the numbers after it for
// the others.
func Seed(t testing.TB) uint64 {
	t.Helper()
	return SeedOr(t, uint64(rand.Uint32())) // short enough to type
}

// SeedOr is Seed with the caller's seed instead of a new one. It is for comparisons with a program
// that gives other results for some data.
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

// SkipWithRaceDetector skips a test under the race detector. The test would take minutes, and the
// detector would find nothing new: the test has one goroutine, or goroutines that other tests
// cover.
func SkipWithRaceDetector(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip("the race detector finds no more in it, and makes it slow")
	}
}

// StepOr returns the divisor d of a loop over n with the step 1 + n/d: the finer one, or under the race detector, which
// is ten times slower and looks at goroutines, not at numbers, the coarser one.
func StepOr(fine, coarse int64) int64 {
	if Race {
		return coarse
	}
	return fine
}

// ThinOr returns n for a suite that runs one case in n: GSTREAM_THIN, or thin. The checks of a
// commit run all cases.
func ThinOr(t testing.TB, thin int) int {
	t.Helper()
	return numberOr(t, "GSTREAM_THIN", thin)
}

// Takes reports whether a suite runs its case i: all cases if thin is at most 1, else one in thin.
// The first of these is case GSTREAM_FIRST, or 1.
func Takes(thin, i int) bool { return thin <= 1 || i%thin == first()%thin }

// first returns GSTREAM_FIRST, or 1 if that is not a number. It is read while a test runs, so that go test runs it
// again for another value.
var first = sync.OnceValue(func() int {
	n, err := strconv.ParseUint(os.Getenv("GSTREAM_FIRST"), 10, 16)
	if err != nil {
		return 1
	}
	return int(n)
})

// Cases returns the number of random cases of a test: GSTREAM_CASES, or n.
func Cases(t testing.TB, n int) int {
	t.Helper()
	return numberOr(t, "GSTREAM_CASES", n)
}

// numberOr returns the number in an environment variable, or n if it is not set.
func numberOr(t testing.TB, name string, n int) int {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, "%s is a number", name)
	}
	return n
}
