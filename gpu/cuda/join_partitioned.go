package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// joinItem is JoinItem of join.cu.
type joinItem struct{ buildFrom, buildTo, probeFrom, probeTo uint32 }

type joinArgs struct {
	build, probe, buildValid, probeValid, items, counts, probeIDs, buildIDs, matched uint64
}

type joinStartsArgs struct {
	counts uint64
	n      int64
}

type joinInvertArgs struct {
	bits        uint64
	n, from, to int64
}

const (
	joinThreads = 1024
	joinBuild   = 9216    // JOIN_BUILD of join.cu: rows of a table
	joinProbe   = 1 << 16 // probe rows of an item; a skewed partition is split into several
)

// joinShared returns the size of JoinTable of join.cu in bytes.
func joinShared(width int) int {
	if width == 4 {
		return joinBuild*(4+2) + 4<<13
	}
	return joinBuild*(8+2) + 4<<12
}

// MatchPartitions implements gpu.Queue. It counts the pairs, then writes them. A bitmap
// tells which probe rows have a match.
func (q *queue) MatchPartitions(l *gpu.Lease, build, probe gpu.Partitioned, kind gpu.JoinKind) (probeIDs, buildIDs gpu.Column, err error) {
	o := q.begin("join partitions", l)
	var out [2]gpu.Column
	defer func() { probeIDs, buildIDs = out[0], out[1] }()
	defer end(o, &out, &err)
	o.takes(build.Key, probe.Key)
	if err := gpu.CheckPartitions(build, probe); err != nil {
		return probeIDs, buildIDs, err
	}
	j := partitionJoin{op: o, width: build.Key.Type.Width(), args: joinArgs{build: addr(build.Key.Data), probe: addr(probe.Key.Data),
		buildValid: addr(build.Key.Valid), probeValid: addr(probe.Key.Valid)}}
	j.plan(build.Offsets, probe.Offsets)
	total := int64(0)
	if kind == gpu.Inner || kind == gpu.Left {
		total = j.count()
	}
	var rest *gpu.Buffer // rows that are in no pair
	more := int64(0)
	if kind != gpu.Inner {
		rest, more = j.matched(probe, kind != gpu.Semi)
	}
	n := total + more
	if n > gpu.MaxRows {
		return probeIDs, buildIDs, gpu.ErrTooManyPairs(n)
	}
	ids := o.alloc(n * 4)
	out[0] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(ids)}
	o.copy(ids, total*4, rest, 0, more*4)
	if kind == gpu.Inner || kind == gpu.Left {
		matches := o.alloc(n * 4)
		out[1] = gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(matches)}
		o.fill(matches, total*4, more*4, 0xff) // -1
		if total > 0 {
			j.args.probeIDs, j.args.buildIDs = addr(ids), addr(matches)
			j.launch("join_write")
		}
	}
	return out[0], out[1], nil
}

// partitionJoin is one run of MatchPartitions.
type partitionJoin struct {
	*op
	width int // bytes of the key
	items int
	args  joinArgs
}

// plan splits the partitions into work items. A build partition that is too large for one
// table takes several tables. A partition with many probe rows is built by several
// blocks.
func (j *partitionJoin) plan(build, probe []int) {
	var items []joinItem
	for p := range len(build) - 1 {
		for b := build[p]; b < build[p+1]; b += joinBuild {
			for r := probe[p]; r < probe[p+1]; r += joinProbe {
				items = append(items, joinItem{uint32(b), uint32(min(b+joinBuild, build[p+1])), uint32(r), uint32(min(r+joinProbe, probe[p+1]))})
			}
		}
	}
	j.items = len(items)
	list := j.alloc(int64(len(items)) * 16)
	j.write(list, 0, gpu.BytesOf(items))
	j.args.items = addr(list)
}

func (j *partitionJoin) launch(kernel string) {
	launch(j.op, fmt.Sprintf("%s_k%d", kernel, j.width), j.items, joinThreads, joinShared(j.width), j.args)
}

// count counts the pairs of every item, turns the counts into output offsets, and returns
// the total.
func (j *partitionJoin) count() int64 {
	counts := j.alloc(int64(j.items+1) * 8)
	j.args.counts = addr(counts)
	j.launch("join_count")
	launch(j.op, "join_starts", 1, 1024, 0, joinStartsArgs{addr(counts), int64(j.items)})
	var total [1]int64
	j.read(counts, int64(j.items)*8, gpu.BytesOf(total[:]))
	return total[0]
}

// matched returns the probe rows with a match or, if invert is set, those without one.
func (j *partitionJoin) matched(probe gpu.Partitioned, invert bool) (ids *gpu.Buffer, n int64) {
	rows := probe.Key.Len
	bits := j.alloc(gpu.BitmapBytes(rows))
	j.fill(bits, 0, bits.Size(), 0)
	j.args.matched = addr(bits)
	j.launch("join_mark")
	if invert {
		from, to := probe.Offsets[0], probe.Offsets[len(probe.Offsets)-1]
		launch(j.op, "join_invert", j.grid(rows/32+2), 256, 0, joinInvertArgs{addr(bits), int64(rows), int64(from), int64(to)})
	}
	return j.selectRows(bits, nil, rows, true)
}
