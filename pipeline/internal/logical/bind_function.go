package logical

import (
	"slices"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators/expr"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/pipeline/job"
)

// function binds a table function.
func (b *queryBinder) function(t *syntax.TableFunction, l *level) (*Relation, error) {
	name := t.Call.Name
	if m, ok := b.macros[folded(name)]; ok {
		return b.tableMacro(t, m, l)
	}
	r, err := b.functionRows(t)
	if err != nil {
		return nil, err
	}
	if t.Ordinality {
		r = b.withOrdinality(r, t.Columns)
	}
	return b.withAlias(t, r, name, t.Alias)
}

func (b *queryBinder) functionRows(t *syntax.TableFunction) (*Relation, error) {
	switch t.Call.Name {
	case "read_parquet", "parquet_scan", "read_csv", "read_csv_auto", "read_arrow", "read_json", "read_json_auto",
		"read_ndjson", "read_ndjson_auto":
		key, _, err := job.TableCall(t)
		if err != nil {
			return nil, err
		}
		r, ok := b.named[key]
		if !ok {
			return nil, mistake(t, "there is no table %s", key)
		}
		if r == nil {
			return nil, errFaulty
		}
		return b.source(key, r.node.(*rel.Scan).Table), nil
	case "range", "generate_series":
		return b.series(t)
	case "glob":
		return b.glob(t)
	}
	if t.Call.Name == "unnest" {
		return nil, mistake(t, "unnest follows a comma or CROSS JOIN, as in FROM t, unnest(t.list) AS u(x)")
	}
	return nil, mistake(t, "there is no table function %q; there are read_parquet, read_csv, read_json, "+
		"read_arrow, range, generate_series, glob and unnest",
		t.Call.Name)
}

// withOrdinality adds a column with the number of each row, from 1. Another column may have its name.
func (b *queryBinder) withOrdinality(r *Relation, names []string) *Relation {
	name := "ordinality"
	if slices.ContainsFunc(names[:min(len(names), len(r.columns))], func(n string) bool { return folded(n) == name }) {
		name += "0"
	}
	n, number := ranked(b.here(), r.node, nil, nil)
	items := append(r.items(b.estimator), item{n.Rel().Expr(number), name, nil})
	out := project(b.here(), n, items)
	out.unreadable = r.unreadable
	return out
}

// glob has the files of patterns.
func (b *queryBinder) glob(t *syntax.TableFunction) (*Relation, error) {
	args := t.Call.Args
	if len(args) == 1 {
		if list, ok := args[0].(*syntax.Row); ok {
			args = list.Items
		}
	}
	if len(args) == 0 || len(args) > 1 && len(t.Call.Args) > 1 || len(t.Named) > 0 {
		return nil, mistake(t, "glob takes a pattern, as in glob('x/*.parquet'), or a list of patterns")
	}
	var rows [][]gpu.Scalar
	for _, a := range args {
		e, err := b.constant(a)
		if err != nil {
			return nil, err
		}
		v, _ := e.Constant()
		if e.Type().Kind != gpu.String || !v.Valid {
			return nil, mistake(a, "glob takes a pattern in quotes, as in glob('x/*.parquet')")
		}
		if b.query.Files == nil {
			continue
		}
		files, err := b.query.Files(v.Str)
		if err != nil {
			return nil, mistake(a, "%v", err)
		}
		for _, f := range files {
			rows = append(rows, []gpu.Scalar{gpu.StringScalar(f)})
		}
	}
	return b.oneColumn(gpu.Field{Name: "file", Type: gpu.Of(gpu.String)}, rows), nil
}

// oneColumn has rows of constants.
func (b *queryBinder) oneColumn(f gpu.Field, rows [][]gpu.Scalar) *Relation {
	id := b.md.Add(rel.Column{Field: f})
	return &Relation{node: rel.NewValues(b.md, b.here(), []rel.ID{id}, rows), columns: []column{{id: id}}}
}

// maxSeries bounds the rows of range() and generate_series().
const maxSeries = 1 << 20

