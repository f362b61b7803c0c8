package join

import (
	"math/rand/v2"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// direct reports whether the join has a single key that algorithms partition and sort by its bits:
// an integer, a narrow decimal, a date or a time of 4 or 8 bytes, for which a null matches nothing.
func (s *Spec) direct() bool {
	if len(s.ProbeKeys) != 1 {
		return false
	}
	t := s.Probe.Fields[s.ProbeKeys[0]].Type
	return !s.NullSafe[0] && !t.IsFloat() && (t.Width() == 4 || t.Width() == 8)
}

// unsigned returns a key of 4 or 8 bytes as unsigned integers of the same bits and
// validity. It shares the buffers.
func unsigned(key gpu.Column) gpu.Column {
	kind := gpu.Uint32
	if key.Type.Width() == 8 {
		kind = gpu.Uint64
	}
	key.Type = gpu.Of(kind)
	return key
}

// digits returns a key as the column by which Queue.Partition moves rows. Rows with a null are
// moved by the bits stored for the null.
func digits(key gpu.Column) gpu.Column {
	key = unsigned(key)
	key.Valid = nil
	return key
}

// oneKey turns the keys of a join into one key of 4 or 8 bytes: the key itself if it is direct,
// otherwise an 8-byte hash of all keys.
type oneKey struct {
	*Spec
	hashed bool
	seed   uint64
}

// newOneKey returns the oneKey of a join. If the key is a hash, it adds a first condition to the
// join: that the keys of a pair are equal.
func newOneKey(s *Spec) oneKey {
	if s.direct() {
		return oneKey{Spec: s}
	}
	s.checks = slices.Insert(s.checks, 0, s.equalKeys())
	return oneKey{s, true, rand.Uint64()}
}

// width returns the bytes of the key.
func (k oneKey) width() int {
	if k.hashed {
		return 8
	}
	return k.Build.Fields[k.BuildKeys[0]].Type.Width()
}

// equalKeys is the condition that the keys of two rows are equal.
func (s *Spec) equalKeys() *Residual {
	n := len(s.ProbeKeys)
	p := &gpu.Program{}
	for _, side := range []*gpu.Schema{operators.PickFields(s.Probe, s.ProbeKeys),
		operators.PickFields(s.Build, s.BuildKeys)} {
		for _, f := range side.Fields {
			p.Inputs = append(p.Inputs, f.Type)
		}
	}
	for i, nullSafe := range s.NullSafe {
		op := gpu.OpEq
		if nullSafe {
			op = gpu.OpNotDistinct
		}
		p.Code = append(p.Code, gpu.Instr{Op: op, Type: gpu.Of(gpu.Bool), Args: []int{i, n + i}, Mask: -1,
			Text: "equality of the keys"})
	}
	all(p, 2*n)
	return &Residual{Program: p, Probe: s.ProbeKeys, Build: s.BuildKeys}
}

// all sets the output of a program to the conjunction of its registers from first on.
func all(p *gpu.Program, first int) {
	if len(p.Code) > 1 {
		and := gpu.Instr{Op: gpu.OpAnd, Type: gpu.Of(gpu.Bool), Mask: -1, Text: "all keys"}
		for i := range p.Code {
			and.Args = append(and.Args, first+i)
		}
		p.Code = append(p.Code, and)
	}
	p.Outputs = []int{first + len(p.Code) - 1}
}

// of returns the key of the rows of a side. The caller releases it. It costs a Queue.Hash, or
// nothing for a direct key.
func (k oneKey) of(t operators.Task, cols []gpu.Column, keys []int) (gpu.Column, error) {
	if !k.hashed {
		return cols[keys[0]].Retain(), nil
	}
	hash, err := t.Queue.Hash(t.Lease, operators.Pick(cols, keys), k.seed)
	if err != nil {
		return gpu.Column{}, err
	}
	if hash.Valid, err = k.valid(t, cols, keys); err != nil {
		hash.Release()
		return gpu.Column{}, err
	}
	return hash, nil
}

// valid returns the validity of the hash: it is null if a key that is not null-safe is null, so
// that such a row matches nothing. Otherwise all rows with nulls would form pairs, until their keys
// are compared.
func (k oneKey) valid(t operators.Task, cols []gpu.Column, keys []int) (*gpu.Buffer, error) {
	var nullable []gpu.Column
	p := &gpu.Program{}
	for i, c := range operators.Pick(cols, keys) {
		if c.Valid != nil && !k.NullSafe[i] {
			nullable = append(nullable, c)
			p.Inputs = append(p.Inputs, c.Type)
		}
	}
	switch len(nullable) {
	case 0:
		return nil, nil
	case 1:
		return nullable[0].Valid.Retain(), nil
	}
	for i := range nullable {
		p.Code = append(p.Code, gpu.Instr{Op: gpu.OpIsNotNull, Type: gpu.Of(gpu.Bool), Args: []int{i}, Mask: -1,
			Text: "key is not null"})
	}
	all(p, len(nullable))
	out, err := t.Queue.Eval(t.Lease, p, nullable, nullable[0].Len)
	if err != nil {
		return nil, err
	}
	defer gpu.ReleaseColumns(out)
	return out[0].Data.Retain(), nil
}
