package pipeline

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/logical"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// Keys of the key-value metadata of files that describe single columns.
const (
	geoKey    = "geo"    // GeoParquet
	pandasKey = "pandas" // the index and the types of Pandas
)

// metadataOf returns the key-value metadata of an output: the pairs of its sources that hold
// for it, and those that the job gives.
//
// A pair goes on if the job reads one source and one of its columns comes through unchanged.
// Pairs that describe all columns go on only if all columns come through, as they are. Pairs
// for single columns lose those that do not.
func metadataOf(last logical.Node, opt sinkparquet.Options) map[string]string {
	origins, tables := logical.Origins(last)
	out := map[string]string{}
	if len(tables) == 1 {
		if t, ok := tables[0].(source.Described); ok {
			c := carried{from: t.Schema().Names(), to: map[string][]string{}, schema: &gpu.Schema{}}
			for i, o := range origins {
				field, from := last.Rel().Schema.Fields[i], ""
				if !opt.WritePartitionColumns && slices.Contains(opt.PartitionBy, field.Name) {
					continue
				}
				if o.Table != nil {
					from = c.from[o.Column]
					c.to[from] = append(c.to[from], field.Name)
				}
				c.schema.Fields, c.origin = append(c.schema.Fields, field), append(c.origin, from)
			}
			c.whole = slices.Equal(c.from, last.Rel().Schema.Names()) &&
				!slices.ContainsFunc(c.from,
					func(name string) bool { return !slices.Equal(c.to[name], []string{name}) })
			if len(c.to) > 0 {
				c.copy(out, t)
			}
		}
	}
	maps.Copy(out, opt.Metadata)
	if len(out) == 0 {
		return nil
	}
	return out
}

// carried says which columns of a source an output has.
type carried struct {
	from  []string
	to    map[string][]string // the names in the output of a column of the source
	whole bool                // the output has the columns of the source, in their order
	// schema has the columns of the files of the output, and origin their names in the source,
	// "" for those that are computed.
	schema *gpu.Schema
	origin []string
}

func (c *carried) copy(out map[string]string, t source.Described) {
	for key, value := range t.Metadata() {
		switch {
		case key == geoKey:
			value = c.geo(value)
		case key == pandasKey:
			value = c.pandas(value)
		case key == arrowKey:
			value = c.arrow(value)
		case source.DescribesColumns(key) && !c.whole:
			continue
		}
		if value != "" {
			out[key] = value
		}
	}
}

// object decodes a JSON object; nil if it is none.
func object(text string) map[string]any {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // large numbers keep their digits
	var out map[string]any
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// encode is the opposite of object; "" if there is nothing to say.
func encode(v map[string]any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// geo keeps the geometries of GeoParquet that come through, under their new names. Boxes and
// coverings are of rows that may be gone.
func (c *carried) geo(text string) string {
	geo := object(text)
	columns, _ := geo["columns"].(map[string]any)
	primary, _ := geo["primary_column"].(string)
	kept := map[string]any{}
	for name, about := range columns {
		if fields, ok := about.(map[string]any); ok {
			delete(fields, "bbox")
			delete(fields, "covering")
		}
		for _, to := range c.to[name] {
			kept[to] = about
		}
	}
	if len(kept) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(kept))
	if to := c.to[primary]; len(to) > 0 && kept[to[0]] != nil {
		names = to
	}
	geo["columns"], geo["primary_column"] = kept, names[0]
	return encode(geo)
}

// pandas keeps the columns of Pandas that come through under their names, and an index of
// them. An index of row numbers is left out, as rows may be gone; it is Pandas' default.
func (c *carried) pandas(text string) string {
	about := object(text)
	columns, _ := about["columns"].([]any)
	through := func(name any) bool {
		s, ok := name.(string)
		return ok && slices.Contains(c.to[s], s)
	}
	var kept []any
	for _, column := range columns {
		fields, _ := column.(map[string]any)
		name := fields["field_name"]
		if name == nil {
			name = fields["name"]
		}
		if through(name) {
			kept = append(kept, column)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	index := []any{}
	all, _ := about["index_columns"].([]any)
	for _, name := range all {
		if through(name) {
			index = append(index, name)
		}
	}
	about["columns"], about["index_columns"] = kept, index
	return encode(about)
}
