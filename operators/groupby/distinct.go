package groupby

import (
	"sync"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators"
)

// numberedRows is the least number of rows per value of a dictionary whose values are numbered, by the
// planner's bound of the rows.
const numberedRows = 2

// distinct numbers the distinct values of the first dictionary of a text key. The numbers are the codes of a
// dictionary of distinct values, which all lanes, the partitions and the result share. So texts are
// compared once for each value of the dictionary, and not for each row.
type distinct struct {
	mu      sync.Mutex
	of      *gpu.Dictionary // whose values are numbered; nil before the first
	numbers gpu.Column      // by code of it
	dict    *gpu.Dictionary // of distinct values, by number
}

// number replaces the codes of the text keys of a stride by numbers, on the CPU. A lane waits while another one
// numbers the values of a key, so each begins with another key.
func (l *local) number(s *gpu.Stride) error {
	if l.task.Device.Properties().BlockTables { // a GPU packs keys instead
		return nil
	}
	for i := range l.Keys {
		i = (i + l.first) % len(l.Keys)
		c := s.Cols[l.Keys[i]]
		if !c.Type.IsVar() || c.Dict == nil || c.Dict.Distinct || c.Dict.Values.Valid != nil ||
			c.Dict.Values.Len > max(s.Rows, l.Hint.Rows/numberedRows) {
			continue
		}
		coded, err := l.texts[i].code(l.task, c)
		if err != nil {
			return err
		}
		c.Release()
		s.Cols[l.Keys[i]] = coded
	}
	return nil
}

// code returns a column with the numbers as its codes, or the column if it has another dictionary or there
// was no memory for numbers.
func (d *distinct) code(t operators.Task, c gpu.Column) (gpu.Column, error) {
	if err := d.numberOnce(t, c.Dict); err != nil {
		return c, err
	}
	if d.of != c.Dict || d.dict == nil {
		return c.Retain(), nil
	}
	codes := c
	codes.Type, codes.Dict = d.numbers.Type, &gpu.Dictionary{Values: d.numbers}
	out, err := t.Queue.Concat(t.Lease, []gpu.Column{codes, gpu.ColumnOf(codes.Type, nil)}) // without the dictionary
	if err != nil {
		return c, err
	}
	d.dict.Values.Retain()
	out.Type, out.Dict = c.Type, d.dict
	return out, nil
}

// numberOnce numbers the values of the first dictionary.
func (d *distinct) numberOnce(t operators.Task, of *gpu.Dictionary) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != nil {
		return nil
	}
	d.of = of
	err := d.numberValues(t, of.Values)
	if gpu.IsOutOfMemory(err) {
		return nil
	}
	return err
}

// numberValues numbers values. If memory is denied, there are no numbers.
func (d *distinct) numberValues(t operators.Task, values gpu.Column) error {
	groups, err := t.Queue.NewGroups(t.Lease, []gpu.Type{values.Type}, gpu.GroupHint{})
	if err != nil {
		return err
	}
	defer groups.Release()
	a, err := groups.Assign(t.Queue, t.Lease, []gpu.Column{values}, values.Len)
	if err != nil {
		return err
	}
	defer a.Release()
	keys, err := groups.Keys(t.Queue, t.Lease, 0, groups.Len())
	if err != nil {
		return err
	}
	defer gpu.ReleaseColumns(keys)
	plain, err := t.Queue.Concat(t.Lease, []gpu.Column{keys[0], gpu.ColumnOf(values.Type, nil)})
	if err != nil {
		return err
	}
	d.numbers, d.dict = a.IDs().Retain(), &gpu.Dictionary{Values: plain, Distinct: true}
	return nil
}

// release releases the numbers. Columns have references to the distinct values.
func (d *distinct) release() {
	if d.dict != nil {
		d.numbers.Release()
		d.dict.Values.Release()
		d.dict = nil
	}
}
