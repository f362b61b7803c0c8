package parquet

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store"
)

// nullPartition is the value in the name of a folder that means null, as in Hive.
const nullPartition = "__HIVE_DEFAULT_PARTITION__"

// Listing has the files of a source, before any of them is opened.
type Listing struct {
	Paths []string
	// versions has the versions of objects, which a listing of an object store tells.
	versions map[string]Version
	// Partitions are the columns in the names of folders, in the order of the first path.
	Partitions []Partition
}

// Partition is a column whose value comes from the name of a folder, as in
// y=2024/m=03/part.parquet. All rows of a file have the same value.
type Partition struct {
	Field gpu.Field
	// Values has the value of each path. It may be null.
	Values []gpu.Scalar
}

// version returns the version of a file if its listing tells it, or else nil.
func (l *Listing) version(path string) *Version {
	if v, ok := l.versions[path]; ok {
		return &v
	}
	return nil
}

// of returns some of the files.
func (l *Listing) of(kept []int) (some Listing) {
	for _, i := range kept {
		some.Paths = append(some.Paths, l.Paths[i])
	}
	for _, p := range l.Partitions {
		values := make([]gpu.Scalar, len(kept))
		for i, k := range kept {
			values[i] = p.Values[k]
		}
		some.Partitions = append(some.Partitions, Partition{p.Field, values})
	}
	return some
}

// List lists the files that paths name, as Open does, and their partition columns. All files must
// have the same partition columns. The names of folders are percent-decoded.
//
// The type of a partition column is that of opt.Partitions or opt.Schema. Without one it is BIGINT,
// DATE or TIMESTAMP if all values have that form, and VARCHAR otherwise. Numbers with leading zeros
// are strings.
//
// Values that do not have the type, and files with other partition columns, are a source.ErrData.
// Paths that include one of opt.Outputs are an ErrOutput.
func List(paths []string, opt OpenOptions) (*Listing, error) {
	l, err := expand(paths, opt)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(l.Paths)) // for errors
	for i, path := range l.Paths {
		names[i] = store.Display(path)
	}
	if opt.NoPartitions || len(names) == 0 {
		return l, nil
	}
	folders := make([][]folderValue, len(names))
	for i, path := range names {
		if folders[i], err = folderValues(path); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", source.ErrData, path, err)
		}
		if !sameKeys(folders[0], folders[i]) {
			return nil,
				fmt.Errorf("%w: the folders of %s give it %s and those of %s %s; name files of one layout, or read "+
					"the folders as plain ones with partitions: none",
					source.ErrData, names[0], describeKeys(folders[0]), path, describeKeys(folders[i]))
		}
	}
	for _, first := range folders[0] {
		p := Partition{Field: gpu.Field{Name: first.key}}
		texts := make([]gpu.Scalar, len(names))
		for i, f := range folders {
			k := slices.IndexFunc(f, func(v folderValue) bool { return v.key == first.key })
			texts[i] = f[k].value
		}
		if err := p.read(names, texts, opt); err != nil {
			return nil, err
		}
		p.Field.Nullable = slices.ContainsFunc(p.Values, func(v gpu.Scalar) bool { return !v.Valid })
		l.Partitions = append(l.Partitions, p)
	}
	for _, given := range opt.Partitions {
		if len(l.Partitions) > 0 && l.partition(given.Name) < 0 {
			return nil, noFolder(names[0], given.Name)
		}
	}
	return l, nil
}

func noFolder(path, name string) error {
	return fmt.Errorf("%w: no folder in the path of %s is named %s=…", source.ErrData, path, name)
}

// checkGiven returns an error if types of partition columns are given and no folder has values of
// them. There is an exception: a file without rows may have the columns itself, because it stands
// for a partitioned output without rows.
func (l *Listing) checkGiven(files []*file, columns [][]leaf, opt OpenOptions) error {
	for _, given := range opt.Partitions {
		if opt.NoPartitions || len(l.Partitions) > 0 {
			continue // List has checked the types
		}
		for i, f := range files {
			if f.rows > 0 || !slices.ContainsFunc(columns[i],
				func(c leaf) bool { return strings.EqualFold(c.field.Name, given.Name) }) {
				return noFolder(f.path, given.Name)
			}
		}
	}
	return nil
}

// adoptTypes gives the columns of a file without rows the types that the options of the source
// state.
func adoptTypes(columns []leaf, opt OpenOptions) {
	given := opt.Partitions
	if opt.Schema != nil {
		given = append(slices.Clone(given), opt.Schema.Fields...)
	}
	for i := range columns {
		for _, g := range given {
			if strings.EqualFold(columns[i].field.Name, g.Name) {
				columns[i].field.Type, columns[i].field.Annotation = g.Type, gpu.NoAnnotation
			}
		}
	}
}

// partition returns the number of the partition column with a name, in upper or lower case, or -1.
func (l *Listing) partition(name string) int {
	return slices.IndexFunc(l.Partitions, func(p Partition) bool { return strings.EqualFold(p.Field.Name, name) })
}

