package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

type selectArgs struct {
	truth, valid, counts, ids uint64
	n                         int64
}

// selectTile is the rows of a tile of select.cu.
const selectTile = 256 * 4 * 32

// Select implements gpu.Queue: counts of tiles, their prefix sums, ids.
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
// many there are.
func (o *op) selectRows(truth, valid *gpu.Buffer, rows int) (ids *gpu.Buffer, n int64) {
	tiles := blocks(rows, selectTile)
	counts := o.alloc(int64(tiles) * 4)
	args := selectArgs{truth: addr(truth), valid: addr(valid), counts: addr(counts), n: int64(rows)}
	launch(o, "select_count", tiles, 256, 0, args)
	n = o.scanTotal(counts, tiles, false)
	ids = o.alloc(n * 4)
	args.ids = addr(ids)
	launch(o, "select_write", tiles, 256, 0, args)
	return ids, n
}
