package cuda

import "github.com/gstream/gstream/gpu"

// timeItem is Item of eval_time.cu.
type timeItem struct {
	kind                      gpu.TimeItemKind
	field                     gpu.TimeField
	width, lo, hi, text, size int32
	_                         int32
}

// parseTime runs OpParseTime.
func (e *evaluation) parseTime(i int, x *register) register {
	in := &e.p.Code[i]
	f, err := gpu.ParseTimeFormat(in.Value.Str)
	if err != nil {
		e.fail(err)
		return register{}
	}
	var text []byte
	items := make([]timeItem, len(f.Items))
	for k, item := range f.Items {
		items[k] = timeItem{kind: item.Kind, field: item.Field, width: int32(item.Width), lo: int32(item.Lo),
			hi: int32(item.Hi), text: int32(len(text)), size: int32(len(item.Text))}
		text = append(text, item.Text...)
	}
	out := e.result(in.Type, x.valid)
	a := e.args(&out, x)
	set, table := e.upload(gpu.BytesOf(items)), e.upload(text)
	a.set, a.table, a.p, a.q = addr(set), addr(table), int64(len(items)), in.Type.Unit.PerSecond()
	if f.ByDayOfYear {
		a.mode = 1
	}
	e.checked(i, &out, &a, false)
	e.rows("eval_strptime", a)
	e.free(set)
	e.free(table)
	return out
}
