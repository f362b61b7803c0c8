package logical

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/rel"
)

// describe binds DESCRIBE and SUMMARIZE of a query, which cannot use columns around it.
func (b *queryBinder) describe(n *syntax.Describe, c *catalog) (*Relation, error) {
	r, err := b.boundQuery(n.Query, &level{catalog: c, free: map[rel.ID]bool{}})
	if err != nil {
		return nil, err
	}
	if r = b.distinctColumns(r); n.Summarize {
		return b.summarized(n, r, c)
	}
	return b.described(r), nil
}

// described returns a row for each column of a relation: DESCRIBE.
func (b *queryBinder) described(r *Relation) *Relation {
	text := gpu.Of(gpu.String)
	out := &Relation{}
	var ids []rel.ID
	for _, name := range []string{"column_name", "column_type", "null"} {
		id := b.md.Add(rel.Column{Field: gpu.Field{Name: name, Type: text}})
		ids, out.columns = append(ids, id), append(out.columns, column{id: id})
	}
	var rows [][]gpu.Scalar
	for i := range r.columns {
		f := r.field(i)
		null := "NO"
		if f.Nullable {
			null = "YES"
		}
		var row []gpu.Scalar
		for _, s := range []string{f.Name, f.TypeName(), null} {
			row = append(row, gpu.StringScalar(s))
		}
		rows = append(rows, row)
	}
	out.node = rel.NewValues(b.md, b.here(), ids, rows)
	return out
}

// maxSummarized bounds the columns of SUMMARIZE: it has eight aggregates for each.
const maxSummarized = 1000

// summarized returns a row with aggregates for each column of a relation: SUMMARIZE. It is a query over one row with
// all aggregates.
func (b *queryBinder) summarized(n *syntax.Describe, r *Relation, c *catalog) (*Relation, error) {
	if len(r.columns) > maxSummarized {
		return nil, mistake(n, "SUMMARIZE is possible for at most %d columns, and these are %d; "+
			"select some", maxSummarized, len(r.columns))
	}
	if len(r.columns) == 0 {
		return nil, mistake(n, "there is no column to summarize")
	}
	type measure struct{ name, sql, none string }
	measures := []measure{
		{"min", "min(%s)::VARCHAR", ""}, {"max", "max(%s)::VARCHAR", ""},
		{"approx_unique", "approx_count_distinct(%s)", ""},
		{"avg", "avg(%s)::VARCHAR", "n"}, {"std", "stddev(%s::DOUBLE)::VARCHAR", "n"},
		{"q25", "quantile_disc(%s, 0.25)::VARCHAR", "q"}, {"q50", "quantile_disc(%s, 0.5)::VARCHAR", "q"},
		{"q75", "quantile_disc(%s, 0.75)::VARCHAR", "q"},
		{"count", "count(*)", ""},
		{"null_percentage",
			"(100.0 * (count(*) - count(%s)) / nullif(count(*), 0))::DECIMAL(9,2)", ""},
	}
	var aggregates, columns, rows []string
	cases := make([][]string, len(measures))
	for i := range r.columns {
		f := r.field(i)
		name := syntax.QuoteName(f.Name)
		numeric := f.Type.IsNumeric()
		ordered := numeric || f.Type.Kind == gpu.Date || f.Type.Kind == gpu.Timestamp || f.Type.Kind == gpu.Time
		rows = append(rows, fmt.Sprintf("(%d, %s, %s)", i, syntax.Quote(f.Name), syntax.Quote(f.TypeName())))
		for k, m := range measures {
			if m.none == "n" && !numeric || m.none == "q" && !ordered {
				continue
			}
			sql := m.sql
			if strings.Contains(sql, "%s") {
				sql = fmt.Sprintf(sql, name)
			}
			out := fmt.Sprintf("a%d_%d", i, k)
			aggregates = append(aggregates, sql+" AS "+out)
			cases[k] = append(cases[k], fmt.Sprintf("WHEN %d THEN %s", i, out))
		}
	}
	for k, m := range measures {
		value := "NULL::VARCHAR"
		if len(cases[k]) > 0 {
			value = "CASE i " + strings.Join(cases[k], " ") + " END"
		}
		columns = append(columns, value+" AS "+syntax.QuoteName(m.name))
	}
	const table = "$rows"
	text := fmt.Sprintf("SELECT column_name, column_type, %s FROM (SELECT %s FROM %s), (VALUES %s) "+
		"AS columns_of(i, column_name, column_type) ORDER BY i", strings.Join(columns, ", "), strings.Join(aggregates,
		", "),
		syntax.QuoteName(table), strings.Join(rows, ", "))
	list, err := syntax.ParseStatements(text)
	if err != nil {
		return nil, err
	}
	inner := &catalog{outer: c, tables: map[string]*namedQuery{table: {CTE: &syntax.CTE{Name: table}, around: c,
		level: &level{catalog: c}, readers: 1, bound: r}}}
	return b.lastQuery(list[0].(*syntax.Query), nil, inner)
}
