package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Elements implements gpu.Queue.
func (q *queue) Elements(l *gpu.Lease, lists gpu.Column) (out gpu.Elements, err error) {
	o := q.begin("elements", l)
	defer end(o, &out, &err)
	o.takes(lists)
	if lists.Type.Kind != gpu.List && lists.Type.Kind != gpu.Map {
		return out, fmt.Errorf("elements of a %v, not of a LIST", lists.Type)
	}
	none := &gpu.Program{}
	e := newEvaluation(o, none, nil, lists.Len)
	x := e.load(lists)
	at := e.alloc(int64(lists.Len+1) * 8)
	a := evalArgs{x: x.operand(), at: addr(at), n: int64(lists.Len)}
	e.rows("eval_elements", a)
	total := e.positions(at)
	if total > gpu.MaxRows {
		o.fail(gpu.TooManyRows(int(total)))
		return out, nil
	}
	n := int(total)
	rows, views, positions := e.alloc(total*4), e.alloc(total*16), e.alloc(total*8)
	starts := e.alloc(int64(lists.Len+1) * 4)
	a.bytes, a.out, a.table, a.set = addr(starts), addr(rows), addr(views), addr(positions)
	launch(o, "eval_elements", blocks(lists.Len+1, evalThreads), evalThreads, 0, a)
	over := newEvaluation(o, none, nil, n)
	view := register{typ: lists.Type, layout: layoutView, data: views}
	wrapped := over.result(lists.Type, nil)
	wrapped = over.makeTexts("eval_wrap_element", wrapped, over.args(&wrapped, &view))
	data, offsets := over.joinTexts(&wrapped)
	if o.failed() {
		return out, nil
	}
	number := gpu.Of(gpu.Int32)
	out.Rows = o.retainColumn(gpu.Column{Type: number, Len: n, Data: rows})
	out.Positions = o.retainColumn(gpu.Column{Type: gpu.Of(gpu.Int64), Len: n, Data: positions})
	out.Values = o.retainColumn(gpu.Column{Type: lists.Type, Len: n, Data: data, Offsets: offsets})
	out.Starts = o.retainColumn(gpu.Column{Type: number, Len: lists.Len + 1, Data: starts})
	return out, nil
}
