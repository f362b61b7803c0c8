package join

import (
	"context"
	"math/rand/v2"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
	"github.com/gstream/gstream/operators"
)

// bucket is the partitioned hash join over bucket chains (Sioulas et al., ICDE 2019), the PHJ-UR of
// Wu et al. (SIGMOD 2025, §3.1.2). Atomics append keys and row ids to chains of buckets. Their
// order changes from run to run, so columns cannot move with them, and are gathered from the
// original sides. Under skew, the appends to one chain wait for each other.
type bucket struct{ *Spec }

func (a bucket) build(_ context.Context, t operators.Task, side *gpu.Stride) (built, error) {
	b := &bucketBuilt{bucket: a, key: newOneKey(a.Spec), digit: gpu.Digit{Factor: rand.Uint64() | 1},
		rows: a.batch(t.Share(grant.JoinBatch), side.Rows)}
	width := b.key.width()
	b.digit.Bits = partitionBits(t.Device.Properties(), side.Rows, width+4)
	b.digit.Shift = uint(8*width) - b.digit.Bits
	var err error
	if b.buckets, err = b.partition(t, side.Cols, a.BuildKeys); err != nil {
		side.Release()
		return nil, err
	}
	a.drop(side)
	b.side = side
	return b, nil
}

// bucketBuilt is a build side in buckets.
type bucketBuilt struct {
	bucket
	key     oneKey
	digit   gpu.Digit
	rows    int // least
	buckets gpu.Buckets
	side    *gpu.Stride // the columns that pairs index
}

// partition partitions the key of a side into buckets.
func (b *bucketBuilt) partition(t operators.Task, cols []gpu.Column, keys []int) (gpu.Buckets, error) {
	key, err := b.key.of(t, cols, keys)
	if err != nil {
		return gpu.Buckets{}, err
	}
	defer key.Release()
	x, err := gpu.ExperimentalOf(t.Queue)
	if err != nil {
		return gpu.Buckets{}, err
	}
	return x.PartitionBuckets(t.Lease, key, b.digit)
}

func (b *bucketBuilt) columns() []gpu.Column { return b.side.Cols }
func (b *bucketBuilt) least() int            { return b.rows }

func (b *bucketBuilt) match(t operators.Task, probe *gpu.Stride) (matching, error) {
	side, err := b.partition(t, probe.Cols, b.ProbeKeys)
	if err != nil {
		return matching{}, err
	}
	build := b.buckets.Partitioned
	build.Distinct = b.UniqueBuild && !b.key.hashed
	m, err := t.Queue.MatchPartitions(t.Lease, build, side.Partitioned, gpu.Probing{})
	if err != nil {
		side.Release()
		return matching{}, err
	}
	owned := owner{m, []gpu.Column{side.Key, side.Offsets, side.Chain, side.Rows}}
	return matching{Matcher: &mapped{Matcher: owned, probe: side.Rows, build: b.buckets.Rows, rows: probe.Rows},
		probe: probe.Cols}, nil
}

func (b *bucketBuilt) release() {
	b.buckets.Release()
	b.side.Release()
}
