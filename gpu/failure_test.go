package gpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLimitsOfColumnsAreErrLimits(t *testing.T) {
	for want, err := range map[string]error{
		"a column of 3 rows holds at least 2147483648 bytes of text": TooManyBytes(1<<31, 3),
		"2147483648 rows are more than the 2147483646":               TooManyRows(1 << 31),
	} {
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, Failed("gather: %w", err), ErrLimit)
	}
}
