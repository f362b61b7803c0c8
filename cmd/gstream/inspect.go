package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/parquet"
)

func newInspect() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show the metadata of Parquet files",
		Long: `inspect prints a file's schema, row groups, codecs, encodings, sizes and
statistics. It reads only the file's footer. It marks columns that jobs cannot read, such
as lists and structs. The file may have an address, as s3://bucket/orders.parquet.

For a folder, or a pattern in quotes, it lists the files that a source of this path would
read, with their rows and sizes, and the schema, including the columns in the names of
folders. If the schemas of files differ, it also shows the unified schema of the source.`,
		Example: "  gstream inspect data/orders.parquet\n  gstream inspect data/lineitem\n  gstream inspect " +
			"data/orders.parquet --format json",
		Args: args(1, "one file, folder or pattern"),

		ValidArgsFunction: completeFiles("parquet"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			files, err := parquet.Files(ctx, args)
			if err != nil {
				return err
			}
			if len(files) != 1 || files[0] != args[0] {
				all := filesInfo{Path: args[0]}
				for _, path := range files {
					info, err := parquet.Inspect(ctx, path)
					if err != nil {
						return err
					}
					all.add(info)
				}
				if err := all.unify(ctx, args[0]); err != nil {
					return err
				}
				return printValue(cmd.OutOrStdout(), format, all)
			}
			info, err := parquet.Inspect(ctx, args[0])
			if err != nil {
				return err
			}
			return printValue(cmd.OutOrStdout(), format, fileInfo{info})
		},
	}
	registerFormat(cmd, &format)
	return cmd
}

// filesInfo is the metadata of the files of a source.
type filesInfo struct {
	Path  string              `json:"path"`
	Rows  int64               `json:"rows"`
	Bytes int64               `json:"bytes"`
	Files []*parquet.FileInfo `json:"files"`
	// Schema has the columns of the source: those of all files, unified.
	Schema []tableColumn `json:"schema,omitempty"`
	// Fault says why the files are not one table.
	Fault string `json:"fault,omitempty"`
}

// tableColumn is a column of a source.
type tableColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Folders says that the values are in the names of folders.
	Folders bool `json:"folders,omitempty"`
}

// unify adds the schema of the source.
func (f *filesInfo) unify(ctx context.Context, path string) error {
	t, err := parquet.Open([]string{path}, parquet.OpenOptions{Context: ctx})
	var files *parquet.Listing
	if err == nil {
		files, err = parquet.List([]string{path}, parquet.OpenOptions{Context: ctx})
	}
	if errors.Is(err, source.ErrData) {
		f.Fault = err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	for _, c := range t.Schema().Fields {
		folders := slices.ContainsFunc(files.Partitions,
			func(p parquet.Partition) bool { return strings.EqualFold(p.Field.Name, c.Name) })
		f.Schema = append(f.Schema, tableColumn{c.Name, c.TypeName(), folders})
	}
	return t.Close()
}

func (f *filesInfo) add(info *parquet.FileInfo) {
	f.Files = append(f.Files, info)
	f.Rows, f.Bytes = f.Rows+info.Rows, f.Bytes+info.Bytes
}

func (f filesInfo) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s rows in %d files, %s\n", f.Path, humanize.Comma(f.Rows), len(f.Files), size(f.Bytes))
	schemaOf := func(info *parquet.FileInfo) string {
		var s strings.Builder
		for _, c := range info.Columns {
			writeColumn(&s, c, "  ")
		}
		return s.String()
	}
	first := schemaOf(f.Files[0])
	b.WriteString("\nfiles\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  name\trows\trow groups\tsize\t")
	for _, info := range f.Files {
		name := info.Path
		if rel, err := filepath.Rel(f.Path, info.Path); err == nil && !strings.HasPrefix(rel, "..") {
			name = rel
		}
		note := ""
		if schemaOf(info) != first {
			note = "another schema"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d\t%s\t%s\n", name, humanize.Comma(info.Rows), len(info.RowGroups), size(info.Bytes),
			note)
	}
	t.Flush()
	others := false
	for _, info := range f.Files[1:] {
		if s := schemaOf(info); s != first && !others {
			others = true
			fmt.Fprintf(&b, "\nschema of %s\n%s\nschema of %s\n%s", f.Files[0].Path, first, info.Path, s)
		}
	}
	if !others {
		b.WriteString("\nschema\n" + first)
		for _, c := range f.Schema {
			if c.Folders {
				fmt.Fprintf(&b, "  %s %s, in the names of folders\n", c.Name, c.Type)
			}
		}
		return b.String()
	}
	if f.Fault != "" {
		fmt.Fprintf(&b, "\nThe files are not one table: %s\n", f.Fault)
		return b.String()
	}
	b.WriteString("\nschema of all files\n")
	for _, c := range f.Schema {
		fmt.Fprintf(&b, "  %s %s\n", c.Name, c.Type)
	}
	return b.String()
}

