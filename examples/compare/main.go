// Command compare runs the example jobs in gstream and the same queries in DuckDB, over
// the same Parquet files and with the same number of threads. Both go from Parquet to
// Parquet (snappy), in turn and each in a process of its own. It checks that the rows are
// equal and prints the ratios of time and of peak memory.
//
// go run . -data DIR [-warmup 1] [-runs 5] [-threads N] [-only q01,sort] [-memory 512MB] [-micro] [-joins] [-groups]
// [-strings ROWS] [-match TEXT] [-gstream FILE]
package main

import (
	"context"
	"database/sql"
	"embed"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
	"github.com/dustin/go-humanize"
)

//go:embed sql/*.sql
var queries embed.FS

// jobs are the example jobs by folder, in the order of the table.
var jobs = []struct{ dir, name string }{
	{"tpch", "q01"}, {"tpch", "q03"}, {"tpch", "q05"}, {"tpch", "q06"}, {"tpch", "q07"}, {"tpch", "q10"},
	{"tpch", "q12"}, {"tpch", "q14"}, {"tpch", "q19"},
	{"etl", "filter"}, {"etl", "join"}, {"etl", "aggregate"}, {"etl", "join_aggregate"}, {"etl", "sort"},
	{"etl", "window"},
}

// tables are the TPC-H tables that the queries use.
var tables = []string{"lineitem", "orders", "customer", "part", "supplier", "nation", "region"}

