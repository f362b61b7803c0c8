package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

type selectArgs struct {
	truth, valid, blocks, warps, ids uint64
	rows, chunk                      uint32
}

// The rows of a group of select.cu, the warps of its blocks, and how many blocks a
// multiprocessor runs at a time.
const (
	selectGroup  = 32 * 128
	selectWarps  = 8
	selectBlocks = 5
)

// selectRoom is the most bytes of ids that room is made for before they are counted.
const selectRoom = 64 << 20

// Select implements gpu.Queue.
func (q *queue) Select(l *gpu.Lease, pred gpu.Column) (out gpu.Column, err error) {
	o := q.begin("select", l)
	defer end(o, &out, &err)
	if pred.Type.Kind != gpu.Bool {
		return out, fmt.Errorf("select wants a BOOLEAN column, not %v", pred.Type)
	}
	ids, n := o.selectRows(pred.Data, pred.Valid, pred.Len)
	return gpu.Column{Type: gpu.Of(gpu.Int32), Len: int(n), Data: o.keep(ids)}, nil
}

// selectRows returns the ids of the rows whose bit is set in both bitmaps, and how
// many there are. Room is made for the ids of all rows where that is little, as for
// a stride; elsewhere when they are counted.
func (o *op) selectRows(truth, valid *gpu.Buffer, rows int) (ids *gpu.Buffer, n int64) {
	if rows == 0 {
		return nil, 0
	}
	if rows > gpu.MaxRows {
		o.fail(fmt.Errorf("select from %d rows: row ids have 32 bits", rows))
		return nil, 0
	}
	groups := blocks(rows, selectGroup)
	chunk := blocks(groups, selectBlocks*o.q.dev.props.multiprocessors)
	counts := make([]int32, blocks(groups, chunk)) // by block
	byBlock := o.alloc(int64(len(counts)) * 4)
	byWarp := o.alloc(int64(len(counts)) * selectWarps * 4)
	args := selectArgs{truth: addr(truth), valid: addr(valid), blocks: addr(byBlock), warps: addr(byWarp), rows: uint32(rows), chunk: uint32(chunk)}
	launch(o, "select_count", len(counts), 32*selectWarps, 0, args)
	count := func() (n int64) {
		o.read(byBlock, 0, gpu.BytesOf(counts))
		for _, c := range counts {
			n += int64(c)
		}
		return n
	}
	list := func(n int64) {
		ids = o.alloc(n * 4)
		args.ids = addr(ids)
		launch(o, "select_rows", len(counts), 32*selectWarps, 0, args)
	}
	budget := o.q.dev.budget
	used, _ := budget.Used()
	if room := int64(rows) * 4; room <= selectRoom && room <= (budget.Limit()-used)/16 {
		list(int64(rows))
		return ids, count()
	}
	if n = count(); n > 0 {
		list(n)
	}
	return ids, n
}
