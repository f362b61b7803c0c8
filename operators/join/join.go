package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Spec describes a join. The probe side is the left side.
type Spec struct {
	Kind         Kind
	Probe, Build *gpu.Schema
	// ProbeKeys and BuildKeys are the key columns, with pairwise equal types.
	ProbeKeys, BuildKeys []int
	// NullSafe says for each key that a null matches a null.
	NullSafe []bool
	// ProbeOut and BuildOut are the columns of the result, those of the probe side first.
	// A semi, anti or mark join has no BuildOut, a right semi or right anti join no ProbeOut.
	ProbeOut, BuildOut []int
	// Out names the columns of the result. A mark join has an additional last column: a Bool
	// without nulls that says whether the row has a match.
	Out *gpu.Schema
	// Range finds the pairs if there are no keys; otherwise it is nil.
	Range *Range
	// AsOf keeps of the pairs of a probe row the one that is nearest in time; nil for all pairs.
	AsOf *AsOf
	// Residual is a condition besides the equality of the keys or the range; nil for none.
	Residual *Residual
	// Algorithm is the name of the algorithm; "" leaves the choice to the join.
	Algorithm string
	// FirstPass is the queue that partitions the sides of a Triton join; nil means the queue of the
	// task. It is for measurements. It may be a queue of the CPU (the CPU-partitioned join of Lutz
	// et al., SIGMOD 2022, §6.2.4): then both sides are rows of a key and a value in host memory
	// that the device can access.
	FirstPass gpu.Queue `json:"-"`
	// ProbeRows and BuildRows are the planner's estimates of the rows of the sides, 0 if unknown.
	ProbeRows, BuildRows int64
	// PairRows is the planner's estimate of the pairs with equal keys, 0 if unknown.
	PairRows int64
	// KeyRange is the number of values from the minimum to the maximum of a single integer-like
	// build key, by statistics; 0 if unknown. The key may have gaps.
	KeyRange float64
	// UniqueBuild says that no two build rows have equal keys.
	UniqueBuild bool
	// AnyOrder says that the order of the result does not matter. Without it the join chooses an
	// algorithm that keeps the order of the probe side, unless Algorithm forces one.
	AnyOrder bool
	// checks are the conditions on pairs in the order of evaluation: first equality of the keys,
	// for an algorithm that matches by a hash of the keys, then Residual.
	checks []*Residual
}

// Residual is a condition on pairs of rows with equal keys. A pair matches only if it is true.
type Residual struct {
	// Program has one Bool output. Its inputs are the columns Probe of the probe side,
	// then the columns Build of the build side.
	Program      *gpu.Program
	Probe, Build []int
}

// conditions returns the checks of a join before its algorithm adds one.
func (s *Spec) conditions() []*Residual {
	if s.Residual == nil {
		return nil
	}
	return []*Residual{s.Residual}
}

func (s *Spec) validate() error {
	if s.Range != nil {
		if err := s.validateRange(); err != nil {
			return err
		}
	} else if len(s.ProbeKeys) == 0 || len(s.ProbeKeys) != len(s.BuildKeys) || len(s.NullSafe) != len(s.ProbeKeys) {
		return fmt.Errorf("join with %d probe keys, %d build keys and %d null rules", len(s.ProbeKeys),
			len(s.BuildKeys), len(s.NullSafe))
	}
	for i, p := range s.ProbeKeys {
		pf, bf := s.Probe.Fields[p], s.Build.Fields[s.BuildKeys[i]]
		if pf.Type != bf.Type {
			return fmt.Errorf("join key %q is %v, but %q is %v", pf.Name, pf.Type, bf.Name, bf.Type)
		}
	}
	if s.AsOf != nil {
		if err := s.validateAsOf(); err != nil {
			return err
		}
	}
	if !s.Kind.Pairs() && !s.Kind.OfBuild() && len(s.BuildOut) > 0 {
		return fmt.Errorf("a %v join returns no columns of its build side", s.Kind)
	}
	if s.Kind.OfBuild() && len(s.ProbeOut) > 0 {
		return fmt.Errorf("a %v join returns no columns of its probe side", s.Kind)
	}
	columns := len(s.ProbeOut) + len(s.BuildOut)
	if s.Kind == Mark {
		columns++
	}
	if s.Out.Len() != columns {
		return fmt.Errorf("join returns %d columns under %d names", columns, s.Out.Len())
	}
	if r := s.Residual; r != nil && len(r.Program.Outputs) != 1 {
		return fmt.Errorf("the residual condition of a join has %d values, want 1", len(r.Program.Outputs))
	}
	return nil
}

