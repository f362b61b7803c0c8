package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
	"github.com/gstream/gstream/operators/join"
	sinkparquet "github.com/gstream/gstream/sink/parquet"
)

// Rows of the two sides of compareJoins.
const (
	joinBuild = 5_000_000
	joinProbe = 20_000_000
)

// compareJoins compares joins of two tables in memory: keys are distinct in the build side,
// every probe row has one match, and each side has two columns besides the key. Both engines
// sum these four columns of the joined rows, so both must materialise all of them, neither
// hands rows over, and the results can be compared. DuckDB reads its own tables in memory,
// gstream pushes strides of 131,072 rows through its operators in lanes.
//
// Keys that are dense suit a table that is addressed by the key, so there are also keys that
// are spread over the whole range of their type.
func compareJoins(ctx context.Context, dir, match string, runs, threads int) error {
	fmt.Printf("\n| join in memory, %d M ⋈ %d M rows, 2+2 payload columns | gstream CPU s | DuckDB CPU s | CPU ratio "+
		"| gstream s | DuckDB s | time ratio |\n|---|---|---|---|---|---|---|\n", joinBuild/1_000_000,
		joinProbe/1_000_000)
	for _, t := range []gpu.Type{gpu.Of(gpu.Int32), gpu.Of(gpu.Int64)} {
		for _, spread := range []bool{true, false} {
			if err := compareJoin(ctx, dir, match, t, spread, runs, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

// domain names the values of keys: all of a type, or 0, 1, 2 …
func domain(spread bool) string {
	if spread {
		return "spread"
	}
	return "dense"
}

// spreadKey maps different i to different keys, over the whole range of 4 or 8 bytes.
func spreadKey(i uint64, width int) uint64 {
	if width == 4 {
		x := uint32(i) * 0x9e3779b1
		x = (x ^ x>>15) * 0x85ebca6b
		return uint64(x ^ x>>13)
	}
	i *= 0x9e3779b97f4a7c15
	i = (i ^ i>>29) * 0xbf58476d1ce4e5b9
	return i ^ i>>32
}

// drawColumn returns n values of a type of 4 or 8 bytes.
func drawColumn(l *gpu.Lease, t gpu.Type, n int, value func(i int) uint64) (gpu.Column, error) {
	buf, err := l.Alloc(int64(n) * int64(t.Width()))
	if err != nil {
		return gpu.Column{}, err
	}
	if t.Width() == 4 {
		for i, v := 0, gpu.Values[uint32](buf, n); i < n; i++ {
			v[i] = uint32(value(i))
		}
	} else {
		for i, v := 0, gpu.Values[uint64](buf, n); i < n; i++ {
			v[i] = value(i)
		}
	}
	return gpu.Column{Type: t, Len: n, Data: buf}, nil
}

// drawSide makes the strides of one side: the key of every row, and two columns of numbers.
func drawSide(l *gpu.Lease, t gpu.Type, names string, rows, strideRows int,
	key func(row int) uint64) (out []*gpu.Stride, err error) {
	schema := gpu.NewSchema(gpu.Field{Name: "k", Type: t}, gpu.Field{Name: names + "1", Type: t},
		gpu.Field{Name: names + "2", Type: t})
	for at := 0; at < rows; at += strideRows {
		s := &gpu.Stride{Schema: schema, Rows: min(strideRows, rows-at)}
		out = append(out, s)
		for i := range schema.Fields {
			c, err := drawColumn(l, t, s.Rows, func(r int) uint64 {
				if i == 0 {
					return key(at + r)
				}
				return uint64(rand.Int32N(1 << 20))
			})
			if err != nil {
				return out, err
			}
			s.Cols = append(s.Cols, c)
		}
	}
	return out, nil
}

// borrow returns a stride with references of its own to the columns.
func borrow(s *gpu.Stride) *gpu.Stride {
	out := &gpu.Stride{Schema: s.Schema, Rows: s.Rows}
	for _, c := range s.Cols {
		out.Cols = append(out.Cols, c.Retain())
	}
	return out
}

func compareJoin(ctx context.Context, dir, match string, t gpu.Type, spread bool, runs, threads int) error {
	what := fmt.Sprintf("keys and payloads of %d bytes, %s keys", t.Width(), domain(spread))
	if !strings.Contains(what, match) {
		return nil
	}
	device, err := host.Open(host.Options{Threads: threads})
	if err != nil {
		return err
	}
	db, err := sql.Open("duckdb", fmt.Sprintf("?threads=%d", threads))
	if err != nil {
		return err
	}
	defer db.Close()
	l := device.HostBudget().Lease("join")
	ids := rand.Perm(joinBuild)
	key := func(row int) uint64 {
		if !spread {
			return uint64(ids[row])
		}
		return spreadKey(uint64(ids[row]), t.Width())
	}
	build, err := drawSide(l, t, "b", joinBuild, device.StrideRows(0), key)
	if err != nil {
		return err
	}
	probe, err := drawSide(l, t, "p", joinProbe, device.StrideRows(0),
		func(int) uint64 { return key(rand.IntN(joinBuild)) })
	if err != nil {
		return err
	}
	for name, side := range map[string][]*gpu.Stride{"build": build, "probe": probe} {
		if err := loadDuckDB(ctx, db, filepath.Join(dir, name+".parquet"), name, side, threads, l); err != nil {
			return err
		}
	}
	err = inTurn(db, what, runs,
		"select sum(p1)::text || ' ' || sum(p2)::text || ' ' || sum(b1)::text || ' ' || sum(b2)::text from probe "+
			"join build using (k)",
		func() (string, error) { return joinStrides(ctx, device, build, probe, threads) })
	if err != nil {
		return err
	}
	for _, s := range append(build, probe...) {
		s.Release()
	}
	return device.Close()
}

// inTurn times gstream and a query of DuckDB in turn, requires that both give one text, and reports
// the medians of all runs but the first.
func inTurn(db *sql.DB, what string, runs int, query string, gstream func() (string, error)) error {
	var g, d []figure
	for run := range runs + 1 {
		var ours, theirs string
		a, err := timed(func() (err error) {
			ours, err = gstream()
			return err
		})
		if err != nil {
			return err
		}
		b, err := timed(func() error { return db.QueryRow(query).Scan(&theirs) })
		if err != nil {
			return err
		}
		if ours != theirs {
			return fmt.Errorf("%s: the sums differ: gstream %s, DuckDB %s", what, ours, theirs)
		}
		if run > 0 {
			g, d = append(g, a), append(d, b)
		}
	}
	report(fmt.Sprintf("%s | %.2f | %.2f | %.2f", what,
		median(g, d, func(a, _ figure) float64 { return a.cpu }),
		median(g, d, func(_, b figure) float64 { return b.cpu }),
		median(g, d, func(a, b figure) float64 { return a.cpu / b.cpu })), g, d)
	return nil
}

// loadDuckDB makes a table in DuckDB's memory of the rows of strides.
func loadDuckDB(ctx context.Context, db *sql.DB, path, name string, strides []*gpu.Stride, threads int,
	l *gpu.Lease) error {
	w, err := sinkparquet.Create(path, strides[0].Schema,
		sinkparquet.Options{Compression: "none", Overwrite: true, Threads: threads, Lease: l})
	if err != nil {
		return err
	}
	for _, s := range strides {
		if err := w.Write(ctx, borrow(s)); err != nil {
			return err
		}
	}
	if err := w.Commit(ctx); err != nil {
		return err
	}
	if _, err := db.Exec(fmt.Sprintf("create table %s as from read_parquet('%s')", name, path)); err != nil {
		return err
	}
	return os.Remove(path)
}

// joinStrides joins two sides and returns the sums of the four columns that are not keys.
func joinStrides(ctx context.Context, device *host.Device, build, probe []*gpu.Stride,
	threads int) (sums string, err error) {
	l := device.Budget().Lease("run")
	defer func() {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}()
	field := func(s []*gpu.Stride, i int) gpu.Field { return s[0].Schema.Fields[i] }
	joined := gpu.NewSchema(field(probe, 1), field(probe, 2), field(build, 1), field(build, 2))
	j, err := join.New(join.Spec{Kind: join.Inner, Probe: probe[0].Schema, Build: build[0].Schema, ProbeKeys: []int{0},
		BuildKeys: []int{0},
		NullSafe:  []bool{false}, ProbeOut: []int{1, 2}, BuildOut: []int{1, 2}, Out: joined})
	if err != nil {
		return "", err
	}
	defer j.Close()
	spec := groupby.Spec{In: joined}
	var fields []gpu.Field
	for i, f := range joined.Fields {
		sum := gpu.SumType(f.Type)
		spec.Aggregates = append(spec.Aggregates, groupby.Aggregate{Kind: gpu.Sum, Input: i, Output: sum})
		fields = append(fields, gpu.Field{Name: f.Name, Type: sum, Nullable: true})
	}
	spec.Out = gpu.NewSchema(fields...)
	sum, err := groupby.New(spec)
	if err != nil {
		return "", err
	}
	defer sum.Close()
	err = inLanes(ctx, device, l, j, build, threads, nil)
	if err != nil {
		return "", err
	}
	err = inLanes(ctx, device, l, sum, probe, threads, j)
	if err != nil {
		return "", err
	}
	q, err := device.NewQueue("result")
	if err != nil {
		return "", err
	}
	defer q.Close()
	var text []string
	err = sum.Emit(ctx, operators.Task{Device: device, Queue: q, Lease: l, StrideRows: device.StrideRows(0), Lanes: 1},
		0, func(s *gpu.Stride) error {
			for _, c := range s.Cols {
				text = append(text, c.ScalarAt(0).String())
			}
			s.Release()
			return nil
		})
	return strings.Join(text, " "), err
}

// inLanes pushes strides in lanes through a streaming operator, unless that is nil, into a
// blocking operator, and finalises the latter.
func inLanes(ctx context.Context, device *host.Device, l *gpu.Lease, into operators.Blocking, strides []*gpu.Stride,
	lanes int, through operators.Streaming) error {
	var next atomic.Int64
	var wg errgroup.Group
	for range lanes {
		wg.Go(func() error {
			q, err := device.NewLaneQueue("lane")
			if err != nil {
				return err
			}
			defer q.Close()
			t := operators.Task{Device: device, Queue: q, Lease: l, StrideRows: device.StrideRows(0), Lanes: lanes}
			local, err := into.NewLocal(t)
			if err != nil {
				return err
			}
			defer local.Close()
			number := 0
			emit := func(s *gpu.Stride) error { return local.Push(ctx, number, s) }
			push, flush := func(s *gpu.Stride) error { return emit(s) }, func() error { return nil }
			if through != nil {
				lane, err := through.NewLane(t)
				if err != nil {
					return err
				}
				defer lane.Close()
				push = func(s *gpu.Stride) error { return lane.Push(ctx, s, emit) }
				flush = func() error { return lane.Flush(ctx, emit) }
			}
			for {
				if number = int(next.Add(1)) - 1; number >= len(strides) {
					if err := flush(); err != nil {
						return err
					}
					return local.Combine(ctx)
				}
				if err := push(borrow(strides[number])); err != nil {
					return err
				}
			}
		})
	}
	if err := wg.Wait(); err != nil {
		return err
	}
	q, err := device.NewQueue("finalize")
	if err != nil {
		return err
	}
	defer q.Close()
	return into.Finalize(ctx, operators.Task{Device: device, Queue: q, Lease: l, StrideRows: device.StrideRows(0),
		Lanes: lanes})
}
