package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/operators"
	"github.com/gstream/gstream/operators/groupby"
)

const groupRows = 20_000_000

// compareGroups compares group-bys of a table in memory: the sums of two columns by a key. Both
// engines then sum the groups, so all are made, neither hands rows over, and the results can be compared.
func compareGroups(ctx context.Context, dir, match string, runs, threads int) error {
	fmt.Printf("\n| group-by in memory, %d M rows, sums of 2 columns | gstream CPU s | DuckDB CPU s | CPU ratio | "+
		"gstream s | DuckDB s | time ratio |\n|---|---|---|---|---|---|---|\n", groupRows/1_000_000)
	for _, spread := range []bool{true, false} {
		for _, groups := range []int{10, 10_000, 1_000_000, 10_000_000} {
			if err := compareGroup(ctx, dir, match, groups, spread, runs, threads); err != nil {
				return err
			}
		}
	}
	return nil
}

func compareGroup(ctx context.Context, dir, match string, groups int, spread bool, runs, threads int) error {
	what := fmt.Sprintf("%d groups, %s keys", groups, domain(spread))
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
	l := device.HostBudget().Lease("groups")
	long := gpu.Of(gpu.Int64)
	rows, err := drawSide(l, long, "v", groupRows, device.StrideRows(0), func(int) uint64 {
		if i := rand.Uint64N(uint64(groups)); spread {
			return spreadKey(i, 8)
		} else {
			return i
		}
	})
	if err != nil {
		return err
	}
	if err := loadDuckDB(ctx, db, filepath.Join(dir, "rows.parquet"), "rows", rows, threads, l); err != nil {
		return err
	}
	hint := gpu.GroupHint{Rows: groupRows}
	if !spread { // as statistics of a file tell
		hint = gpu.GroupHint{Rows: groupRows, Groups: groups, Dense: true, Hi: int64(groups - 1)}
	}
	err = inTurn(db, what, runs,
		"select count(*)::text || ' ' || sum(s1)::text || ' ' || sum(s2)::text from (select sum(v1) as s1, sum(v2) "+
			"as s2 from rows group by k)",
		func() (string, error) { return groupStrides(ctx, device, rows, hint, threads) })
	if err != nil {
		return err
	}
	for _, s := range rows {
		s.Release()
	}
	return device.Close()
}

// groupStrides groups rows, and returns the number of groups and the sums of their sums.
func groupStrides(ctx context.Context, device *host.Device, rows []*gpu.Stride, hint gpu.GroupHint,
	threads int) (text string, err error) {
	l := device.Budget().Lease("run")
	defer func() {
		if closeErr := l.Close(); err == nil {
			err = closeErr
		}
	}()
	sums := func(in *gpu.Schema, keys, from int) groupby.Spec {
		s := groupby.Spec{In: in, Out: operators.PickFields(in, nil)}
		for k := range keys {
			s.Keys, s.Out.Fields = append(s.Keys, k), append(s.Out.Fields, in.Fields[k])
		}
		for i := from; i < in.Len(); i++ {
			sum := gpu.SumType(in.Fields[i].Type)
			s.Aggregates = append(s.Aggregates, groupby.Aggregate{Kind: gpu.Sum, Input: i, Output: sum})
			s.Out.Fields = append(s.Out.Fields, gpu.Field{Name: in.Fields[i].Name, Type: sum, Nullable: true})
		}
		return s
	}
	spec := sums(rows[0].Schema, 1, 1)
	spec.Hint = hint
	groups, err := groupby.New(spec)
	if err != nil {
		return "", err
	}
	defer groups.Close()
	if err := inLanes(ctx, device, l, groups, rows, threads, nil); err != nil {
		return "", err
	}
	total := sums(spec.Out, 0, 1)
	total.Aggregates = append(total.Aggregates,
		groupby.Aggregate{Kind: gpu.CountAll, Input: -1, Output: gpu.Of(gpu.Int64)})
	total.Out.Fields = append(total.Out.Fields, gpu.Field{Name: "n", Type: gpu.Of(gpu.Int64)})
	all, err := groupby.New(total)
	if err != nil {
		return "", err
	}
	defer all.Close()
	var next atomic.Int64
	var wg errgroup.Group
	for range threads {
		wg.Go(func() error {
			q, err := device.NewLaneQueue("lane")
			if err != nil {
				return err
			}
			defer q.Close()
			t := operators.Task{Device: device, Queue: q, Lease: l, StrideRows: device.StrideRows(0), Lanes: threads}
			local, err := all.NewLocal(t)
			if err != nil {
				return err
			}
			defer local.Close()
			for {
				part := int(next.Add(1)) - 1
				if part >= groups.Parts() {
					return local.Combine(ctx)
				}
				if err := groups.Emit(ctx, t, part,
					func(s *gpu.Stride) error { return local.Push(ctx, part, s) }); err != nil {
					return err
				}
			}
		})
	}
	if err := wg.Wait(); err != nil {
		return "", err
	}
	q, err := device.NewQueue("result")
	if err != nil {
		return "", err
	}
	defer q.Close()
	t := operators.Task{Device: device, Queue: q, Lease: l, StrideRows: device.StrideRows(0), Lanes: threads}
	if err := all.Finalize(ctx, t); err != nil {
		return "", err
	}
	var out []string
	err = all.Emit(ctx, t, 0, func(s *gpu.Stride) error {
		for _, c := range []int{2, 0, 1} {
			out = append(out, s.Cols[c].ScalarAt(0).String())
		}
		s.Release()
		return nil
	})
	return strings.Join(out, " "), err
}
