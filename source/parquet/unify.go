package parquet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/source"
)

// maxFaults bounds the number of schema differences that an error lists.
const maxFaults = 20

// unify merges the columns of the files into one schema, and gives each file its columns in the
// order of this schema.
func (t *Table) unify(files [][]leaf, l *Listing, opt OpenOptions) error {
	u := unifier{table: t, listing: l, strict: opt.Strict, given: opt.Schema != nil, exact: map[string]int{},
		folded: map[string]int{}}
	if u.given {
		for _, f := range opt.Schema.Fields {
			u.append(leaf{field: f}, nil)
		}
	}
	at := make([][]int, len(files)) // for each column of each file, its position in the table
	for i, columns := range files {
		at[i] = u.add(t.files[i], columns)
	}
	for i, p := range l.Partitions {
		if !u.given && !slices.ContainsFunc(u.columns, func(c unified) bool { return c.path == i }) {
			u.append(leaf{field: p.Field}, nil)
		}
	}
	if !u.given && !u.strict {
		u.mixUnreadable(at)
		u.leaveOutMixed(at)
	}
	u.moveInside(at)
	t.schema, t.visible = &gpu.Schema{}, &gpu.Schema{}
	for _, c := range u.columns {
		if u.given && c.from == nil && c.path < 0 {
			u.faultf("no file has a column %q%s", c.field.Name, u.nearest(c.field.Name, files))
		}
	}
	for i, f := range t.files {
		t.adopt(f, files[i], at[i], &u)
	}
	for _, c := range u.columns {
		t.schema.Fields = append(t.schema.Fields, c.field)
		if c.inside == nil {
			t.visible = gpu.NewSchema(t.schema.Fields...)
		} else {
			t.inside = append(t.inside, c.inside)
		}
	}
	if n := len(u.faults); n > maxFaults {
		u.faults = append(u.faults[:maxFaults:maxFaults], fmt.Errorf("and %d more differences", n-maxFaults))
	}
	if len(u.faults) > 0 {
		what := "one schema"
		if u.given {
			what = "the schema of the source"
		}
		return fmt.Errorf("%w: the files do not have %s: %w", source.ErrData, what, errors.Join(u.faults...))
	}
	return nil
}

// unifier collects the columns of a table.
type unifier struct {
	table   *Table
	listing *Listing
	strict  bool
	given   bool // the columns and their types are given
	columns []unified
	exact   map[string]int // by name
	folded  map[string]int // by name in lower case; the first column if several have this name
	faults  []error
}

// unified is a column of the table.
type unified struct {
	field gpu.Field
	from  *file // the first file that has the column in this type, or has the given column
	path  int   // number of the partition column that provides the values; -1 if there is none
	// inside is the path of a column inside of a nested one; see leaf.paths.
	inside []string
	// mixed says why no type can represent the values of all files. It is nil if a type can.
	mixed *source.Unreadable
}

// mix marks a column that has an incompatible type in a file. It is an error only for jobs that use
// the column.
func (c *unified) mix(typ, where string) {
	c.mixed = &source.Unreadable{Name: c.field.Name, Type: c.field.TypeName() + " or " + typ,
		Reason: fmt.Sprintf("it is %s in %s and %s in %s, and these have no type in common; list the columns that "+
			"you need under schema: of the source, or read the files as two sources and cast the column before a union",
			c.field.TypeName(), c.from.path, typ, where)}
}

// mixUnreadable marks the columns that can be read in some of the files only.
func (u *unifier) mixUnreadable(at [][]int) {
	for i, f := range u.table.files {
		for _, r := range f.refused {
			k := u.find(r.Name, nil)
			if k < 0 || u.columns[k].path >= 0 || u.columns[k].mixed != nil || slices.Contains(at[i], k) {
				continue
			}
			u.columns[k].mix(fmt.Sprintf("%s, which cannot be read because %s,", r.Type, r.Reason), f.path)
			u.columns[k].mixed.Type = u.columns[k].field.TypeName() + " or " + r.Type
		}
	}
}

// leaveOutMixed removes the marked columns from the table.
func (u *unifier) leaveOutMixed(at [][]int) {
	var kept []unified
	to := make([]int, len(u.columns))
	for i, c := range u.columns {
		if to[i] = len(kept); c.mixed == nil {
			kept = append(kept, c)
			continue
		}
		to[i] = -1
		if c.inside != nil {
			continue
		}
		u.table.refused = slices.DeleteFunc(u.table.refused,
			func(r source.Unreadable) bool { return strings.EqualFold(r.Name, c.field.Name) })
		u.table.refused = append(u.table.refused, *c.mixed)
	}
	u.columns = kept
	for _, columns := range at {
		for j, i := range columns {
			columns[j] = to[i]
		}
	}
}

