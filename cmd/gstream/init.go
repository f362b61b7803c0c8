package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline"
	"github.com/gstream/gstream/sink/staging"
	"github.com/gstream/gstream/source"
	sourcearrow "github.com/gstream/gstream/source/arrow"
	"github.com/gstream/gstream/source/parquet"
	"github.com/gstream/gstream/source/store"
	sourcetext "github.com/gstream/gstream/source/text"
)

func newInit() *cobra.Command {
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "init FILE...",
		Short: "Write a first job file for Parquet files",
		Long: `init looks at files of Parquet, CSV, JSON lines or Arrow, folders of Parquet files, or
patterns in quotes, and writes a job file that reads them. Each is a source, named after
its file. The job runs as it is: it selects all columns of the first source. Comments list the columns of the other sources, and steps
that filter, join and group.

init replaces no file unless --overwrite is given. Paths in the job are relative to the
job file; absolute paths stay absolute.`,
		Example: `  gstream init data/orders.parquet
  gstream init data/orders.parquet data/customer.parquet --out revenue.yaml
  gstream init 'data/orders-*.parquet' --out - | less
  gstream run job.yaml && gstream show job.yaml`,
		Args: someFiles("file"),

		ValidArgsFunction: completeFiles("parquet", "csv", "jsonl", "arrow"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, sources, err := newJob(cmd.Context(), args, out)
			if err != nil {
				return err
			}
			if out == "-" {
				_, err := io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			if err := writeJob(out, text, overwrite); err != nil {
				return err
			}
			name := shellQuote(out)
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s for %s; next: gstream show %s, gstream run %s\n", escapeText(out),
				plural(int64(len(sources)), "source"), name, name)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "job.yaml", "job file to write; - is standard output")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the job file if it exists")
	return cmd
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./=+-]+$`)

// shellQuote returns a word for a shell.
func shellQuote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(escapeText(s), "'", `'\''`) + "'"
}

// writeJob writes a job file. Unless overwrite is set it does not replace one.
func writeJob(path, text string, overwrite bool) (err error) {
	if !overwrite {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w; --overwrite replaces it, and --out names another", path, fs.ErrExist)
		}
		if err != nil {
			return fmt.Errorf("write the job: %w", err)
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return errors.Join(fmt.Errorf("write the job: %w", err), os.Remove(path))
		}
		return nil
	}
	target, err := staging.Resolve(path)
	if err != nil {
		return fmt.Errorf("write the job: %w", err)
	}
	if info, err := os.Stat(target); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("write the job: %w",
			&fs.PathError{Op: "replace", Path: path, Err: errors.New("it is not a regular file")})
	}
	f, err := staging.File(target)
	if err != nil {
		return fmt.Errorf("write the job: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = staging.Finish(f.Name(), target)
	}
	if err == nil {
		err = os.Rename(f.Name(), target)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("write the job: %w", err), os.Remove(f.Name()))
	}
	return errors.Join(err, f.Close())
}

// jobSource is a source of a new job.
type jobSource struct {
	name, path string
	rows       int64
	about      bool // the number of rows is an estimate
	schema     []parquetColumn
	unreadable []source.Unreadable
}

type parquetColumn struct{ name, typ string }

// newJob returns the text of a job over Parquet files, which will be written to out. The job has
// been planned, so it can run.
func newJob(ctx context.Context, paths []string, out string) (text string, sources []*jobSource, err error) {
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return "", nil, usageError(fmt.Errorf("%s is given twice", path))
		}
		s, err := openSource(ctx, path)
		if err != nil {
			return "", nil, err
		}
		sources = append(sources, s)
	}
	nameSources(sources)
	first := slices.IndexFunc(sources, func(s *jobSource) bool { return len(s.schema) > 0 })
	if first < 0 {
		return "", nil, fmt.Errorf("%w: no column of %s can be read: %s", source.ErrData, phrase.Some(paths, 5, ", "),
			whyUnreadable(sources[0].unreadable))
	}
	folder := "."
	if out != "-" {
		folder = filepath.Dir(out)
	}
	for _, s := range sources {
		if s.path, err = relativeTo(folder, s.path); err != nil {
			return "", nil, err
		}
	}
	if text, err = plannedJob(sources, sources[first], folder, false); err != nil {
		// A column without a name has no expression.
		if star, starErr := plannedJob(sources, sources[first], folder, true); starErr == nil {
			text, err = star, nil
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("the new job cannot be planned, and was not written: %w", err)
	}
	return text, sources, nil
}

// plannedJob returns the text of a job, or an error if it cannot be planned.
func plannedJob(sources []*jobSource, first *jobSource, folder string, star bool) (string, error) {
	text := jobText(sources, first, resultPath(folder), star)
	job, err := pipeline.Parse(filepath.Join(folder, "job.yaml"), []byte(text), pipeline.LoadOptions{})
	if err != nil {
		return "", err
	}
	p, err := pipeline.NewPlan(job)
	if err != nil {
		return "", err
	}
	return text, p.Close()
}

func whyUnreadable(list []source.Unreadable) string {
	if len(list) == 0 {
		return "there is none"
	}
	return list[0].Reason
}

func openSource(ctx context.Context, path string) (*jobSource, error) {
	if !utf8.ValidString(path) {
		return nil,
			fmt.Errorf("%q: %w: the name is not UTF-8, so a job file cannot have it; rename the file or give a "+
				"pattern such as *.parquet", path, errUsage)
	}
	if err := store.Check(path); err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", store.Display(path), err))
	}
	t, err := openTable(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &jobSource{name: sourceName(path), path: path, rows: t.Rows(), unreadable: t.Unreadable()}
	if e, ok := t.(source.Estimated); ok {
		s.about = !e.RowsExact()
	}
	for _, f := range t.Schema().Fields {
		s.schema = append(s.schema, parquetColumn{f.Name, f.TypeName()})
	}
	return s, t.Close()
}

// openTable opens files of Parquet, CSV, JSON lines or Arrow.
func openTable(ctx context.Context, path string) (source.Table, error) {
	lines := sourcetext.NamedJSON(path)
	arrow := sourcearrow.Named(path)
	if !arrow && !lines && !sourcetext.Named(path) {
		return parquet.Open([]string{path}, parquet.OpenOptions{Context: ctx})
	}
	files, err := parquet.List([]string{path}, parquet.OpenOptions{Context: ctx, NoPartitions: arrow})
	if err != nil {
		return nil, err
	}
	if arrow {
		return sourcearrow.Open(ctx, files.Paths)
	}
	opt := sourcetext.Options{JSON: lines, Context: ctx}
	for _, p := range files.Partitions {
		opt.Partitions = append(opt.Partitions, sourcetext.Partition(p))
	}
	return sourcetext.Open(files.Paths, opt)
}

// nameSources makes the names of sources unique: by their folders, or else by a number.
func nameSources(sources []*jobSource) {
	count := map[string]int{}
	for _, s := range sources {
		count[s.name]++
	}
	taken := map[string]bool{}
	for _, s := range sources {
		if count[s.name] > 1 {
			if folder := filepath.Base(filepath.Dir(filepath.Clean(s.path))); noWord.ReplaceAllString(folder,
				"") != "" {
				s.name = identifier(folder + "_" + s.name)
			}
		}
		name := s.name
		for n := 2; taken[s.name] || s.name != name && count[s.name] > 0; n++ {
			s.name = fmt.Sprintf("%s_%d", name, n)
		}
		taken[s.name] = true
	}
}

// relativeTo returns a path as it is written in a job file in a folder.
func relativeTo(folder, path string) (string, error) {
	if filepath.IsAbs(path) || store.Scheme(path) != "" {
		return path, nil
	}
	from, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(from, to); err == nil {
		return rel, nil
	}
	return to, nil
}

// resultPath returns the output of a new job in a folder, relative to it: a file that does not
// exist. The name of its folder begins with _, so that a source that is a folder around it skips it.
func resultPath(folder string) string {
	for n := 1; ; n++ {
		path := filepath.Join("_out", "result.parquet")
		if n > 1 {
			path = filepath.Join("_out", fmt.Sprintf("result-%d.parquet", n))
		}
		if _, err := os.Lstat(filepath.Join(folder, path)); errors.Is(err, fs.ErrNotExist) || n == 1000 {
			return path
		}
	}
}

// plainText is text that YAML takes as it is.
var plainText = regexp.MustCompile(`^(\.{0,2}/)*[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)