// fileInfo is the metadata of a file. As JSON it has every column chunk; as text it has sums over
// the chunks of a column.
type fileInfo struct{ *parquet.FileInfo }

func (f fileInfo) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s rows in %d row groups, %s\n", f.Path, humanize.Comma(f.Rows), len(f.RowGroups),
		size(f.Bytes))
	if f.CreatedBy != "" {
		fmt.Fprintf(&b, "written by %s\n", f.CreatedBy)
	}
	if len(f.Metadata) > 0 {
		fmt.Fprintf(&b, "metadata: %s\n", strings.Join(f.Metadata, ", "))
	}
	b.WriteString("\nschema\n")
	for _, c := range f.Columns {
		writeColumn(&b, c, "  ")
	}
	b.WriteString("\ncolumns\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  name\tcodec\tencodings\tcompressed\tuncompressed\tnulls\tpage index\t")
	for _, c := range sumColumns(f.RowGroups) {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", c.name, strings.Join(c.codecs, ", "),
			strings.Join(c.encodings, ", "), size(c.compressed), size(c.uncompressed), c.nullText(), yesNo(c.pageIndex))
	}
	t.Flush()
	for i, g := range f.RowGroups {
		fmt.Fprintf(&b, "\nrow group %d: %s rows, %s compressed, %s uncompressed\n", i, humanize.Comma(g.Rows),
			size(g.Compressed), size(g.Uncompressed))
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, c := range g.Chunks {
			if c.Min != nil && c.Max != nil {
				fmt.Fprintf(t, "  %s\t%s\tto %s\n", c.Column, *c.Min, *c.Max)
			}
		}
		t.Flush()
	}
	return b.String()
}

func writeColumn(b *strings.Builder, c parquet.ColumnInfo, indent string) {
	typ := c.Type
	if typ == "" {
		typ = strings.TrimSpace(c.Physical + " " + c.Logical)
	}
	fmt.Fprintf(b, "%s%s %s %s", indent, c.Name, typ, c.Repetition)
	if c.Unreadable != "" {
		fmt.Fprintf(b, " (cannot be read: %s)", c.Unreadable)
	}
	b.WriteByte('\n')
	for _, child := range c.Children {
		writeColumn(b, child, indent+"  ")
	}
}

// columnSum is the sum over all chunks of a column.
type columnSum struct {
	name                     string
	codecs, encodings        []string
	compressed, uncompressed int64
	nulls                    int64
	nullsKnown, pageIndex    bool
}

func (c *columnSum) nullText() string {
	if !c.nullsKnown {
		return "unknown"
	}
	return humanize.Comma(c.nulls)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func sumColumns(groups []parquet.RowGroupInfo) []*columnSum {
	var out []*columnSum
	byName := map[string]*columnSum{}
	for _, g := range groups {
		for _, c := range g.Chunks {
			s := byName[c.Column]
			if s == nil {
				s = &columnSum{name: c.Column, nullsKnown: true, pageIndex: true}
				byName[c.Column] = s
				out = append(out, s)
			}
			s.compressed += c.Compressed
			s.uncompressed += c.Uncompressed
			s.nullsKnown = s.nullsKnown && c.Nulls != nil
			if c.Nulls != nil {
				s.nulls += *c.Nulls
			}
			s.pageIndex = s.pageIndex && c.PageIndex
			s.codecs = addNew(s.codecs, c.Codec)
			for _, e := range c.Encodings {
				s.encodings = addNew(s.encodings, e)
			}
		}
	}
	return out
}

func addNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