// commonType returns the type of a column whose files have two types. Strings and bytes together
// are bytes, as in DuckDB. A UUID and strings have no common type, because the text of a UUID
// differs from its bytes.
func commonType(a, b gpu.Field) (gpu.Type, bool) {
	s, t := a.Type, b.Type
	switch {
	case s.IsNested() || t.IsNested():
		return s, s == t
	case s.IsVar() && t.IsVar() && s.Kind != t.Kind:
		return gpu.Of(gpu.Binary), a.Annotation != gpu.UUID && b.Annotation != gpu.UUID
	case t.Kind == gpu.Bool:
		s, t = t, s
	}
	if s.Kind == gpu.Bool && t.IsFloat() {
		return t, true
	}
	if s.Kind == gpu.Bool && t.Kind == gpu.Decimal {
		return gpu.CommonType(gpu.DecimalOf(1, 0), t)
	}
	return gpu.CommonType(s, t)
}

func (u *unifier) faultf(format string, args ...any) {
	u.faults = append(u.faults, fmt.Errorf(format, args...))
}

// add adds the columns of a file. It returns the position of each column in the table.
func (u *unifier) add(f *file, columns []leaf) []int {
	at := make([]int, len(columns))
	own := make(map[string]bool, len(columns))
	for _, c := range columns {
		own[c.key()] = true
	}
	taken := map[int]bool{}
	before := len(u.columns)
	for i, c := range columns {
		at[i] = u.find(c.key(), own)
		if at[i] >= 0 && !taken[at[i]] {
			taken[at[i]] = true
			u.merge(f, &u.columns[at[i]], c.field)
			continue
		}
		if u.given {
			at[i] = -1
			continue
		}
		if u.strict && f != u.table.files[0] && c.path == nil {
			u.faultf("%s has a column %q, but %s has none that can be read", f.path, c.field.Name,
				u.table.files[0].path)
		}
		at[i] = len(u.columns)
		taken[at[i]] = true
		u.append(c, f)
	}
	if len(u.columns) == before+len(columns) && before > 0 && len(columns) > 0 && !u.strict {
		u.faultf("%s has none of the columns of the files before it (%s); read it as another source", f.path,
			u.names(before))
	}
	return at
}

// append adds a column to the table.
func (u *unifier) append(c leaf, from *file) {
	field, key := c.field, c.key()
	u.exact[key] = len(u.columns)
	fold := strings.ToLower(key)
	if _, ok := u.folded[fold]; !ok {
		u.folded[fold] = len(u.columns)
	}
	path := u.listing.partition(key)
	if path >= 0 {
		of := u.listing.Partitions[path].Field
		field = gpu.Field{Name: field.Name, Type: of.Type, Nullable: of.Nullable}
	}
	u.columns = append(u.columns, unified{field: field, from: from, path: path, inside: c.path})
}

// moveInside moves the columns inside of nested ones behind the others. Those of what is no column are left out.
func (u *unifier) moveInside(at [][]int) {
	var columns, inside []unified
	to := make([]int, len(u.columns))
	for i, c := range u.columns {
		if c.inside == nil {
			to[i] = len(columns)
			columns = append(columns, c)
		}
	}
	for i, c := range u.columns {
		if c.inside == nil {
			continue
		}
		to[i] = len(columns) + len(inside)
		if !slices.ContainsFunc(columns, func(of unified) bool {
			return of.field.Name == c.inside[0] && of.path < 0 && of.field.Type.IsNested()
		}) {
			to[i] = -1
			continue
		}
		inside = append(inside, c)
	}
	u.columns = append(columns, inside...)
	for _, of := range at {
		for j, i := range of {
			if i >= 0 {
				of[j] = to[i]
			}
		}
	}
}

// find returns the column of the table that a column of a file belongs to, or -1. A column of the
// table matches in another case too, unless the file has a column with exactly the name of the
// table's column.
func (u *unifier) find(name string, own map[string]bool) int {
	if i, ok := u.exact[name]; ok {
		return i
	}
	i, ok := u.folded[strings.ToLower(name)]
	if !ok || u.strict || own[u.columns[i].field.Name] {
		return -1
	}
	return i
}

