package parquet

import "github.com/gstream/gstream/gpu"

// Columns of lists of one leaf, and of lists of such lists, are built entry by entry. A scan that reads fields
// of structs in lists has many of them.

// listsAround returns the lists around the leaf of a nested column, outermost first, or nil if it has maps, structs
// or intervals.
func listsAround(n *nestedNode) (lists []*nestedNode) {
	for ; n.list && n.t.Kind == gpu.List; n = n.children[0] {
		lists = append(lists, n)
	}
	if len(n.children) > 0 || n.t.Kind == gpu.Interval {
		return nil
	}
	return lists
}

// listRows appends rows of a column of lists of a leaf.
func (b *nestedBuilder) listRows(lists []*nestedNode, rows int) error {
	r := listReader{b: b, l: b.leaves[0], lists: lists, rows: rows}
	leaf := lists[len(lists)-1].children[0]
	r.full, r.nullable = leaf.null, leaf.nullable
	for r.rows > 0 {
		if r.l.pos == r.l.n {
			more, err := r.l.fill()
			if err != nil {
				return err
			}
			if !more {
				break
			}
		}
		if err := r.batch(); err != nil {
			return err
		}
	}
	if r.rows > 0 && r.begun {
		if err := r.end(); err != nil {
			return err
		}
	}
	if r.rows > 0 {
		return badf("the pages of %q end before the rows of the row group", r.l.pages.col.field.Name)
	}
	return nil
}

// listReader reads rows of a column of lists of a leaf.
type listReader struct {
	b        *nestedBuilder
	l        *leafCursor
	lists    []*nestedNode
	full     uint8 // definition level of a value
	nullable bool  // of values
	rows     int   // that are left, with the one that has begun
	begun    bool  // a row has begun
	null     bool  // and is null
	open     int   // the number of its lists that have not ended
}

// end ends the row.
func (r *listReader) end() error {
	r.close(0)
	r.begun = false
	r.rows--
	return r.b.endRow(!r.null)
}

// close ends all but the outer lists.
func (r *listReader) close(outer int) {
	for ; r.open > outer; r.open-- {
		r.b.out = gpu.CloseNested(r.b.out)
	}
}

// batch appends the entries of a batch that belong to the rows.
func (r *listReader) batch() error {
	// An entry begins and ends each list at most once, or is a null.
	around := 2*len(r.lists) + 1
	if err := r.b.reserve((r.l.n-r.l.pos+1)*(around+r.l.width) + around); err != nil {
		return err
	}
	for ; r.l.pos < r.l.n; r.l.pos++ {
		rep, def := int(r.l.reps[r.l.pos]), r.l.defs[r.l.pos]
		if rep == 0 {
			if r.begun {
				if err := r.end(); err != nil || r.rows == 0 {
					return err
				}
			}
			r.begun, r.null = true, false
		} else {
			if !r.begun || rep > r.open || def < r.lists[rep-1].present {
				return badLevels(r.l.pages.col.field.Name)
			}
			r.close(rep)
		}
		if r.open < len(r.lists) {
			if done, err := r.begin(def); err != nil {
				return err
			} else if done {
				continue
			}
		}
		if def < r.full {
			if !r.nullable {
				return badLevels(r.l.pages.col.field.Name)
			}
			r.b.out = gpu.AppendNull(r.b.out)
			continue
		}
		if err := r.leafValue(around); err != nil {
			return err
		}
	}
	return nil
}

// begin begins the inner lists of an entry. It is true if one of them is null or empty, or the row is.
func (r *listReader) begin(def uint8) (bool, error) {
	for ; r.open < len(r.lists); r.open++ {
		switch list := r.lists[r.open]; {
		case def >= list.present:
			r.b.out = gpu.OpenNested(r.b.out)
		case def >= list.null:
			r.b.out = gpu.CloseNested(gpu.OpenNested(r.b.out))
			return true, nil
		case r.open == 0:
			r.null = true
			return true, nil
		case list.nullable:
			r.b.out = gpu.AppendNull(r.b.out)
			return true, nil
		default:
			return true, badLevels(r.l.pages.col.field.Name)
		}
	}
	return false, nil
}

// leafValue appends the next value of the leaf. There is room for it, and for around more bytes of each later entry of
// the batch, unless values have any length.
func (r *listReader) leafValue(around int) error {
	i := r.l.value
	r.l.value++
	if r.l.width > 0 {
		r.b.out = append(r.b.out, r.l.bytes[i*r.l.width:(i+1)*r.l.width]...)
		return nil
	}
	if r.l.values.Dict != nil {
		i = r.l.values.Code(i)
	}
	s := r.l.bytes[r.l.offsets[i]:r.l.offsets[i+1]]
	if err := r.b.reserve(2*len(s) + 3 + (r.l.n-r.l.pos+1)*around + around); err != nil {
		return err
	}
	r.b.out = gpu.AppendBytes(r.b.out, s)
	return nil
}