// equiJoin is the state of a join in memory that its lanes share. All cores build the build side,
// and lanes match the probe side with it. The build side must fit the device's budget; otherwise
// outOfCore makes several joins of parts of it.
type equiJoin struct {
	Spec
	pending operators.Collected // the build side until Finalize
	choice  atomic.Pointer[Choice]
	built   built
	rows    int  // of the build side
	partial bool // other joins have more rows of the build side
	// dicts has, for each of BuildOut, a dictionary of the whole build column, or nil. With a
	// dictionary, strings of the build side are not copied: the build row ids are their codes.
	dicts []*gpu.Dictionary
	coded bool // there is a dictionary
	// valid has, for each of BuildOut with nulls and a dictionary, its validity as a Bool column; otherwise an
	// empty column.
	valid []gpu.Column
	// matches is the match bitmap of the build rows, for kinds that return build rows with or
	// without a match.
	matches gpu.Column
	filter  *operators.KeyFilter // if the run asks for it
	flushed atomic.Int32         // lanes that have matched all their rows
}

// Join is Blocking for the build side and Streaming for the probe side. A join that spills defers
// rows (operators.Deferring).
type Join interface {
	operators.Filtering
	operators.Deferring
	operators.Resident
}

// New returns the join of a spec.
func New(s Spec) (Join, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	if s.Algorithm != "" && !slices.Contains(Algorithms(), s.Algorithm) {
		return nil, fmt.Errorf("no join algorithm has the name %q: choose one of %s", s.Algorithm,
			strings.Join(Algorithms(), ", "))
	}
	return newOutOfCore(s, 0), nil
}

func newOutOfCore(s Spec, depth int) *outOfCore {
	o := &equiJoin{Spec: s}
	o.checks = s.conditions()
	return &outOfCore{equiJoin: o, depth: depth, heavyHitters: &atomic.Int32{}}
}

// Choice implements operators.Choosing.
func (o *equiJoin) Choice() string {
	if c := o.choice.Load(); c != nil {
		return c.String()
	}
	return ""
}

func (o *equiJoin) Schema() *gpu.Schema { return o.Out }

// Finalize builds the build side that is pending.
func (o *equiJoin) Finalize(ctx context.Context, t operators.Task) error {
	all, err := operators.ConcatStrides(t, o.Build, o.pending.Take())
	if err != nil {
		return err
	}
	o.rows = all.Rows
	if o.filter, err = operators.NewKeyFilter(t, operators.Pick(all.Cols, o.BuildKeys), all.Rows); err != nil {
		all.Release()
		return err
	}
	o.BuildRows = int64(all.Rows) // it was an estimate
	choice := o.choose(circumstances{t.Device.Properties(), t.Budget(), t.Lanes, t.StrideRows, o.partial})
	o.choice.Store(&choice)
	if o.built, err = o.algorithm(choice.Algorithm).build(ctx, t, all); err != nil {
		return err
	}
	for _, c := range operators.Pick(o.built.columns(), o.BuildOut) {
		var dict *gpu.Dictionary
		var valid gpu.Column
		if !o.Kind.KeepsProbe() && c.Type.IsVar() && c.Dict == nil {
			if c.Valid != nil {
				valid = gpu.Column{Type: gpu.Of(gpu.Bool), Len: c.Len, Data: c.Valid}
				c.Valid = nil
			}
			dict, o.coded = &gpu.Dictionary{Values: c}, true
		}
		o.dicts, o.valid = append(o.dicts, dict), append(o.valid, valid)
	}
	if o.Kind.KeepsBuild() || o.Kind.OfBuild() {
		o.matches, err = t.Queue.NewBitmap(t.Lease, o.rows)
	}
	return err
}

// KeyFilter implements operators.Filtering.
func (o *equiJoin) KeyFilter() *operators.KeyFilter { return o.filter }

func (o *equiJoin) Close() error {
	o.pending.Close()
	o.filter.Release()
	o.filter = nil
	o.giveBack()
	return nil
}

// giveBack releases the build side.
func (o *equiJoin) giveBack() {
	if o.built != nil {
		o.built.release()
		o.built = nil
	}
	o.matches.Release()
	o.matches = gpu.Column{}
}
