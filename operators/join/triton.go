package join

import (
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/spill"
)

// tritonName forces the Triton join (Lutz et al., SIGMOD 2022, §5). It is the join out of core,
// from the first row on, with these differences:
//
//   - Instead of whole partitions, an evenly spread share of the strides of either side stays in
//     device memory. (The paper spreads pages of an array: gpu.Interleaver.)
//   - Rows of a key and a value of the same width, 4 or 8 bytes, are written to their partitions as
//     tuples, by the hierarchical strategy of gpu.Experimental.PartitionTuples, which is the first
//     pass. Other rows are partitioned in device memory, and leave in copies.
//
// The second pass and the join of a pair are those of PHJ-TR. During a join the rows of the next
// pairs are copied up on another queue, and results stream out.
const tritonName = "triton"

// triton is what the Triton join adds to a join out of core.
type triton struct {
	tuples bool // rows are stored as tuples
	share  float64

	placing       sync.Mutex
	placed, stays int64 // bytes of all strides so far, and of strides that stay
}

// plan returns the schemas of the partitions of the build side and of the probe side.
func (o *outOfCore) plan(t operators.Task) (build, probe *gpu.Schema) {
	o.tuples = o.Algorithm == tritonName && o.direct() && isTuple(o.Build, o.BuildKeys[0]) &&
		isTuple(o.Probe, o.ProbeKeys[0])
	if !o.tuples {
		return o.Build, o.Probe
	}
	width := o.Build.Fields[o.BuildKeys[0]].Type.Width()
	o.share = 1 // if unknown, strides move when memory runs out
	switch {
	case o.FirstPass != nil:
		o.share = 0
	case o.BuildRows > 0 && o.ProbeRows > 0:
		o.share = grant.TritonStrides.Part(float64(t.Budget())) /
			(float64(o.BuildRows+o.ProbeRows) * 2 * float64(width))
	}
	return tupleSchema(width), tupleSchema(width)
}

// tupleSchema returns the schema of tuples whose key has some bytes.
func tupleSchema(width int) *gpu.Schema {
	return gpu.NewSchema(gpu.Field{Name: "tuple", Type: gpu.TupleType(width)})
}

// isTuple reports whether rows consist of a key and a value that fit tuples.
func isTuple(s *gpu.Schema, key int) bool {
	if s.Len() != 2 {
		return false
	}
	k, v := s.Fields[key], s.Fields[1-key]
	return !k.Nullable && !v.Nullable && !v.Type.IsVar() && k.Type.Width() == v.Type.Width()
}

// digit is the digit of the keys of tuples by which they are partitioned.
func (o *outOfCore) digit(width int) gpu.Digit {
	return gpu.Digit{Shift: uint(8*width) - outBits, Bits: outBits, Factor: o.seed | 1}
}

// scatter writes the rows of a stride, which it takes over, to their partitions.
func (o *outOfCore) scatter(t operators.Task, s *gpu.Stride, key int, into *spill.Partitions) error {
	defer s.Release()
	if s.Rows == 0 {
		return nil
	}
	width := s.Cols[key].Type.Width()
	bytes := 2 * int64(width) * int64(s.Rows)
	host := into.HostLease()
	if host != nil && o.staysHere(bytes) {
		host = nil
	}
	from, q, scratch := t.Lease, t.Queue, t.Lease
	if host != nil {
		from = host
	}
	if o.FirstPass != nil {
		q, scratch = o.FirstPass, from
	}
	x, err := gpu.ExperimentalOf(q)
	if err != nil {
		return err
	}
	buf, err := from.Alloc(bytes)
	if err != nil {
		return err
	}
	to := gpu.Column{Type: gpu.TupleType(width), Len: s.Rows, Data: buf}
	offsets, err := x.PartitionTuples(scratch, to, unsigned(s.Cols[key]), s.Cols[1-key], o.digit(width),
		gpu.TuplePass{})
	if err != nil {
		to.Release()
		return err
	}
	out := &gpu.Stride{Schema: tupleSchema(width), Cols: []gpu.Column{to}, Rows: s.Rows}
	if host != nil {
		return into.AppendHost(out, 0, offsets)
	}
	return into.Append(out, 0, offsets)
}

// staysHere reports whether a stride of some bytes stays in device memory.
func (o *outOfCore) staysHere(bytes int64) bool {
	o.placing.Lock()
	defer o.placing.Unlock()
	o.placed += bytes
	if float64(o.stays+bytes) > o.share*float64(o.placed) {
		return false
	}
	o.stays += bytes
	return true
}

// inBatches is operators.InBatches for rows of partitions of a side. It turns tuples into columns.
func (o *outOfCore) inBatches(t operators.Task, of *spill.Partitions, schema *gpu.Schema,
	each func(add func(*gpu.Stride) error) error, take func(*gpu.Stride) error) error {
	key := 0
	switch {
	case !o.tuples:
		return operators.InBatches(t, schema, each, take)
	case of == o.build:
		key = o.BuildKeys[0]
	case of == o.probe:
		key = o.ProbeKeys[0]
	default: // probe rows that are stored separately
		return operators.InBatches(t, schema, each, take)
	}
	return operators.InBatches(t, tupleSchema(schema.Fields[key].Type.Width()), each, func(s *gpu.Stride) error {
		x, err := gpu.ExperimentalOf(t.Queue)
		if err != nil {
			s.Release()
			return err
		}
		cols, err := x.SplitTuples(t.Lease, s.Cols[0], schema.Fields[key].Type, schema.Fields[1-key].Type)
		out := &gpu.Stride{Schema: schema, Cols: cols, Rows: s.Rows}
		s.Release()
		if err != nil {
			return err
		}
		if key == 1 {
			cols[0], cols[1] = cols[1], cols[0]
		}
		return take(out)
	})
}

// how describes the first pass.
func (o *outOfCore) how() string {
	switch {
	case !o.tuples:
		return ", made in device memory"
	case o.placed == 0: // the device has no memory of its own
		return " of tuples"
	}
	return fmt.Sprintf(" of tuples, %.0f %% of them written to host memory", 100*(1-float64(o.stays)/float64(o.placed)))
}
