package gputest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// FreeAddress returns an address on which nobody listens. Its port is below those that systems give to connections, so
// it stays free.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		address := fmt.Sprint("localhost:", 20000+rand.IntN(10000))
		if l, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, l.Close())
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
