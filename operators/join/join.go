// Package join has the equi-joins: inner, left, semi and anti, on any number of key
// columns, one-to-many and many-to-many. The build side stays on the device as a whole;
// the probe side streams through.
package join

import (
	"context"
	"fmt"
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// Spec describes a join. The probe side is the left side.
type Spec struct {
	Kind         gpu.JoinKind
	Probe, Build *gpu.Schema
	// ProbeKeys and BuildKeys are the key columns. Their types are equal in pairs.
	ProbeKeys, BuildKeys []int
	// NullSafe says for each key that a null matches a null.
	NullSafe []bool
	// ProbeOut and BuildOut are the columns of the result, those of the probe side first.
	// A semi or anti join has no BuildOut.
	ProbeOut, BuildOut []int
	// Out names the columns of the result.
	Out *gpu.Schema
}

func (s *Spec) validate() error {
	if len(s.ProbeKeys) == 0 || len(s.ProbeKeys) != len(s.BuildKeys) || len(s.NullSafe) != len(s.ProbeKeys) {
		return fmt.Errorf("join with %d probe keys, %d build keys and %d null rules", len(s.ProbeKeys), len(s.BuildKeys), len(s.NullSafe))
	}
	for i, p := range s.ProbeKeys {
		pf, bf := s.Probe.Fields[p], s.Build.Fields[s.BuildKeys[i]]
		if pf.Type != bf.Type {
			return fmt.Errorf("join key %q is %v, but %q is %v", pf.Name, pf.Type, bf.Name, bf.Type)
		}
	}
	if (s.Kind == gpu.Semi || s.Kind == gpu.Anti) && len(s.BuildOut) > 0 {
		return fmt.Errorf("a %v join returns no columns of its build side", s.Kind)
	}
	if s.Out.Len() != len(s.ProbeOut)+len(s.BuildOut) {
		return fmt.Errorf("join returns %d columns under %d names", len(s.ProbeOut)+len(s.BuildOut), s.Out.Len())
	}
	return nil
}

// hashJoin is the non-partitioned hash join: one table over the whole build side (NPJ of
// Wu et al., SIGMOD 2025, §3.1.3). Lanes collect the build side, all cores build the
// table, and lanes probe it. The build side must fit the device's budget.
type hashJoin struct {
	Spec
	mu      sync.Mutex
	pending operators.Collected // the build side until Finalize
	build   *gpu.Stride         // output columns of the build side
	dicts   []*gpu.Dictionary   // by output column; set for those that are passed on as dictionaries
	table   gpu.Table
	filter  *operators.KeyFilter // if the run asks for it
}

// Join is Blocking for the build side and Streaming for the probe side.
type Join interface {
	operators.Filtering
	operators.Streaming
}

// New returns the join of a spec.
func New(s Spec) (Join, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	return &hashJoin{Spec: s}, nil
}

func (o *hashJoin) Schema() *gpu.Schema { return o.Out }

// NewLocal implements operators.Blocking. It is for the build side.
func (o *hashJoin) NewLocal(t operators.Task) (operators.Local, error) {
	t.Lease.Advise("the join's build side must fit: filter it or select fewer of its columns, or join with the smaller side as build side")
	return &buildSide{Collected: operators.Collected{Lease: t.Lease}, join: o}, nil
}

// buildSide is the strides of the build side that one lane has collected.
type buildSide struct {
	operators.Collected
	join *hashJoin
}

func (b *buildSide) Combine(context.Context) error {
	b.join.mu.Lock()
	defer b.join.mu.Unlock()
	b.join.pending.Append(&b.Collected)
	return nil
}

func (o *hashJoin) Finalize(_ context.Context, t operators.Task) error {
	all, err := operators.ConcatStrides(t, o.Build, o.pending.Take())
	if err != nil {
		return err
	}
	defer all.Release()
	o.table, err = t.Queue.BuildTable(t.Lease, operators.Pick(all.Cols, o.BuildKeys), o.NullSafe)
	if err != nil {
		return err
	}
	if o.filter, err = operators.NewKeyFilter(t, operators.Pick(all.Cols, o.BuildKeys), all.Rows); err != nil {
		return err
	}
	o.build = &gpu.Stride{Schema: operators.PickFields(o.Build, o.BuildOut), Rows: all.Rows}
	for _, c := range operators.Pick(all.Cols, o.BuildOut) {
		o.build.Cols = append(o.build.Cols, c.Retain())
		var dict *gpu.Dictionary
		if o.Kind == gpu.Inner && c.Type.IsVar() && c.Dict == nil && c.Valid == nil {
			dict = &gpu.Dictionary{Values: c}
		}
		o.dicts = append(o.dicts, dict)
	}
	return nil
}

// KeyFilter implements operators.Filtering.
func (o *hashJoin) KeyFilter() *operators.KeyFilter { return o.filter }

// NewLane implements operators.Streaming. It is for the probe side.
func (o *hashJoin) NewLane(t operators.Task) (operators.Lane, error) { return &prober{o, t}, nil }

// prober is a lane of the probe side.
type prober struct {
	*hashJoin
	task operators.Task
}

func (o *prober) Close() error { return nil }

func (o *prober) Push(_ context.Context, s *gpu.Stride, emit operators.Emit) error {
	defer s.Release()
	q, l := o.task.Queue, o.task.Lease
	keys := operators.Pick(s.Cols, o.ProbeKeys)
	for from := 0; from < s.Rows; {
		probe, build, next, err := o.table.Probe(q, l, keys, o.Kind, from, o.task.StrideRows)
		if err != nil {
			return err
		}
		from = next
		if probe.Len == 0 {
			probe.Release()
			build.Release()
			continue
		}
		out, err := o.gather(s, probe, build)
		probe.Release()
		build.Release()
		if err != nil {
			return err
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return nil
}

func (o *prober) gather(s *gpu.Stride, probe, build gpu.Column) (*gpu.Stride, error) {
	q, l := o.task.Queue, o.task.Lease
	cols, err := q.Gather(l, operators.Pick(s.Cols, o.ProbeOut), probe, false)
	if err != nil {
		return nil, err
	}
	out := &gpu.Stride{Schema: o.Out, Cols: cols, Rows: probe.Len}
	if len(o.BuildOut) == 0 {
		return out, nil
	}
	// Strings of the build side are not copied: the build row ids are their codes, and
	// the whole build column is their dictionary.
	var plain []gpu.Column
	for i, c := range o.build.Cols {
		if o.dicts[i] == nil {
			plain = append(plain, c)
		}
	}
	if cols, err = q.Gather(l, plain, build, o.Kind == gpu.Left); err != nil {
		out.Release()
		return nil, err
	}
	for i, c := range o.build.Cols {
		if dict := o.dicts[i]; dict != nil {
			coded := gpu.Column{Type: c.Type, Len: build.Len, Data: build.Data, Dict: dict}
			out.Cols = append(out.Cols, coded.Retain())
			continue
		}
		out.Cols, cols = append(out.Cols, cols[0]), cols[1:]
	}
	return out, nil
}

func (o *hashJoin) Close() error {
	o.pending.Close()
	if o.build != nil {
		o.build.Release()
		o.build = nil
	}
	o.filter.Release()
	o.filter = nil
	if o.table != nil {
		o.table.Release()
		o.table = nil
	}
	return nil
}
