package bench

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
)

const (
	// keyFactor turns numbers into keys, keyInverse turns keys into numbers: their product is 1.
	keyFactor, keyInverse = 0x9e3779b97f4a7c15, 0xf1de83e19937733d
)

// spillCheck compares a result in host memory, stride by stride, with the correct one. It ignores
// strings.
type spillCheck struct {
	*spilling
	last int64  // key of the strides so far
	rows int    // so far
	sum  uint64 // of numbers that must be 0, 1, … once each: the probe rows, or the numbers of keys
	bad  sync.Once
	err  error // of the first wrong row
}

// stride checks the rows of a stride. One goroutine calls it.
func (k *spillCheck) stride(st *gpu.Stride) {
	fields := len(k.of.schema().Fields)
	payloads := max(1, k.of.payloads)
	column := func(i int) []uint64 { return gpu.Values[uint64](st.Cols[i].Data, st.Rows) }
	keys := column(0)
	var sum atomic.Uint64
	parallel(st.Rows, func(from, to int) {
		part := uint64(0)
		for r := from; r < to; r++ {
			number := keys[r] * keyInverse
			right := true
			switch k.of.family {
			case "groupby":
				v := gpu.Values[uint64](st.Cols[1].Data, 2*st.Rows)[2*r:]
				right = v[0] == uint64(k.spilling.rows-1) && v[1] == 0
				part += number
			case "sort":
				before := k.last
				if r > 0 {
					before = int64(keys[r-1])
				}
				right = column(1)[r] == number && (before <= int64(keys[r]) || k.rows+r == 0)
				part += number
			default:
				row := column(1)[r]
				if right = row < uint64(k.spilling.rows); right {
					step := uint64(k.inputs[1][0].Rows)
					in := k.inputs[1][row/step]
					right = gpu.Values[uint64](in.Cols[0].Data, in.Rows)[row%step] == keys[r]
				}
				for i := range payloads {
					right = right && column(1 + i)[r] == row+uint64(i) && column(fields + i)[r] == number+uint64(i)
				}
				part += row
			}
			if !right {
				k.bad.Do(func() {
					k.err = fmt.Errorf("%w: row %d of the result, with the key of number %d and %d as the next value",
						ErrWrong, k.rows+r, number, column(1)[r])
				})
				break
			}
		}
		sum.Add(part)
	})
	if st.Rows > 0 {
		k.last = int64(keys[st.Rows-1])
	}
	k.sum += sum.Load()
	k.rows += st.Rows
}

// end returns an error if the result is wrong.
func (k *spillCheck) end() error {
	n := uint64(k.spilling.rows)
	if want := n * (n - 1) / 2; k.err == nil && k.sum != want {
		return fmt.Errorf("%w: the rows are not those of the inputs: their numbers add up to %d, want %d", ErrWrong,
			k.sum, want)
	}
	return k.err
}
