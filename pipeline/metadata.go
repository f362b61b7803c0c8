package pipeline

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/rel"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
)

// Keys of the key-value metadata of files that describe single columns.
const (
	geoKey    = "geo"    // GeoParquet
	pandasKey = "pandas" // the index and the types of Pandas
)

// metadataOf returns the key-value metadata of an output: the pairs of its source that are still
// true, and those that the job sets.
//
// Pairs are copied if the job reads one source and one of its columns reaches the output unchanged.
// A pair that describes all columns is copied only if all columns do. A pair that describes single
// columns loses those that do not.
func metadataOf(last rel.Output, opt sinkparquet.Options) map[string]string {
	origins, tables := logical.Origins(last)
	out, schema := map[string]string{}, last.Schema()
	if len(tables) == 1 {
		if t, ok := tables[0].(source.Described); ok {
			c := carried{from: t.Schema().Names(), to: map[string][]string{}, schema: &gpu.Schema{}}
			for i, o := range origins {
				field, from := schema.Fields[i], ""
				if !opt.WritePartitionColumns && slices.Contains(opt.PartitionBy, field.Name) {
					continue
				}
				if o.Table != nil {
					from = c.from[o.Column]
					c.to[from] = append(c.to[from], field.Name)
				}
				c.schema.Fields, c.origin = append(c.schema.Fields, field), append(c.origin, from)
			}
			c.whole = slices.Equal(c.from, schema.Names()) &&
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

// carried tells which columns of a source reach the output unchanged.
type carried struct {
	from  []string
	to    map[string][]string // names of a source column in the output
	whole bool                // the output has all columns of the source, in their order
	// schema has the columns of the output's files. origin has their names in the source, "" for
	// computed columns.
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

// object decodes a JSON object. It returns nil for any other text.
func object(text string) map[string]any {
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber() // large numbers keep their digits
	var out map[string]any
	if d.Decode(&out) != nil {
		return nil
	}
	return out
}

// encode is the inverse of object. It returns "" for an empty object.
func encode(v map[string]any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// geo keeps the geometries of GeoParquet that reach the output, under their new names. It drops
// bounding boxes and coverings, since they may describe rows that are gone.
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

// pandas keeps the columns of Pandas that reach the output under their old names, and an index of
// such columns. It drops an index of row numbers, since rows may be gone; it is Pandas' default.
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