// yamlText returns a text as YAML, with no variables in it.
func yamlText(s string) string {
	s = strings.ReplaceAll(s, "$", "$$")
	switch {
	case plainText.MatchString(s) && !reserved.MatchString(strings.ToLower(s)):
		return s
	case escapeText(s) == s:
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return jsonString(s)
}

// jobText returns a job that writes all columns of its first source, by their names or by *.
func jobText(sources []*jobSource, first *jobSource, out string, star bool) string {
	var b strings.Builder
	b.WriteString("# Written by gstream init. gstream show prints the first rows of the result,\n# gstream run " +
		"writes all rows, and gstream run --help says more.\n\n")
	b.WriteString("sources:                # tables: files, folders or patterns; paths are relative to this file\n")
	for _, s := range sources {
		about := ""
		if s.about {
			about = "about "
		}
		fmt.Fprintf(&b, "  %s: %s  # %s\n", s.name, yamlText(s.path), about+plural(s.rows, "row"))
	}
	b.WriteString("\nsteps:                  # each step does one thing to the rows of the previous step\n")
	fmt.Fprintf(&b, "  - from: %s\n    select:             # columns or SQL expressions: \"expression as name\"\n",
		first.name)
	width := 0
	lines := make([]string, len(first.schema))
	if star {
		b.WriteString("      - '*'\n")
	}
	for i, c := range first.schema {
		lines[i] = "      - " + yamlText(syntax.QuoteName(c.name))
		if star {
			lines[i] = "      # " + escapeText(syntax.QuoteName(c.name))
		}
		width = max(width, min(textWidth(lines[i]), 40))
	}
	for i, c := range first.schema {
		b.WriteString(lines[i] + strings.Repeat(" ", max(0, width-textWidth(lines[i]))) + "  # " + c.typ + "\n")
	}
	writeUnreadable(&b, "      # ", first.unreadable)
	for _, s := range sources {
		if s != first {
			fmt.Fprintf(&b, "\n  # The columns of %s:\n", s.name)
			for _, c := range s.schema {
				fmt.Fprintf(&b, "  #   %s  %s\n", escapeText(syntax.QuoteName(c.name)), c.typ)
			}
			writeUnreadable(&b, "  #   ", s.unreadable)
		}
	}
	column := escapeText(syntax.QuoteName(first.schema[0].name))
	b.WriteString("\n  # More steps, to change and uncomment:\n")
	fmt.Fprintf(&b, "  # - filter: %s is not null\n", column)
	for _, s := range sources {
		if s != first && len(s.schema) > 0 {
			l, r := joinKey(first, s)
			fmt.Fprintf(&b, "  # - join: {with: %s, on: %s.%s = %s.%s}\n", s.name, first.name,
				escapeText(syntax.QuoteName(l)), s.name, escapeText(syntax.QuoteName(r)))
		}
	}
	fmt.Fprintf(&b, "  # - group: {by: [%s], aggregates: {number: count(*)}}\n", column)
	fmt.Fprintf(&b, "  # - sort: [%s desc]\n  # - limit: 100\n", column)
	fmt.Fprintf(&b, "\noutput:\n  parquet: %s\n  # overwrite: true       # otherwise an existing file is an error\n",
		yamlText(out))
	return b.String()
}

// joinKey returns the columns on which two tables may be joined: those with the same name, or with
// the same name after the first _, as o_custkey and c_custkey, or else the first columns.
func joinKey(a, b *jobSource) (l, r string) {
	for _, same := range []func(a, b string) bool{strings.EqualFold, func(a, b string) bool {
		_, a, ok := strings.Cut(a, "_")
		_, b, both := strings.Cut(b, "_")
		return ok && both && strings.EqualFold(a, b)
	}} {
		for _, x := range a.schema {
			for _, y := range b.schema {
				if x.typ == y.typ && same(x.name, y.name) {
					return x.name, y.name
				}
			}
		}
	}
	return a.schema[0].name, b.schema[0].name
}

func writeUnreadable(b *strings.Builder, indent string, list []source.Unreadable) {
	for _, u := range list {
		fmt.Fprintf(b, "%s%s  %s: %s\n", indent, escapeText(syntax.QuoteName(u.Name)), escapeText(u.Type),
			escapeText(u.Reason))
	}
}
