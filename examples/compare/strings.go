package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const stringValues = 1_000_000

// compareStrings compares the job strings.yaml, which counts the rows of each text of a Parquet file, with
// the same query: texts of 18 bytes, in a dictionary for each million rows or as they are.
func compareStrings(ctx context.Context, gstream, dir, match string, rows, runs, threads int) error {
	fmt.Printf("\n| count(*) by text, %d values, %d rows, from Parquet | gstream CPU s | DuckDB CPU s | CPU ratio | "+
		"gstream s | DuckDB s | time ratio |\n|---|---|---|---|---|---|---|\n", stringValues, rows)
	for _, how := range []struct{ name, options string }{
		{"plain", ""},
		{"dictionary",
			", row_group_size 1000000, dictionary_size_limit 1000000, string_dictionary_page_size_limit 1000000000"},
	} {
		if strings.Contains(how.name, match) {
			if err := compareStringsOf(ctx, gstream, dir, how.name, how.options, rows, runs, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareStringsOf(ctx context.Context, gstream, dir, what, options string, rows, runs, threads int) error {
	file := filepath.Join(dir, "strings.parquet")
	defer os.Remove(file)
	db, err := sql.Open("duckdb", fmt.Sprintf("?threads=%d", threads))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx,
		fmt.Sprintf("copy (select 'customer#' || lpad((hash(i) %% %d)::varchar, 9, '0') as k from range(%d) t(i)) to "+
			"'%s' (format parquet%s)",
			stringValues, rows, file, options))
	db.Close()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ours, theirs := filepath.Join(dir, "gstream.parquet"), filepath.Join(dir, "duckdb.parquet")
	var g, d []figure
	for run := range runs + 1 {
		a, err := measure(ctx, gstream, "run", "--device", "host", "--progress", "none", "--threads",
			fmt.Sprint(threads), "--overwrite",
			"--set", "data="+dir, "--set", "out="+ours, filepath.Join("jobs", "strings.yaml"))
		if err != nil {
			return err
		}
		b, err := measure(ctx, self, "-duckdb", "strings", "-data", dir, "-out", theirs, "-threads",
			fmt.Sprint(threads))
		if err != nil {
			return err
		}
		if run > 0 { // the first reads the file into memory
			g, d = append(g, a), append(d, b)
		}
	}
	if verdict, err := exec.CommandContext(ctx, self, "-equal", ours, theirs).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", what, err, verdict)
	}
	report(fmt.Sprintf("%s | %.2f | %.2f | %.2f", what,
		median(g, d, func(a, _ figure) float64 { return a.cpu }),
		median(g, d, func(_, b figure) float64 { return b.cpu }),
		median(g, d, func(a, b figure) float64 { return a.cpu / b.cpu })), g, d)
	return nil
}
