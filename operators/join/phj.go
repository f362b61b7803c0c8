package join

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

// phj is the partitioned hash join (Wu et al., SIGMOD 2025, §3.1.2 and §4.1.4). Both sides are
// partitioned by a hash of the key. The hash table of a partition fits the shared memory of a
// block, or the cache of a core. The build side is partitioned once. Probe rows are collected,
// since each match reads the whole build side.
//
// PHJ-TR partitions all columns together with the key, so that a match reads rows that are close to
// each other. PHJ-UR partitions only the key and the row id, and gathers columns from the original
// sides.
type phj struct {
	*Spec
	transform bool // TR
	collect   bool
	bits      func(p gpu.Properties, rows, rowBytes int) uint // of a hash, for partitions
	how       gpu.Probing
}

func (a phj) build(_ context.Context, t operators.Task, side *gpu.Stride) (built, error) {
	b := &phjBuilt{phj: a, key: newOneKey(a.Spec), digit: gpu.Digit{Factor: rand.Uint64() | 1}}
	width := b.key.width()
	row := width + 4
	if a.transform {
		row = width
		for _, i := range a.kept() {
			if b.key.hashed || i != a.BuildKeys[0] {
				row += rowBytes(a.Build, []int{i})
			}
		}
	}
	b.digit.Bits = a.bits(t.Device.Properties(), side.Rows, row)
	b.digit.Shift = uint(8*width) - b.digit.Bits
	if a.collect {
		b.rows = a.batch(t.Share(grant.JoinBatch), side.Rows)
	}
	var err error
	if b.parts, err = b.partition(t, side.Cols, a.BuildKeys, a.kept()); err != nil {
		side.Release()
		return nil, err
	}
	a.drop(side)
	if a.transform { // pairs index the columns of the partitions
		side.Release()
		side.Cols = b.parts.cols
	}
	b.side = side
	return b, nil
}

// phjBuilt is a build side in partitions.
type phjBuilt struct {
	phj
	key   oneKey
	digit gpu.Digit
	rows  int // least
	parts *parts
	side  *gpu.Stride // the columns that pairs index
}

// parts is a side in partitions.
type parts struct {
	moved   []gpu.Column // owned: the key, then columns or row ids
	offsets gpu.Column
	cols    []gpu.Column // by position in the side, for TR; not owned
}

func (p *parts) release() {
	gpu.ReleaseColumns(p.moved)
	p.offsets.Release()
}

func (p *parts) of(distinct bool) gpu.Partitioned {
	return gpu.Partitioned{Key: p.moved[0], Offsets: p.offsets, Distinct: distinct}
}

// partition partitions copies of columns of a side: the key and the needed columns, or the key and
// the row ids.
func (b *phjBuilt) partition(t operators.Task, cols []gpu.Column, keys, need []int) (*parts, error) {
	key, err := b.key.of(t, cols, keys)
	if err != nil {
		return nil, err
	}
	defer key.Release()
	move := []gpu.Column{key}
	from := []int{-1} // positions of the columns to move
	if !b.key.hashed {
		from[0] = keys[0]
	}
	if b.transform {
		for _, c := range need {
			if !slices.Contains(from, c) {
				move, from = append(move, cols[c]), append(from, c)
			}
		}
	} else {
		move = append(move, gpu.RowNumbers(key.Len))
	}
	p := &parts{}
	if p.moved, p.offsets, err = t.Queue.Partition(t.Lease, move, digits(key), b.digit); err != nil {
		return nil, err
	}
	if b.transform {
		p.cols = make([]gpu.Column, len(cols))
		for i, c := range from {
			if c >= 0 {
				p.cols[c] = p.moved[i]
			}
		}
	}
	return p, nil
}

func (b *phjBuilt) columns() []gpu.Column { return b.side.Cols }
func (b *phjBuilt) least() int            { return b.rows }

func (b *phjBuilt) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	p, err := b.partition(t, probe.Cols, b.ProbeKeys, b.used())
	if err != nil {
		return matching{}, err
	}
	m, err := t.Queue.MatchPartitions(t.Lease, b.parts.of(b.UniqueBuild && !b.key.hashed), p.of(false), b.how)
	if err != nil {
		p.release()
		return matching{}, err
	}
	owned := owner{m, append(p.moved, p.offsets)}
	if b.transform {
		return matching{Matcher: owned, probe: p.cols}, nil
	}
	return matching{Matcher: &mapped{Matcher: owned, probe: p.moved[1], build: b.parts.moved[1], rows: probe.Rows},
		probe: probe.Cols}, nil
}

func (b *phjBuilt) release() {
	b.parts.release()
	if !b.transform {
		b.side.Release()
	}
}
