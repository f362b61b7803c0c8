package host

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host/internal/eval"
	"github.com/gstream/gstream/gpu/host/internal/memory"
	"github.com/gstream/gstream/gpu/host/internal/parallel"
)

// Fold evaluates a program without inputs to one value for each output. It needs no
// device: planners fold constants with it.
func Fold(p *gpu.Program) (out []gpu.Scalar, err error) {
	if len(p.Inputs) > 0 {
		return nil, fmt.Errorf("a program with %d inputs is not constant", len(p.Inputs))
	}
	cols, err := Evaluate(HeapLease("fold", 0), p, nil, 1)
	if err != nil {
		return nil, err
	}
	for _, c := range cols {
		out = append(out, c.ScalarAt(0))
	}
	return out, nil
}

// Evaluate runs a program over n rows of its inputs on one core. It needs no device.
func Evaluate(l *gpu.Lease, p *gpu.Program, in []gpu.Column, n int) ([]gpu.Column, error) {
	return (&queue{dev: &Device{cores: parallel.Cores{Threads: 1}}, name: "evaluate"}).Eval(l, p, in, n)
}

// HeapLease returns a lease of at most limit bytes of the Go heap; 0 means no limit. The garbage
// collector frees memory that is not released.
func HeapLease(name string, limit int64) *gpu.Lease { return memory.HeapLease(name, limit) }

// ParseText parses text as a value of a type, as a cast of VARCHAR does. It returns false if the text has no such
// value.
func ParseText(s string, t gpu.Type) (gpu.Scalar, bool) { return eval.ParseText(s, t) }

// ParseTime parses text in a format of strptime, as a value of a TIMESTAMP. It returns false if the text has another
// form.
func ParseTime(f *gpu.TimeFormat, s string, t gpu.Type) (int64, bool) { return eval.ParseTime(f, s, t) }
