package memory

import "github.com/gstream/gstream/gpu"

// ErrTooManyBytes is the error of a column whose strings have more bytes than its offsets can
// address.
func ErrTooManyBytes(total int64, rows int) error {
	return gpu.Exceeded("a column of %d rows holds %d bytes of text, above the limit of 2 GiB a stride: lower "+
		"the stride size", rows, total)
}
