package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPeakMemoryIsThatOfTheProgramAndNotOfItsParent(t *testing.T) {
	const helper = "GSTREAM_TEST_PRINT_PEAK"
	if os.Getenv(helper) != "" {
		fmt.Println("peak:", peakRSS())
		return
	}
	held := make([]byte, 256<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	require.Greater(t, peakRSS(), int64(len(held)))
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), helper+"=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, text, found := strings.Cut(string(out), "peak: ")
	require.True(t, found, "%s", out)
	var peak int64
	_, err = fmt.Sscan(text, &peak)
	require.NoError(t, err)
	require.Positive(t, peak)
	require.Less(t, peak, int64(len(held)/2))
	held[0] = 2
}