// series is range([start,] stop[, step]), and generate_series, which includes stop: of whole numbers, or of times and
// an interval.
func (b *queryBinder) series(t *syntax.TableFunction) (*Relation, error) {
	name := t.Call.Name
	if n := len(t.Call.Args); n < 1 || n > 3 || len(t.Named) > 0 {
		return nil, mistake(t, "%s takes (stop), (start, stop) or (start, stop, step)", name)
	}
	if len(t.Call.Args) == 3 {
		months, days, micros, ok, err := expr.ConstantInterval(t.Call.Args[2], b.scope(&Relation{node: b.noRows()}))
		if err != nil {
			return nil, err
		}
		if ok {
			return b.times(t, months, days, micros)
		}
	}
	field := gpu.Field{Name: name, Type: gpu.Of(gpu.Int64)}
	values := []int64{0, 0, 1}
	at := 0
	if len(t.Call.Args) == 1 {
		at = 1
	}
	for i, a := range t.Call.Args {
		e, err := b.constant(a)
		if err != nil {
			return nil, err
		}
		v, _ := e.Constant()
		if !v.Valid {
			return b.oneColumn(field, nil), nil
		}
		if _, text := a.(*syntax.StringLiteral); !e.Type().IsInteger() && !text {
			return nil, mistake(a, "%s takes whole numbers, or two times and an interval", name)
		}
		if e, err = expr.Cast(e, gpu.Of(gpu.Int64), host.Fold); err != nil {
			return nil, mistake(a, "%v", err)
		}
		v, _ = e.Constant()
		values[at+i] = v.Int.Int64()
	}
	start, stop, step := values[0], values[1], values[2]
	if step == 0 {
		return nil, mistake(t, "the step of %s cannot be 0", name)
	}
	var rows [][]gpu.Scalar
	for v := start; step > 0 && v < stop || step < 0 && v > stop || name != "range" && v == stop; {
		if len(rows) == maxSeries {
			return nil, mistake(t, "%s has more than %d rows", name, maxSeries)
		}
		rows = append(rows, []gpu.Scalar{gpu.IntScalar(field.Type, v)})
		next := v + step
		if (next > v) != (step > 0) {
			break // beyond the largest number
		}
		v = next
	}
	return b.oneColumn(field, rows), nil
}

// times is a series of times. Each is the one before plus the interval.
func (b *queryBinder) times(t *syntax.TableFunction, months, days, micros int64) (*Relation, error) {
	name := t.Call.Name
	forward, backward := months >= 0 && days >= 0 && micros >= 0, months <= 0 && days <= 0 && micros <= 0
	switch {
	case forward && backward:
		return nil, mistake(t, "the step of %s cannot be 0", name)
	case !forward && !backward:
		return nil, mistake(t, "the parts of the step of %s must have the same sign", name)
	}
	field := gpu.Field{Name: name, Type: gpu.TimestampOf(gpu.Microsecond, false)}
	var ends [2]*expr.Expr
	for i, a := range t.Call.Args[:2] {
		e, err := b.constant(a)
		if err != nil {
			return nil, err
		}
		k := e.Type()
		if v, _ := e.Constant(); v.Valid && k.Kind != gpu.Date && k.Kind != gpu.Timestamp {
			return nil, mistake(a, "%s with an interval takes dates and timestamps; write a DATE or TIMESTAMP before "+
				"the text", name)
		}
		if ends[i] = e; k.Kind == gpu.Timestamp && k.UTC {
			field.Type = k
		}
	}
	var bounds [2]int64
	for i, e := range ends {
		if v, _ := e.Constant(); !v.Valid {
			return b.oneColumn(field, nil), nil
		}
		e, err := expr.Cast(e, field.Type, host.Fold)
		if err != nil {
			return nil, mistake(t.Call.Args[i], "%v", err)
		}
		v, _ := e.Constant()
		if bounds[i] = v.Int.Int64(); bounds[i] <= -1<<63+1 || bounds[i] == 1<<63-1 {
			return nil, mistake(t.Call.Args[i], "%s takes times that are not infinite", name)
		}
	}
	var rows [][]gpu.Scalar
	for at, stop := bounds[0], bounds[1]; forward && at < stop || backward && at > stop ||
		name != "range" && at == stop; {
		if len(rows) == maxSeries {
			return nil, mistake(t, "%s has more than %d rows", name, maxSeries)
		}
		rows = append(rows, []gpu.Scalar{gpu.IntScalar(field.Type, at)})
		next := later(at, months, days) + micros
		if (next > at) != forward {
			break // beyond the last time
		}
		at = next
	}
	return b.oneColumn(field, rows), nil
}

// later adds months and days to a time in microseconds. A day that the month does not have becomes its last one.
func later(micros, months, days int64) int64 {
	t := time.UnixMicro(micros).UTC()
	first := time.Date(t.Year(), t.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	day := min(t.Day(), first.AddDate(0, 1, -1).Day())
	midnight := t.Truncate(24 * time.Hour)
	return first.AddDate(0, 0, day-1+int(days)).UnixMicro() + t.Sub(midnight).Microseconds()
}