func main() {
	data := flag.String("data", "../quickstart/data", "folder of the TPC-H tables as Parquet")
	runs := flag.Int("runs", 5, "counted runs of each")
	warmup := flag.Int("warmup", 1, "runs of each before, not counted")
	threads := flag.Int("threads", runtime.NumCPU(), "threads of each")
	only := flag.String("only", "", "comma-separated names of the jobs to run")
	micro := flag.Bool("micro", false, "also compare reading alone and writing alone, inside this process")
	memory := flag.String("memory", "", "memory limit of each, as in 512MB")
	joins := flag.Bool("joins", false, "also compare joins of tables in memory, inside this process")
	groups := flag.Bool("groups", false, "also compare group-bys of a table in memory, inside this process")
	texts := flag.Int("strings", 0, "also compare count(*) by text over a Parquet file of so many rows")
	match := flag.String("match", "", "run only the joins, group-bys and texts whose names contain this text")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to this file")
	binary := flag.String("gstream", "", "the gstream to run, instead of one built from this checkout, which needs Go")
	child := flag.String("duckdb", "", "internal: run this query in DuckDB and write -out")
	out := flag.String("out", "", "internal: the file that -duckdb writes")
	check := flag.Bool("equal", false, "internal: compare the two files named as arguments")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	var err error
	switch {
	case *child != "":
		err = runDuckDB(*child, *data, *out, *threads, *memory)
	case *check:
		err = equal(flag.Arg(0), flag.Arg(1))
	default:
		err = compare(*binary, *data, *only, *memory, *warmup, max(*runs, 1), *threads, *micro, *joins, *groups, *texts,
			*match)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// runDuckDB is the child process. It runs one query from Parquet to Parquet.
func runDuckDB(name, data, out string, threads int, memory string) error {
	query, err := queries.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return err
	}
	db, err := openDuckDB(data, threads)
	if err != nil {
		return err
	}
	defer db.Close()
	if memory != "" {
		// Files of rows that do not fit go where gstream's go.
		temp := fmt.Sprintf("/var/tmp/duckdb-%d", os.Getpid())
		defer os.RemoveAll(temp)
		for _, set := range []string{"memory_limit = '" + memory + "'", "temp_directory = '" + temp + "'"} {
			if _, err := db.Exec("set " + set); err != nil {
				return err
			}
		}
	}
	_, err = db.Exec(fmt.Sprintf("copy (%s) to '%s' (format parquet, compression snappy)", query, out))
	return err
}

func openDuckDB(data string, threads int) (*sql.DB, error) {
	db, err := sql.Open("duckdb", "?threads="+strconv.Itoa(threads))
	if err != nil {
		return nil, err
	}
	for _, t := range append(tables, "strings") {
		file := filepath.Join(data, t+".parquet")
		if _, err := os.Stat(file); err != nil {
			continue // the query tells, if it needs the table
		}
		if _, err := db.Exec(fmt.Sprintf("create view %s as from read_parquet('%s')", t, file)); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// figure has the measurements of one process.
type figure struct {
	seconds float64
	cpu     float64 // seconds of all cores
	peak    int64   // bytes
}

func measure(ctx context.Context, name string, args ...string) (figure, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=") // as a user would start it
	start := time.Now()
	output, err := cmd.CombinedOutput()
	f := figure{seconds: time.Since(start).Seconds()}
	if err != nil {
		return f, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, output)
	}
	f.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	f.peak = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	return f, nil
}

func compare(gstream, data, only, memory string, warmup, runs, threads int, micro, joins, groups bool, texts int,
	match string) error {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data, err = filepath.Abs(data)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if gstream == "" {
		gstream = filepath.Join(dir, "gstream")
		build := exec.Command("go", "build", "-o", gstream, "./cmd/gstream")
		build.Dir = filepath.Join("..", "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build gstream: %w\n%s", err, output)
		}
	}
	var limit []string
	if memory != "" {
		bytes, err := humanize.ParseBytes(memory)
		if err != nil {
			return fmt.Errorf("-memory: %w", err)
		}
		limit = []string{"--host-memory", strconv.FormatUint(bytes, 10)}
	}
	fmt.Printf("%d threads, medians of %d runs, in turn; ratios are gstream over DuckDB, below 1 is ahead\n\n", threads,
		runs)
	fmt.Println("| job | gstream s | DuckDB s | time ratio | gstream MB | DuckDB MB | memory ratio | rows equal |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	product, count, worst := 0.0, 0, 0.0
	for _, j := range jobs {
		if only != "" && !slices.Contains(strings.Split(only, ","), j.name) {
			continue
		}
		ours, theirs := filepath.Join(dir, "gstream.parquet"), filepath.Join(dir, "duckdb.parquet")
		var g, d []figure
		var failed error // of DuckDB
		for run := range warmup + runs {
			a, err := measure(ctx, gstream,
				append([]string{"run", "--progress", "none", "--threads", strconv.Itoa(threads), "--overwrite",
					"--set", "data=" + data, "--set", "out=" + ours, filepath.Join("..", j.dir, j.name+".yaml")},
					limit...)...)
			if err != nil {
				return err
			}
			var b figure
			if failed == nil {
				b, failed = measure(ctx, self, "-duckdb", j.name, "-data", data, "-out", theirs, "-threads",
					strconv.Itoa(threads), "-memory", memory)
			}
			if failed != nil && memory == "" {
				return failed
			}
			if run >= warmup {
				g, d = append(g, a), append(d, b)
			}
		}
		if failed != nil {
			fmt.Printf("| %s | %.3f | cannot | | %.0f | | | not compared |\n", j.name,
				median(g, d, func(a, _ figure) float64 { return a.seconds }),
				median(g, d, func(a, _ figure) float64 { return float64(a.peak) / 1e6 }))
			fmt.Fprintln(os.Stderr, failed)
			continue
		}
		// In a process of its own. This process must stay small, because the peak memory
		// of a child counts that of the parent from which it was forked.
		verdict, err := exec.CommandContext(ctx, self, "-equal", ours, theirs).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", j.name, err, verdict)
		}
		ratio := median(g, d, func(a, b figure) float64 { return a.seconds / b.seconds })
		fmt.Printf("| %s | %.3f | %.3f | **%.2f** | %.0f | %.0f | %.2f | %s |\n", j.name,
			median(g, d, func(a, _ figure) float64 { return a.seconds }),
			median(g, d, func(_, b figure) float64 { return b.seconds }), ratio,
			median(g, d, func(a, _ figure) float64 { return float64(a.peak) / 1e6 }),
			median(g, d, func(_, b figure) float64 { return float64(b.peak) / 1e6 }),
			median(g, d, func(a, b figure) float64 { return float64(a.peak) / float64(b.peak) }), verdict)
		product += math.Log(ratio)
		worst = max(worst, ratio)
		count++
		os.Remove(ours)
		os.Remove(theirs)
	}
	fmt.Printf("\ngeometric mean of the time ratios of %d jobs: %.2f, worst %.2f\n", count,
		math.Exp(product/float64(max(count, 1))), worst)
	if micro {
		if err := compareMicro(ctx, data, dir, runs, threads); err != nil {
			return err
		}
	}
	if joins {
		if err := compareJoins(ctx, dir, match, runs, threads); err != nil {
			return err
		}
	}
	if groups {
		if err := compareGroups(ctx, dir, match, runs, threads); err != nil {
			return err
		}
	}
	if texts > 0 {
		return compareStrings(ctx, gstream, dir, match, texts, runs, threads)
	}
	return nil
}

// median pairs the runs and returns the median of f over the pairs.
func median(g, d []figure, f func(a, b figure) float64) float64 {
	v := make([]float64, len(g))
	for i := range g {
		v[i] = f(g[i], d[i])
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// equal compares two Parquet files as bags of rows: every value exactly, floats to one
// part in 10^12.
func equal(ours, theirs string) error {
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.Query(fmt.Sprintf("select column_name, column_type from (describe from read_parquet('%s'))",
		theirs))
	if err != nil {
		return err
	}
	defer rows.Close()
	var columns []string
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return err
		}
		column := fmt.Sprintf("%q", name)
		if kind == "DOUBLE" {
			// 13 digits: the order of a float sum changes only later digits.
			column = fmt.Sprintf("printf('%%.12e', %s::double) as %s", column, column)
		}
		columns = append(columns, column)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	list := strings.Join(columns, ", ")
	var n, m int64
	if err := db.QueryRow(fmt.Sprintf("select (select count(*) from read_parquet('%s')), (select count(*) from "+
		"read_parquet('%s'))", ours, theirs)).Scan(&n, &m); err != nil {
		return err
	}
	if n != m {
		return fmt.Errorf("rows differ: gstream %d, DuckDB %d", n, m)
	}
	// Equal rows have equal hashes, so each slice of the hashes is compared alone, in less memory than all rows take.
	const most = 10 << 20 // rows of a slice
	for of, at := n/most+1, int64(0); at < of; at++ {
		var missing, extra int64
		err := db.QueryRow(fmt.Sprintf(`with
			g as (select * from (select %[1]s from read_parquet('%[2]s')) r where hash(r) %% %[4]d = %[5]d),
			d as (select * from (select %[1]s from read_parquet('%[3]s')) r where hash(r) %% %[4]d = %[5]d)
			select (select count(*) from (from d except all from g)), (select count(*) from (from g except all from d))`,
			list, ours, theirs, of, at)).Scan(&missing, &extra)
		if err != nil {
			return err
		}
		if missing != 0 || extra != 0 {
			return fmt.Errorf("rows differ: of %d rows of each, gstream lacks %d and has %d others", n, missing, extra)
		}
	}
	fmt.Printf("yes, %d", n)
	return nil
}
