package physical

import (
	"fmt"
	"strings"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/rel"
	"github.com/gstream/gstream/source"
)

func listOf(names []string) string {
	if len(names) == 0 {
		return "none, rows are only counted"
	}
	return strings.Join(names, ", ")
}

var opText = map[source.Op]string{source.Eq: "=", source.Lt: "<", source.Le: "<=", source.Gt: ">", source.Ge: ">=",
	source.In: "IN", source.IsNull: "IS NULL", source.IsNotNull: "IS NOT NULL"}

func describePredicate(s *gpu.Schema, p source.Predicate, hidden bool) string {
	text := s.Fields[p.Column].Name + " " + opText[p.Op]
	values := make([]string, len(p.Values))
	for i, v := range p.Values {
		if values[i] = v.String(); hidden {
			values[i] = "***"
		}
	}
	switch {
	case p.Op == source.In:
		return text + " (" + strings.Join(values, ", ") + ")"
	case len(values) > 0:
		return text + " " + values[0]
	}
	return text
}

func describeBuild(kind string, b rel.Build) string {
	switch b.Reason {
	case rel.StreamsLeft:
		article := "a "
		if kind[0] == 'a' {
			article = "an "
		}
		return article + kind + " join streams its left side"
	case rel.AskedFor:
		return "the job says so"
	case rel.RowPerPartition:
		return "a row for each partition"
	case rel.OnceForAll:
		return fmt.Sprintf("once for all iterations, about %s rows", logical.Approximate(b.BuildRows))
	case rel.FewerRows, rel.RangeKey:
		return fmt.Sprintf("about %s rows against %s", logical.Approximate(b.BuildRows),
			logical.Approximate(b.ProbeRows))
	}
	panic("physical: unknown reason to build a side of a join")
}

func describeOrder(o *rel.ChainOrder) string {
	if o.Reordered {
		return fmt.Sprintf("joins %d tables in another order than written: about %s rows made and held, instead of %s",
			o.Tables, logical.Approximate(o.Rows), logical.Approximate(o.WrittenRows))
	}
	search := "no order is better"
	if o.Greedy {
		search = "the greedy order is not better"
	}
	return fmt.Sprintf("joins %d tables as written: %s, about %s rows made and held", o.Tables, search,
		logical.Approximate(o.Rows))
}

func describeKey(r *rel.Relation, k rel.SortKey) string {
	text := r.Name(k.Column)
	if k.Descending {
		text += " desc"
	}
	if k.NullsFirst {
		text += " nulls first"
	}
	return text
}

func limitDetail(offset, count int64) []string {
	text := fmt.Sprintf("first %d rows", count)
	if offset > 0 {
		text += fmt.Sprintf(" after %d", offset)
	}
	return []string{text}
}
