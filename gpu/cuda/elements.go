package cuda

import (
	"fmt"

	"github.com/gstream/gstream/gpu"
)

// Elements implements gpu.Queue.
func (q *queue) Elements(l *gpu.Lease, lists gpu.Column) (ids, elements gpu.Column, err error) {
	var out [2]gpu.Column
	o := q.begin("elements", l)
	func() {
		defer end(o, &out, &err)
		o.takes(lists)
		if lists.Type.Kind != gpu.List && lists.Type.Kind != gpu.Map {
			err = fmt.Errorf("elements of a %v, not of a LIST", lists.Type)
			return
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
			return
		}
		n := int(total)
		rows, views := e.alloc(total*4), e.alloc(total*16)
		if n > 0 {
			a.out, a.table = addr(rows), addr(views)
			e.rows("eval_elements", a)
		}
		over := newEvaluation(o, none, nil, n)
		view := register{typ: lists.Type, layout: layoutView, data: views}
		wrapped := over.result(lists.Type, nil)
		wrapped = over.makeTexts("eval_wrap_element", wrapped, over.args(&wrapped, &view))
		data, offsets := over.joinTexts(&wrapped)
		if o.failed() {
			return
		}
		out[0] = o.retainColumn(gpu.Column{Type: gpu.Of(gpu.Int32), Len: n, Data: rows})
		out[1] = o.retainColumn(gpu.Column{Type: lists.Type, Len: n, Data: data, Offsets: offsets})
	}()
	return out[0], out[1], err
}
