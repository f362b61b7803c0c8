package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

type selectArgs struct {
	truth, valid, tiles, ids, total uint64
	n                               int64
}

// selectTile is the rows of a tile of select.cu.
const selectTile = 256 * 4 * 32

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
// a stride; elsewhere the rows are counted first.
func (o *op) selectRows(truth, valid *gpu.Buffer, rows int) (ids *gpu.Buffer, n int64) {
	tiles := blocks(rows, selectTile)
	if tiles == 0 {
		return nil, 0
	}
	state := o.alloc(int64(tiles+2) * 8)
	args := selectArgs{truth: addr(truth), valid: addr(valid), tiles: addr(state), total: addr(state) + uint64(tiles+1)*8, n: int64(rows)}
	run := func() {
		o.fill(state, 0, int64(tiles+1)*8, 0)
		launch(o, "select_rows", tiles, 256, 0, args)
	}
	budget := o.q.dev.budget
	used, _ := budget.Used()
	var total [1]int64
	if room := int64(rows) * 4; room <= selectRoom && room <= (budget.Limit()-used)/16 {
		ids = o.alloc(room)
		args.ids = addr(ids)
		run()
		o.read(state, int64(tiles+1)*8, gpu.BytesOf(total[:]))
		return ids, total[0]
	}
	run()
	if !o.read(state, int64(tiles+1)*8, gpu.BytesOf(total[:])) || total[0] == 0 {
		return nil, 0
	}
	ids = o.alloc(total[0] * 4)
	args.ids = addr(ids)
	run()
	return ids, total[0]
}
