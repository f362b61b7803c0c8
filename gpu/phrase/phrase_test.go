package phrase

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSomeNamesTheFirstOfMany(t *testing.T) {
	require.Equal(t, "", Some(nil, 2, ", "))
	require.Equal(t, "a, b", Some([]string{"a", "b"}, 2, ", "))
	require.Equal(t, "a, b and 1 more", Some([]string{"a", "b", "c"}, 2, ", "))
}
