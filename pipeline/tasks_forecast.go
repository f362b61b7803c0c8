package pipeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/logical"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/internal/runner"
	sourceexchange "github.com/gstream/gstream/source/exchange"
)

// cutPlan is a plan in fragments: what RunTasks runs, ExplainTasks draws, and CheckTasks adds up.
type cutPlan struct {
	last      *physical.Plan // of the process that writes the outputs
	fragments []*physical.Fragment
	reads     map[*physical.Stage]*physical.Received // of last
	outputs   map[*physical.Fragment]*parquetTarget  // that tasks write
}

// cut cuts the plan into fragments for a number of workers.
func (p *Plan) cut(opt RunOptions, to TaskOptions) (c cutPlan) {
	exchanges := map[string]physical.Exchanges{execution.Always: physical.ExchangesAlways,
		execution.Never: physical.ExchangesNever}[opt.Exchanges]
	c.last, c.fragments, c.reads = p.stages.Cut(to.Workers, exchanges, func(s *physical.Scan) bool {
		_, err := shareTable(s.Table)
		return err != nil
	}, func(output int) bool {
		_, ok := p.inParts(output, to)
		return ok
	})
	c.outputs = map[*physical.Fragment]*parquetTarget{}
	for i, o := range c.last.Written() {
		if in := c.reads[o.Root]; in != nil && in.From.Writes != nil {
			c.outputs[in.From], _ = p.inParts(i, to)
		}
	}
	return c
}

// fragmentForecast is what is expected of the tasks of a fragment.
type fragmentForecast struct {
	execution.FragmentForecast
	of    *physical.Fragment
	share int // the tasks of a section
}

// forecast estimates the fragments.
func (c cutPlan) forecast(to TaskOptions) (out []fragmentForecast, all execution.TasksForecast) {
	taken := func(reads map[*physical.Stage]*physical.Received, tasks int) (n int64) {
		for _, in := range reads {
			if bytes := int64(in.From.Bytes); in.From.Writes != nil {
				continue
			} else if in.Takes == physical.TakesAll {
				n += bytes * int64(tasks)
			} else {
				n += bytes
			}
		}
		return n
	}
	for _, f := range c.fragments {
		one := fragmentForecast{of: f, share: 1}
		one.FragmentForecast = execution.FragmentForecast{Fragment: f.Number + 1, Does: f.String(), Here: f.Here,
			Rows: f.Rows, Written: int64(f.Bytes), Tables: bytesOfTables(f)}
		for _, in := range f.Reads {
			one.Reads = append(one.Reads, execution.FragmentRead{Fragment: in.From.Number + 1,
				Takes: in.Takes.String()})
		}
		slices.SortFunc(one.Reads, func(a, b execution.FragmentRead) int { return a.Fragment - b.Fragment })
		if f.Spread {
			one.share = to.tasks(one.Tables + taken(f.Reads, 0)) // those that each task reads are not shared
		}
		if to := c.outputs[f]; to != nil {
			one.Output, one.Written = to.Describe(), 0
		}
		one.Tasks = one.share * f.Sections
		one.Read = taken(f.Reads, one.Tasks)
		all.Written, all.Read = all.Written+one.Written, all.Read+one.Read
		out = append(out, one)
	}
	all.Read += taken(c.reads, 1)
	if to.Engine != nil {
		all.Engine = to.Engine.Describe()
	}
	return out, all
}

// bytesOfTables returns the bytes of tables that the tasks of a fragment read, all together.
func bytesOfTables(f *physical.Fragment) (n int64) {
	for _, s := range f.Scans {
		for _, c := range s.Scan().Columns {
			n += s.Scan().Table.Stats(c).Bytes
		}
	}
	return n
}

// ExplainTasks is ExplainChoice of a run in tasks (see RunTasks): the plan of the process that writes the outputs, and
// the fragments that tasks compute for it.
func (p *Plan) ExplainTasks(opt RunOptions, to TaskOptions, c *Choice) *Explanation {
	cut := p.cut(opt, to)
	e := p.explain(cut.last, c.Device)
	fragments, all := cut.forecast(to)
	if len(fragments) == 0 {
		return e
	}
	e.Tasks = &TasksExplained{TasksForecast: all}
	for _, f := range fragments {
		e.Tasks.Fragments = append(e.Tasks.Fragments, &FragmentExplained{f.FragmentForecast,
			explainStage(f.of.Root, c.Device)})
	}
	return e
}

// TasksExplained are the fragments of a plan that runs in tasks.
type TasksExplained struct {
	execution.TasksForecast
	Fragments []*FragmentExplained `json:"fragments"`
}

// FragmentExplained is a fragment and its stages.
type FragmentExplained struct {
	execution.FragmentForecast
	Root *StageExplained `json:"plan"`
}

// draw appends the fragments.
func (t *TasksExplained) draw(b *strings.Builder, d *drawing) {
	fmt.Fprintf(b, "\nin tasks on %s; %s\n", t.Engine, t.Traffic())
	for _, f := range t.Fragments {
		fmt.Fprintf(b, "\nfragment %d, about %s%s: %s\n", f.Fragment, f.TasksText(), f.Where(), f.Does)
		fmt.Fprintf(b, "    writes about %s rows, %s\n", logical.Approximate(f.Rows), f.To())
		d.draw(f.Root, "", 1, true)
	}
}

// CheckTasks is Check of a run in tasks, on workers with the given options (see DivideMachine): the memory of a task of
// each fragment, and what tasks write to and read from the files between them.
func (p *Plan) CheckTasks(opt RunOptions, to TaskOptions, worker RunOptions) (*Check, error) {
	cut := p.cut(p.written.options(opt), to)
	fragments, all := cut.forecast(to)
	if len(fragments) == 0 {
		return p.Check(opt)
	}
	for s := range cut.reads {
		if err := readNothing(s); err != nil {
			return nil, err
		}
	}
	out, err := runner.Check(cut.last, p.targets, p.written.options(opt))
	if err != nil {
		return nil, p.written.place(err)
	}
	out.Tasks = &all
	for _, f := range fragments {
		plan, copies := f.of.Task(0, 0, f.share)
		for s := range f.of.Reads {
			if one := copies[s]; one != nil {
				spec := *one.Scan()
				one.Spec = &spec
				if err := readNothing(one); err != nil {
					return nil, err
				}
			}
		}
		mine := worker
		if f.Here {
			mine = opt
		}
		var target Target = &rowsTarget{partitions: 1}
		if to := cut.outputs[f.of]; to != nil {
			target = &partsTarget{parquetTarget: to}
		}
		check, err := runner.Check(plan, []Target{target}, p.written.options(mine))
		if err != nil {
			return nil, fmt.Errorf("fragment %d: %w", f.Fragment, p.written.place(err))
		}
		one := f.FragmentForecast
		one.Tiers = check.Tiers
		out.Tasks.Fragments = append(out.Tasks.Fragments, one)
		out.Finishes = out.Finishes && check.Finishes
		for _, problem := range check.Problems {
			problem.Why = fmt.Sprintf("a task of fragment %d: %s", f.Fragment, problem.Why)
			out.Problems = append(out.Problems, problem)
		}
	}
	return out, nil
}

// readNothing gives a scan of the rows of a fragment a table without rows. Its estimates are those of the stage.
func readNothing(s *physical.Stage) (err error) {
	s.Scan().Table, err = sourceexchange.Open(s.Schema, nil)
	return err
}
