package logical

import (
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// hasNested reports whether a node is a scan with columns inside of nested ones.
func hasNested(n rel.Node) bool {
	scan, ok := n.(*rel.Scan)
	return ok && len(scan.Inside()) > 0
}

// readFields replaces the fields of structs in expressions by the columns of scans that have only these fields, also
// where the struct is an element of a list: the field is then a list of its values, which Unnest takes apart as it does
// the list of structs. What nothing else uses of the nested column is not read.
//
// A list of structs of which one reader needs all fields is read once, as a whole, for all readers. Fields of a struct
// that is in no list are read alone in any case, as they have statistics.
func readFields(_ *Estimator, root rel.Node) rel.Node {
	f := &fieldReading{md: root.Rel().Metadata, inside: map[rel.ID][]field{}, from: map[rel.ID]field{},
		uses: map[rel.ID][]use{}, columns: map[rel.ID][]field{}}
	rel.Visit(root, f.collect)
	for _, c := range root.Rel().Columns {
		f.use(c, nil, false)
	}
	f.choose()
	return rel.Remembered(f.rewrite)(root)
}

// field is a part of a column: the column id has it, or it is a part of the column id.
type field struct {
	path []string
	id   rel.ID
}

// use is the use of a part of a column, or with below, of any part whose path continues this path.
type use struct {
	path  []string
	below bool
}

type fieldReading struct {
	md     *rel.Metadata
	inside map[rel.ID][]field // of columns of scans: their parts
	from   map[rel.ID]field   // columns that are a part of another one
	uses   map[rel.ID][]use
	// columns has the parts that take the place of expressions, of all columns.
	columns map[rel.ID][]field
}

func (f *fieldReading) use(id rel.ID, path []string, below bool) {
	if f.md.Column(id).Type.IsNested() {
		f.uses[id] = append(f.uses[id], use{path, below})
	}
}

func (f *fieldReading) useAll(ids ...rel.ID) {
	for _, id := range ids {
		f.use(id, nil, false)
	}
}

func (f *fieldReading) useParts(exprs ...*expr.Expr) {
	for _, e := range exprs {
		e.Parts(func(p expr.Part) {
			if p.Shape {
				p.Path = append(p.Path, gpu.PathElements)
			}
			f.use(p.Column, p.Path, p.Shape)
		})
	}
}

// define notes that a column is a part of another one.
func (f *fieldReading) define(id, of rel.ID, path []string) {
	if old, ok := f.from[id]; ok && (old.id != of || !slices.Equal(old.path, path)) {
		f.use(of, path, false)
		return
	}
	f.from[id] = field{path, of}
}

// collect notes what a node uses.
func (f *fieldReading) collect(n rel.Node) {
	switch n := n.(type) {
	case *rel.Scan:
		all := n.Inside()
		for i, inside := range all {
			of := n.Columns[inside.Column]
			f.inside[of] = append(f.inside[of], field{inside.Path, n.Columns[len(n.Columns)-len(all)+i]})
		}
	case *rel.Filter:
		f.useParts(n.Conjuncts...)
	case *rel.Project:
		for i, e := range n.Exprs {
			p, ok := e.IsPart()
			switch {
			case ok && len(p.Path) == 0 && p.Column == n.Columns[i]:
			case ok && e.Type().IsNested():
				f.define(n.Columns[i], p.Column, p.Path)
			default:
				f.useParts(e)
			}
		}
	case *rel.Unnest:
		for k, e := range n.Elements {
			f.define(e, n.Lists[k], []string{gpu.PathElements})
			f.use(n.Lists[k], []string{gpu.PathElements}, true)
			f.use(e, nil, true)
		}
	case *rel.Join:
		f.useParts(n.Residual...)
		f.useAll(n.LeftKeys...)
		f.useAll(n.RightKeys...)
		if n.Range != nil {
			f.useParts(n.Range.Conditions...)
		}
	case *rel.Sort:
		for _, k := range n.Keys {
			f.useAll(k.Column)
		}
	case *rel.Group:
		f.useAll(n.Keys...)
		for _, a := range n.Aggregates {
			f.useAll(a.Columns()...)
		}
	case *rel.Limit, *rel.Materialized, *rel.Values, *rel.Working:
	case *rel.Outputs:
		for _, ids := range n.Of {
			f.useAll(ids...)
		}
	case *rel.Union:
		for _, ids := range n.From {
			f.useAll(ids...)
		}
	case *rel.Window:
		f.useAll(n.Partition...)
		for _, k := range n.Order {
			f.useAll(k.Column)
		}
		for _, w := range n.Functions {
			f.useAll(w.Columns()...)
		}
	default:
		for _, in := range rel.Inputs(n) {
			f.useAll(in.Rel().Columns...)
		}
	}
}

// origin returns the column of a scan that a part of a column is a part of, and its path there.
func (f *fieldReading) origin(id rel.ID, path []string) (rel.ID, []string) {
	for {
		of, ok := f.from[id]
		if !ok {
			return id, path
		}
		id, path = of.id, slices.Concat(of.path, path)
	}
}

// choose decides which parts scans read alone, and fills columns.
func (f *fieldReading) choose() {
	users := slices.Sorted(maps.Keys(f.uses))
	each := func(visit func(id rel.ID, u use, of rel.ID, path []string)) {
		for _, id := range users {
			for _, u := range f.uses[id] {
				if of, path := f.origin(id, u.path); f.inside[of] != nil {
					visit(id, u, of, path)
				}
			}
		}
	}
	read := map[rel.ID][][]string{} // the paths that are used
	each(func(_ rel.ID, u use, of rel.ID, path []string) {
		if u.below {
			return
		}
		for len(path) > 0 && path[len(path)-1] == gpu.PathElements {
			path = path[:len(path)-1]
		}
		read[of] = append(read[of], path)
	})
	alone := map[rel.ID][]field{}
	add := func(of rel.ID, part field) {
		if indexOf(alone[of], part.path) < 0 {
			alone[of] = append(alone[of], part)
		}
	}
	for of, paths := range read {
		for _, path := range paths {
			within := func(p []string) bool { return len(p) < len(path) && hasPrefix(path, p) }
			if slices.Contains(path, gpu.PathElements) && slices.ContainsFunc(paths, within) {
				continue
			}
			if k := indexOf(f.inside[of], path); k >= 0 {
				add(of, f.inside[of][k])
			}
		}
	}
	each(func(_ rel.ID, u use, of rel.ID, path []string) {
		around := func(p []string) bool { return hasPrefix(path, p) }
		inside := func(part field) bool { return hasPrefix(part.path, path) }
		if u.below && !slices.ContainsFunc(read[of], around) && !slices.ContainsFunc(alone[of], inside) {
			if k := f.least(f.inside[of], path); k >= 0 {
				add(of, f.inside[of][k])
			}
		}
	})
	each(func(id rel.ID, u use, of rel.ID, path []string) {
		for _, part := range alone[of] {
			if !u.below && hasPrefix(path, part.path) || u.below && hasPrefix(part.path, path) {
				f.provide(id, part)
			}
		}
	})
}

// least returns the part with the fewest bytes of those whose path continues a path, -1 without one.
func (f *fieldReading) least(parts []field, path []string) int {
	least := -1
	size := func(k int) int { return f.md.Column(parts[k].id).Type.TypicalBytes() }
	for k, p := range parts {
		if hasPrefix(p.path, path) && (least < 0 || size(k) < size(least)) {
			least = k
		}
	}
	return least
}

func hasPrefix(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

func indexOf(parts []field, path []string) int {
	return slices.IndexFunc(parts, func(p field) bool { return slices.Equal(p.path, path) })
}

// nameOf returns what follows the name of a column in the name of a part.
func nameOf(path []string) (name string) {
	for _, field := range path {
		if field != gpu.PathElements {
			name += "."
		}
		name += field
	}
	return name
}

// provide makes a column for a part that is inside of a column, and inside of those that this column is a part of, down
// to the scan.
func (f *fieldReading) provide(id rel.ID, part field) {
	for {
		from, derived := f.from[id]
		if _, path := f.origin(id, nil); len(path) < len(part.path) && hasPrefix(part.path, path) {
			rest := part.path[len(path):]
			if indexOf(f.columns[id], rest) >= 0 {
				return
			}
			column := part.id
			if derived {
				c := f.md.Column(part.id)
				for _, name := range path {
					if name == gpu.PathElements {
						c.Type = c.Type.Element()
					}
				}
				c.Name, c.Nullable = f.md.Column(id).Name+nameOf(rest), true
				column = f.md.Add(c)
			}
			f.columns[id] = append(f.columns[id], field{rest, column})
		}
		if !derived {
			return
		}
		id = from.id
	}
}

// within returns expressions over inputs with columns in the place of parts.
func (f *fieldReading) within(exprs []*expr.Expr, ins ...rel.Node) (out []*expr.Expr, changed bool) {
	of := func(p expr.Part) *expr.Expr {
		for _, c := range f.columns[p.Column] {
			if p.Shape && !hasPrefix(c.path, append(p.Path[:len(p.Path):len(p.Path)], gpu.PathElements)) ||
				!p.Shape && !slices.Equal(c.path, p.Path) {
				continue
			}
			for _, in := range ins {
				if in.Rel().Has(c.id) {
					return in.Rel().Expr(c.id)
				}
			}
		}
		return nil
	}
	for i, e := range exprs {
		out = append(out, e.WithParts(of))
		changed = changed || out[i] != e
	}
	return out, changed
}

func (f *fieldReading) rewrite(n rel.Node, again func(rel.Node) rel.Node) rel.Node {
	n = rel.WithInputs(n, again)
	switch n := n.(type) {
	case *rel.Filter:
		if exprs, changed := f.within(n.Conjuncts, n.In); changed {
			return rel.NewFilter(n.Origin, n.In, exprs)
		}
	case *rel.Project:
		exprs, changed := f.within(n.Exprs, n.In)
		columns := slices.Clone(n.Columns)
		for _, id := range n.Columns {
			for _, c := range f.columns[id] {
				from := c.id
				if of, ok := f.from[id]; ok && !n.In.Rel().Has(id) {
					k := indexOf(f.columns[of.id], slices.Concat(of.path, c.path))
					if k < 0 {
						continue
					}
					from = f.columns[of.id][k].id
				}
				if !slices.Contains(columns, c.id) && n.In.Rel().Has(from) {
					columns, exprs, changed = append(columns, c.id), append(exprs, n.In.Rel().Expr(from)), true
				}
			}
		}
		if changed {
			return rel.NewProject(n.Origin, n.In, columns, exprs)
		}
	case *rel.Unnest:
		lists, elements := slices.Clone(n.Lists), slices.Clone(n.Elements)
		for k, e := range n.Elements {
			for _, c := range f.columns[e] {
				path := append([]string{gpu.PathElements}, c.path...)
				parts := f.columns[n.Lists[k]]
				if at := indexOf(parts, path); at >= 0 && n.In.Rel().Has(parts[at].id) {
					lists, elements = append(lists, parts[at].id), append(elements, c.id)
				}
			}
		}
		if len(lists) > len(n.Lists) {
			return rel.NewUnnest(n.Origin, n.In, lists, elements)
		}
	case *rel.Join:
		if exprs, changed := f.within(n.Residual, n.Left, n.Right); changed {
			spec := n.JoinSpec
			spec.Residual = exprs
			j := rel.NewJoin(n.Origin, n.Left, n.Right, spec)
			j.Order = n.Order
			return j
		}
	}
	return n
}