// merge adjusts the type of a table's column so that it represents the values of one more file.
func (u *unifier) merge(f *file, c *unified, field gpu.Field) {
	if c.path >= 0 || c.mixed != nil {
		return
	}
	before := c.field // including its annotation
	if c.from == nil {
		c.from = f
		if field.Annotation != gpu.AllNull {
			c.field.Annotation = field.Annotation
		}
	}
	if !u.strict {
		switch gpu.AllNull {
		case field.Annotation:
			return
		case c.field.Annotation:
			c.field, c.from = gpu.Field{Name: c.field.Name, Type: field.Type, Annotation: field.Annotation,
				Nullable: c.field.Nullable}, f
			return
		}
	}
	if field.Annotation != c.field.Annotation {
		if u.strict && (field.Annotation == gpu.AllNull || c.field.Annotation == gpu.AllNull) {
			u.faultf("%s: column %q is %s, in %s it is %s", f.path, field.Name, field.TypeName(), c.from.path,
				c.field.TypeName())
			return
		}
		c.field.Annotation = gpu.NoAnnotation
	}
	if field.Type == c.field.Type {
		return
	}
	common, ok := commonType(before, field)
	switch {
	case u.given && (!ok || !common.SameSQL(c.field.Type)):
		u.faultf("%s: column %q is %v, and the schema of the source says %v, which does not hold all its values; "+
			"write %v there, or cast the column in a step", f.path, field.Name, field.Type, c.field.Type, field.Type)
	case u.given:
	case u.strict:
		u.faultf("%s: column %q is %v, in %s it is %v", f.path, field.Name, field.Type, c.from.path, c.field.Type)
	case !ok:
		c.field.Annotation = before.Annotation
		c.mix(field.TypeName(), f.path)
	case common != c.field.Type:
		c.field.Type = common
		if common == field.Type {
			c.from = f
		}
	}
}

// adopt puts the columns of a file into the order of the table. at has the position in the table of
// each column.
func (t *Table) adopt(f *file, columns []leaf, at []int, u *unifier) {
	order := make([]int, len(u.columns))
	for i := range order {
		order[i] = -1
	}
	for i, c := range at {
		if c >= 0 {
			order[c] = i
		}
	}
	f.cols = make([]leaf, len(order))
	for i, j := range order {
		c := &u.columns[i]
		switch {
		case c.path >= 0:
			f.cols[i] = constantLeaf(c.field, f.values[c.path])
		case j < 0:
			if refused := f.refuses(c.field.Name); refused != nil {
				where := "in the schema of the source"
				if c.from != nil {
					where = "in " + c.from.path
				}
				u.faultf("%s: column %q is %v and cannot be read (%s), %s it is %v; leave the file or the column out",
					f.path, c.field.Name, refused.Type, refused.Reason, where, c.field.Type)
			} else if u.strict && !u.given && c.inside == nil {
				u.faultf("%s has no column %q that can be read, but %s has", f.path, c.field.Name, c.from.path)
			}
			f.cols[i] = constantLeaf(c.field, gpu.Null(c.field.Type))
		case columns[j].constant != nil:
			f.cols[i] = constantLeaf(c.field, gpu.Null(c.field.Type))
		default:
			f.cols[i] = columns[j]
			f.cols[i].as = c.field.Type
		}
		c.field.Nullable = c.field.Nullable || f.cols[i].optional
	}
	for g := range f.groups {
		group := &f.groups[g]
		chunks := make([]chunk, len(order))
		for i, j := range order {
			if f.cols[i].constant != nil {
				chunks[i] = f.cols[i].constantChunk(group.rows)
			} else {
				chunks[i] = group.chunks[j]
			}
		}
		group.chunks = chunks
	}
}

// refuses returns the unreadable column with a name, or nil.
func (f *file) refuses(name string) *source.Unreadable {
	i := slices.IndexFunc(f.refused, func(r source.Unreadable) bool { return strings.EqualFold(r.Name, name) })
	if i < 0 {
		return nil
	}
	return &f.refused[i]
}

// names lists the first n columns of the table.
func (u *unifier) names(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = u.columns[i].field.Name
	}
	return phrase.Some(names, 10, ", ")
}

// nearest suggests a column of the first file for a name that no file has.
func (u *unifier) nearest(name string, files [][]leaf) string {
	if len(files) == 0 {
		return ""
	}
	names := make([]string, len(files[0]))
	for i, c := range files[0] {
		names[i] = c.field.Name
	}
	return "; " + u.table.files[0].path + " has " + phrase.Some(names, 10, ", ")
}
