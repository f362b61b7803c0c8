package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
	"github.com/gstream/gstream/source"
	sourceparquet "github.com/gstream/gstream/source/parquet"
)

// compareMicro compares reading alone and writing alone.
func compareMicro(ctx context.Context, data, dir string, runs, threads int) error {
	fmt.Printf("\n| alone | gstream s | DuckDB s | time ratio |\n|---|---|---|---|\n")
	for _, columns := range []string{"l_orderkey,l_partkey,l_extendedprice,l_shipdate",
		"l_orderkey,l_partkey,l_extendedprice,l_shipdate,l_comment",
		"l_orderkey,l_partkey,l_suppkey,l_linenumber,l_quantity,l_extendedprice,l_discount,l_tax,l_returnflag," +
			"l_linestatus,l_shipdate,l_commitdate,l_receiptdate,l_shipinstruct,l_shipmode,l_comment"} {
		if err := compareRead(ctx, data, strings.Split(columns, ","), runs, threads); err != nil {
			return err
		}
	}
	return compareWrite(ctx, data, dir, runs, threads)
}

func report(name string, g, d []figure) {
	fmt.Printf("| %s | %.3f | %.3f | **%.2f** |\n", name,
		median(g, d, func(a, _ figure) float64 { return a.seconds }),
		median(g, d, func(_, b figure) float64 { return b.seconds }),
		median(g, d, func(a, b figure) float64 { return a.seconds / b.seconds }))
}

func timed(f func() error) (figure, error) {
	start, cpu := time.Now(), cpuSeconds()
	err := f()
	return figure{seconds: time.Since(start).Seconds(), cpu: cpuSeconds() - cpu}, err
}

// cpuSeconds returns the time that all cores have spent in this process.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// compareRead reads columns of lineitem. gstream decodes every value into strides. DuckDB
// folds every value into one number, which costs next to nothing compared with decoding.
func compareRead(ctx context.Context, data string, columns []string, runs, threads int) error {
	db, err := openDuckDB(data, threads)
	if err != nil {
		return err
	}
	defer db.Close()
	folds := make([]string, len(columns))
	for i, c := range columns {
		folds[i] = fmt.Sprintf("sum(%s)", c)
		switch {
		case strings.HasSuffix(c, "date"):
			folds[i] = fmt.Sprintf("sum(epoch(%s))", c)
		case strings.HasSuffix(c, "comment"), strings.HasSuffix(c, "mode"), strings.HasSuffix(c, "instruct"),
			strings.HasSuffix(c, "flag"), strings.HasSuffix(c, "status"):
			folds[i] = fmt.Sprintf("sum(strlen(%s))", c)
		}
	}
	query := "select " + strings.Join(folds, ", ") + " from lineitem"
	var g, d []figure
	for run := range runs + 1 {
		a, err := timed(func() error {
			device, err := readStrides(ctx, data, columns, threads, func(s *gpu.Stride) { s.Release() })
			if err != nil {
				return err
			}
			return device.Close()
		})
		if err != nil {
			return err
		}
		b, err := timed(func() error {
			dest := make([]any, len(columns))
			for i := range dest {
				dest[i] = new(any)
			}
			return db.QueryRow(query).Scan(dest...)
		})
		if err != nil {
			return err
		}
		if run > 0 {
			g, d = append(g, a), append(d, b)
		}
	}
	report(fmt.Sprintf("read %d columns of lineitem", len(columns)), g, d)
	return nil
}

// readStrides scans columns of lineitem, or all columns when none are given, and passes
// every stride to take. The device's budget pays for the strides.
func readStrides(ctx context.Context, data string, columns []string, threads int,
	take func(*gpu.Stride)) (*host.Device, error) {
	device, err := host.Open(host.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	table, err := sourceparquet.Open([]string{filepath.Join(data, "lineitem.parquet")}, sourceparquet.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer table.Close()
	lease := device.HostBudget().Lease("read")
	opt := source.ScanOptions{StrideRows: device.StrideRows(0), Lease: lease,
		Decode: source.DecodeOptions{Threads: threads}}
	for i, f := range table.Schema().Fields {
		keep := len(columns) == 0
		for _, c := range columns {
			keep = keep || c == f.Name
		}
		if keep {
			opt.Columns = append(opt.Columns, i)
		}
	}
	reader, err := table.Scan(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		s, err := reader.Read(ctx)
		if errors.Is(err, io.EOF) {
			return device, nil
		}
		if err != nil {
			return nil, err
		}
		take(s)
	}
}

// compareWrite writes lineitem from memory: gstream from strides, DuckDB from a table of
// its own.
func compareWrite(ctx context.Context, data, dir string, runs, threads int) error {
	db, err := openDuckDB(data, threads)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("create table held as from lineitem"); err != nil {
		return err
	}
	var held []*gpu.Stride
	device, err := readStrides(ctx, data, nil, threads, func(s *gpu.Stride) { held = append(held, s) })
	if err != nil {
		return err
	}
	ours, theirs := filepath.Join(dir, "gstream.parquet"), filepath.Join(dir, "duckdb.parquet")
	var g, d []figure
	for run := range runs + 1 {
		a, err := timed(func() error {
			w, err := sinkparquet.Create(ours, held[0].Schema,
				sinkparquet.Options{Compression: "snappy", Overwrite: true, Threads: threads,
					Lease: device.HostBudget().Lease("write")})
			if err != nil {
				return err
			}
			for _, s := range held {
				again := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
				for _, c := range s.Cols {
					again.Cols = append(again.Cols, c.Retain())
				}
				if err := w.Write(ctx, again); err != nil {
					return err
				}
			}
			return w.Commit(ctx)
		})
		if err != nil {
			return err
		}
		b, err := timed(func() error {
			if err := os.Remove(theirs); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			_, err := db.Exec(fmt.Sprintf("copy held to '%s' (format parquet, compression snappy)", theirs))
			return err
		})
		if err != nil {
			return err
		}
		if run > 0 {
			g, d = append(g, a), append(d, b)
		}
	}
	for _, s := range held {
		s.Release()
	}
	report("write lineitem, 16 columns, snappy", g, d)
	return device.Close()
}
