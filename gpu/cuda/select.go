package cuda

import (
	"fmt"
	"math"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/grant"
)

type selectArgs struct {
	truth, valid, counts, ids uint64
	rows, tiles, flip, _      uint32
}

// The warps of a block of select.cu, the rows of a tile, and the blocks that a multiprocessor runs
// concurrently.
const (
	selectWarps  = 8
	selectTile   = selectWarps * 32 * 128
	selectBlocks = 4
)

// Select implements gpu.Queue.
func (q *queue) Select(l *gpu.Lease, pred gpu.Column, want bool) (out gpu.Column, err error) {
	o := q.begin("select", l)
	defer end(o, &out, &err)
	o.takes(pred)
	if pred.Type.Kind != gpu.Bool {
		return out, fmt.Errorf("select wants a BOOLEAN column, not %v", pred.Type)
	}
	ids, n := o.selectRows(pred.Data, pred.Valid, pred.Len, want)
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(ids)}, nil
}

// selectRows returns the ids of the rows whose bits are set in both bitmaps, or of the other rows
// if want is false, and their number. If the ids of all rows take little memory, as for a stride,
// it allocates memory for all rows and lists them in one pass. Otherwise it counts first.
func (o *op) selectRows(truth, valid *gpu.Buffer, rows int, want bool) (ids *gpu.Buffer, n int64) {
	if rows == 0 {
		return nil, 0
	}
	if rows > gpu.MaxRows {
		o.fail(fmt.Errorf("select from %d rows: row ids have 32 bits", rows))
		return nil, 0
	}
	counts := make([]int32, blocks(rows, selectTile))
	byTile := o.alloc(int64(len(counts)) * 4)
	args := selectArgs{truth: addr(truth), valid: addr(valid), counts: addr(byTile), rows: uint32(rows),
		tiles: uint32(len(counts))}
	if !want {
		args.flip = math.MaxUint32
	}
	launch(o, "select_count", blocks(len(counts), selectWarps), 32*selectWarps, 0, args)
	count := func() (n int64) {
		o.read(byTile, 0, gpu.BytesOf(counts))
		for _, c := range counts {
			n += int64(c)
		}
		return n
	}
	list := func(n int64) {
		ids = o.alloc(n * 4)
		args.ids = addr(ids)
		launch(o, "select_rows", min(len(counts), selectBlocks*o.q.dev.props.multiprocessors), 32*selectWarps, 0, args)
	}
	budget := o.q.dev.budget
	used, _ := budget.Used()
	if int64(rows)*4 <= grant.SelectIDs.Of(budget.Limit()-used) {
		list(int64(rows))
		return ids, count()
	}
	if n = count(); n > 0 {
		list(n)
	}
	return ids, n
}