// folderValue is a column in the name of a folder, with its value. The value is a string or null.
type folderValue struct {
	key   string
	value gpu.Scalar
}

// folderValues returns the columns in the names of the folders of a path. Such a name has exactly
// one equals sign, which is not its first character.
func folderValues(path string) (out []folderValue, err error) {
	for _, folder := range strings.Split(filepath.ToSlash(filepath.Dir(path)), "/") {
		key, value, ok := strings.Cut(folder, "=")
		if !ok || key == "" || strings.Contains(value, "=") {
			continue
		}
		v := folderValue{unescape(key), gpu.StringScalar(unescape(value))}
		if value == nullPartition {
			v.value = gpu.Null(gpu.Of(gpu.String))
		}
		if !utf8.ValidString(v.key) || !utf8.ValidString(v.value.Str) {
			return nil, fmt.Errorf("the folder %q is not UTF-8", folder)
		}
		if slices.ContainsFunc(out, func(o folderValue) bool { return strings.EqualFold(o.key, v.key) }) {
			return nil, fmt.Errorf("two folders of the path are named %s=…", v.key)
		}
		out = append(out, v)
	}
	return out, nil
}

// unescape replaces each %XX by the byte with this code. It keeps a % that two hexadecimal digits
// do not follow.
func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	return escape.ReplaceAllStringFunc(s, func(x string) string {
		b, err := url.PathUnescape(x)
		if err != nil {
			return x
		}
		return b
	})
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func sameKeys(a, b []folderValue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].key != b[i].key && !slices.ContainsFunc(b, func(v folderValue) bool { return v.key == a[i].key }) {
			return false
		}
	}
	return true
}

func describeKeys(list []folderValue) string {
	if len(list) == 0 {
		return "no partition columns"
	}
	keys := make([]string, len(list))
	for i, v := range list {
		keys[i] = v.key
	}
	return "the partition columns " + phrase.Some(keys, 10, ", ")
}

var (
	wholeText  = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	dateText   = regexp.MustCompile(`^[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}$`)
	momentText = regexp.MustCompile(`^[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}[ T][0-9]`)
)

// read finds the type of a partition column and its values.
func (p *Partition) read(paths []string, texts []gpu.Scalar, opt OpenOptions) error {
	// NULL means null too, except in a column of strings.
	orNull := slices.Clone(texts)
	for i, v := range orNull {
		if strings.EqualFold(v.Str, "null") {
			orNull[i] = gpu.Null(v.Type)
		}
	}
	given := opt.Partitions
	if opt.Schema != nil {
		given = append(slices.Clone(given), opt.Schema.Fields...)
	}
	if k := slices.IndexFunc(given, func(f gpu.Field) bool { return strings.EqualFold(f.Name, p.Field.Name) }); k >= 0 {
		if p.Field.Type = given[k].Type; p.Field.Type.Kind != gpu.String {
			texts = orNull
		}
		p.Values = castTexts(texts, p.Field.Type)
		for i, v := range p.Values {
			if texts[i].Valid && !v.Valid {
				return fmt.Errorf("%w: %s: the value %q of the partition column %s is no %v", source.ErrData, paths[i],
					texts[i].Str, p.Field.Name, p.Field.Type)
			}
		}
		return nil
	}
	for _, c := range []struct {
		form *regexp.Regexp
		typ  gpu.Type
	}{{wholeText, gpu.Of(gpu.Int64)}, {dateText, gpu.Of(gpu.Date)},
		{momentText, gpu.TimestampOf(gpu.Microsecond, false)}} {
		some := false
		all := !slices.ContainsFunc(orNull, func(v gpu.Scalar) bool {
			some = some || v.Valid
			return v.Valid && !c.form.MatchString(v.Str)
		})
		if !some || !all {
			continue
		}
		values := castTexts(orNull, c.typ)
		for i := range values {
			all = all && values[i].Valid == orNull[i].Valid
		}
		if all {
			p.Field.Type, p.Values = c.typ, values
			return nil
		}
	}
	p.Field.Type, p.Values = gpu.Of(gpu.String), texts
	return nil
}

// castTexts casts strings to a type, as SQL does. A string that cannot be cast becomes null.
func castTexts(texts []gpu.Scalar, t gpu.Type) []gpu.Scalar {
	if t.Kind == gpu.String {
		return texts
	}
	program := &gpu.Program{Inputs: []gpu.Type{gpu.Of(gpu.String)},
		Code: []gpu.Instr{{Op: gpu.OpCast, Type: t, Args: []int{0}, Mask: -1, N: 1}}, Outputs: []int{1}}
	out := make([]gpu.Scalar, len(texts))
	cols, err := host.Evaluate(host.HeapLease("partitions", 0), program,
		[]gpu.Column{gpu.ColumnOf(gpu.Of(gpu.String), texts)}, len(texts))
	for i := range out {
		if out[i] = gpu.Null(t); err == nil {
			out[i] = cols[0].ScalarAt(i)
		}
	}
	return out
}
