package eval

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

var oneCore = parallel.Cores{Threads: 1}

// TestALongProgramTakesTheMemoryOfItsLiveRegisters evaluates programs of thousands of registers, of
// which few are needed at a time, with the memory for some dozens.
func TestALongProgramTakesTheMemoryOfItsLiveRegisters(t *testing.T) {
	const n, terms = 5000, 3000
	integer, boolean := gpu.Of(gpu.Int64), gpu.Of(gpu.Bool)
	values := make([]gpu.Scalar, n)
	for i := range values {
		values[i] = gpu.IntScalar(integer, int64(i))
	}
	in := gpu.ColumnOf(integer, values)
	conjuncts := &gpu.Program{Inputs: []gpu.Type{integer}}
	emit := func(p *gpu.Program, in gpu.Instr) int {
		in.Mask = -1
		p.Code = append(p.Code, in)
		return len(p.Inputs) + len(p.Code) - 1
	}
	var all []int
	for k := range terms {
		c := emit(conjuncts, gpu.Instr{Op: gpu.OpConst, Type: integer, Value: gpu.IntScalar(integer, int64(k))})
		sum := emit(conjuncts, gpu.Instr{Op: gpu.OpAdd, Type: integer, Args: []int{0, c}})
		all = append(all, emit(conjuncts, gpu.Instr{Op: gpu.OpNe, Type: boolean, Args: []int{sum, c}}))
	}
	conjuncts.Outputs = []int{emit(conjuncts, gpu.Instr{Op: gpu.OpAnd, Type: boolean, Args: all})}
	chain := &gpu.Program{Inputs: []gpu.Type{integer}}
	last := 0
	for range terms {
		c := emit(chain, gpu.Instr{Op: gpu.OpConst, Type: integer, Value: gpu.IntScalar(integer, 2)})
		last = emit(chain, gpu.Instr{Op: gpu.OpAdd, Type: integer, Args: []int{last, c}})
	}
	chain.Outputs = []int{last}
	l := memory.HeapLease("test", 2<<20)
	out, err := Run(oneCore, l, conjuncts, []gpu.Column{in}, n)
	require.NoError(t, err)
	for i := range n {
		require.Equal(t, i != 0, out[0].ScalarAt(i).Int.Lo == 1)
	}
	gpu.ReleaseColumns(out)
	out, err = Run(oneCore, l, chain, []gpu.Column{in}, n)
	require.NoError(t, err)
	require.EqualValues(t, 4321+2*terms, gpu.Values[int64](out[0].Data, n)[4321])
	gpu.ReleaseColumns(out)
	require.NoError(t, l.Close())
}

// TestRegistersThatShareMemoryKeepTheirValues evaluates random programs with the memory of dead
// registers used again, and without.
func TestRegistersThatShareMemoryKeepTheirValues(t *testing.T) {
	defer func(n int) { reuseAbove = n }(reuseAbove)
	const n = 2*batchRows + 100
	kinds := []gpu.Type{gpu.Of(gpu.Int64), gpu.Of(gpu.Float64), gpu.Of(gpu.Bool), gpu.Of(gpu.String)}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		var in []gpu.Column
		p := &gpu.Program{}
		by := map[gpu.Kind][]int{} // registers
		for _, k := range kinds {
			values := make([]gpu.Scalar, n)
			for i := range values {
				values[i] = randomScalar(r, k)
			}
			in = append(in, gpu.ColumnOf(k, values))
			by[k.Kind] = append(by[k.Kind], len(p.Inputs))
			p.Inputs = append(p.Inputs, k)
		}
		pick := func(k gpu.Kind) int { return by[k][r.IntN(len(by[k]))] }
		for range 60 {
			k := kinds[r.IntN(len(kinds))]
			s := gpu.Instr{Type: k, Mask: -1, Text: "test"}
			switch op := r.IntN(5); {
			case op == 0:
				s.Op, s.Value = gpu.OpConst, randomScalar(r, k)
			case op == 1:
				s.Op, s.Args = gpu.OpSelect, []int{pick(gpu.Bool), pick(k.Kind), pick(k.Kind)}
			case k.Kind == gpu.Int64 && op == 2:
				s.Op, s.Args = gpu.OpLength, []int{pick(gpu.String)}
			case k.Kind == gpu.Int64:
				s.Op, s.Args = gpu.OpBitXor, []int{pick(gpu.Int64), pick(gpu.Int64)}
			case k.Kind == gpu.Float64 && op == 2:
				s.Op, s.Args = gpu.OpCast, []int{pick(gpu.Int64)}
			case k.Kind == gpu.Float64:
				s.Op, s.Args = gpu.OpSub, []int{pick(gpu.Float64), pick(gpu.Float64)}
			case k.Kind == gpu.Bool && op == 2:
				s.Op, s.Args = gpu.OpIsNull, []int{pick(gpu.String)}
			case k.Kind == gpu.Bool && op == 3:
				s.Op, s.Args = gpu.OpLt, []int{pick(gpu.Int64), pick(gpu.Int64)}
			case k.Kind == gpu.Bool:
				s.Op, s.Args = gpu.OpOr, []int{pick(gpu.Bool), pick(gpu.Bool), pick(gpu.Bool)}
			case op == 2:
				s.Op, s.Args = gpu.OpReverse, []int{pick(gpu.String)}
			default:
				s.Op, s.Args = gpu.OpUpper, []int{pick(gpu.String)}
			}
			by[k.Kind] = append(by[k.Kind], len(p.Inputs)+len(p.Code))
			p.Code = append(p.Code, s)
		}
		for _, k := range kinds {
			p.Outputs = append(p.Outputs, pick(k.Kind), by[k.Kind][len(by[k.Kind])-1])
		}
		var results [2][]gpu.Column
		for i, above := range []int{0, 1 << 20} {
			reuseAbove = above
			var err error
			results[i], err = Run(oneCore, memory.HeapLease("test", 0), p, in, n)
			require.NoError(t, err)
		}
		for i := range p.Outputs {
			for row := range n {
				if got, want := results[0][i].ScalarAt(row),
					results[1][i].ScalarAt(row); got.String() != want.String() {
					require.Equal(t, want, got, fmt.Sprintf("seed %d, output %d, row %d", seed, i, row))
				}
			}
		}
	}
}

func randomScalar(r *rand.Rand, t gpu.Type) gpu.Scalar {
	if r.IntN(5) == 0 {
		return gpu.Scalar{Type: t}
	}
	switch t.Kind {
	case gpu.Float64:
		return gpu.Scalar{Type: t, Valid: true, Float: float64(r.IntN(1000))}
	case gpu.Bool:
		return gpu.BoolScalar(r.IntN(2) == 0)
	case gpu.String:
		return gpu.Scalar{Type: t, Valid: true, Str: fmt.Sprint(r.IntN(1000))}
	}
	return gpu.IntScalar(t, int64(r.IntN(1000)))
}
