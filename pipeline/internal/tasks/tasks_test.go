package tasks

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSharesHaveAllItemsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		weights := make([]int64, r.IntN(40))
		total, most := int64(0), int64(0)
		for i := range weights {
			weights[i] = r.Int64N(1 + r.Int64N(100))
			total, most = total+weights[i], max(most, weights[i])
		}
		n := 1 + r.IntN(12)
		bounds := Consecutive(weights, n)
		require.Len(t, bounds, n+1)
		require.True(t, slices.IsSorted(bounds))
		require.Zero(t, bounds[0])
		require.Equal(t, len(weights), bounds[n])
		for i := range n {
			sum := int64(0)
			for _, w := range weights[bounds[i]:bounds[i+1]] {
				sum += w
			}
			require.LessOrEqual(t, sum, total/int64(n)+most+1)
		}
		var items []int
		for _, share := range Packed(weights, n) {
			require.NotEmpty(t, share)
			sum := int64(0)
			for _, i := range share {
				sum += weights[i]
			}
			require.LessOrEqual(t, sum, total/int64(n)+most)
			items = append(items, share...)
		}
		slices.Sort(items)
		for i, w := range weights {
			_, ok := slices.BinarySearch(items, i)
			require.Equal(t, w > 0, ok)
		}
		require.Equal(t, items, slices.Compact(slices.Clone(items)))
		parts, last := make([]float64, len(weights)), Split{}
		for _, share := range Shared(weights, n) {
			for _, s := range share {
				require.GreaterOrEqual(t, s.Item*1000+s.Share, last.Item*1000+last.Share, "in order")
				parts[s.Item] += 1 / float64(s.Of)
				last = s
			}
		}
		for _, p := range parts {
			require.InDelta(t, 1, p, 1e-9)
		}
	}
}

func TestATaskThatIsLostTooOftenEndsTheSchedule(t *testing.T) {
	lost := errors.New("lost")
	for failures := range 4 {
		for _, again := range []bool{true, false} {
			s := Schedule{Failures: failures, Fragments: []Fragment{{Begin: func() ([]int64, error) {
				return []int64{1}, nil
			}, End: func() error { return nil }}}}
			attempts := 0
			for !s.Done() {
				a, ok, _ := s.Next(0)
				require.True(t, ok)
				attempts++
				s.Lost(a, again, lost)
			}
			want := failures + 1
			if !again {
				want = 1
			}
			require.Equal(t, want, attempts)
			require.Equal(t, lost, s.Err())
		}
	}
}

func TestAnErrorOfABarrierEndsTheSchedule(t *testing.T) {
	wrong := errors.New("wrong")
	none := func() ([]int64, error) { return nil, nil }
	for _, f := range []Fragment{{Begin: func() ([]int64, error) { return nil, wrong }},
		{Begin: none, End: func() error { return wrong }}} {
		s := Schedule{Fragments: []Fragment{{Begin: none, End: func() error { return nil }}, f}}
		s.Fragments[1].Inputs = []int{0}
		_, ok, _ := s.Next(0)
		require.False(t, ok)
		require.True(t, s.Done())
		require.Equal(t, wrong, s.Err())
	}
}

// cluster is a simulated cluster: workers that take the tasks of a schedule.
type cluster struct {
	workers int
	// failing is the share of attempts that are lost, at a random time of their work.
	failing float64
	// slow is the share of workers that need slowness times the time, and preempted that of attempts whose worker goes
	// away for a while.
	slow, slowness, preempted float64
	// start is what the start of an attempt takes: a process, or a message and a poll of an engine.
	start time.Duration
	r     *rand.Rand
}

// happening is the end of an attempt, or of the absence of a worker.
type happening struct {
	at     time.Duration
	worker int
	Attempt
	lost, back bool
}

type happenings []happening

func (h happenings) Len() int           { return len(h) }
func (h happenings) Less(i, j int) bool { return h[i].at < h[j].at }
func (h happenings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)        { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// run returns when the schedule has ended, and the number of attempts. work is the time of a task on a worker that is
// not slow.
func (c *cluster) run(s *Schedule, work func(Attempt) time.Duration) (now time.Duration, attempts int) {
	pace := make([]float64, c.workers)
	free := make([]int, c.workers)
	for i := range free {
		free[i], pace[i] = i, 1
		if c.r.Float64() < c.slow {
			pace[i] = c.slowness
		}
	}
	var queue happenings
	for !s.Done() {
		var until time.Duration
		for len(free) > 0 {
			a, ok, at := s.Next(now)
			if !ok {
				until = at
				break
			}
			attempts++
			worker := free[len(free)-1]
			free = free[:len(free)-1]
			takes := c.start + time.Duration(float64(work(a))*pace[worker])
			one := happening{at: now + takes, worker: worker, Attempt: a, lost: c.r.Float64() < c.failing}
			if one.lost {
				one.at = now + time.Duration(float64(takes)*c.r.Float64())
			}
			heap.Push(&queue, one)
		}
		if s.Done() {
			break
		}
		if until > 0 && (len(queue) == 0 || until < queue[0].at) {
			now = until
			continue
		}
		one := heap.Pop(&queue).(happening)
		now = one.at
		switch {
		case one.back:
		case one.lost:
			s.Lost(one.Attempt, true, errors.New("lost"))
		default:
			s.Ended(one.Attempt, now)
		}
		if !one.back && c.r.Float64() < c.preempted {
			heap.Push(&queue, happening{at: now + time.Minute, worker: one.worker, back: true})
			continue
		}
		free = append(free, one.worker)
	}
	return now, attempts
}

// simulation is a run of three fragments: a scan of equal shares, a join of partitions, and a merge of a few.
type simulation struct {
	workers, tasks int
	seconds        float64 // of the work of all tasks of a fragment
	zipf           float64 // of the sizes of partitions, of partsPerTask for each task
}

const partsPerTask = 4

// schedule returns the schedule, the time of a task, and the ideal time: all work, divided among the workers evenly.
func (x simulation) schedule(r *rand.Rand) (*Schedule, func(Attempt) time.Duration, time.Duration) {
	weights := make([][]int64, 3)
	share := int64(x.seconds * 1e6 / float64(x.tasks))
	for range x.tasks {
		weights[0] = append(weights[0], share)
	}
	parts, sum := make([]float64, partsPerTask*x.tasks), 0.0
	for i := range parts {
		parts[i] = math.Pow(float64(i+1), -x.zipf)
		sum += parts[i]
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	sizes := make([]int64, len(parts))
	for i, p := range parts {
		sizes[i] = int64(p / sum * x.seconds * 1e6)
	}
	sizes, _ = Even(sizes, x.tasks, func(int) bool { return true })
	for _, share := range Packed(sizes, x.tasks) {
		all := int64(0)
		for _, i := range share {
			all += sizes[i]
		}
		weights[1] = append(weights[1], all)
	}
	for range x.workers {
		weights[2] = append(weights[2], share)
	}
	s := &Schedule{Failures: 9, Patience: 2, Least: time.Second}
	total := int64(0)
	for i, w := range weights {
		f := Fragment{Begin: func() ([]int64, error) { return w, nil }, End: func() error { return nil }}
		if i > 0 {
			f.Inputs = []int{i - 1}
		}
		s.Fragments = append(s.Fragments, f)
		for _, one := range w {
			total += one
		}
	}
	return s, func(a Attempt) time.Duration { return time.Duration(weights[a.Fragment][a.Task]) * time.Microsecond },
		time.Duration(total/int64(x.workers)) * time.Microsecond
}

// TestTenThousandTasksOnAThousandWorkers simulates what docs/scale.md says.
func TestTenThousandTasksOnAThousandWorkers(t *testing.T) {
	for _, c := range []struct {
		name string
		x    simulation
		c    cluster
		most float64 // of the ideal time
	}{
		{"even", simulation{1000, 10_000, 300_000, 0}, cluster{}, 1.15},
		{"1 % failures, Zipf 1", simulation{1000, 10_000, 300_000, 1}, cluster{failing: 0.01}, 1.3},
		{"also 2 % of the workers three times as slow", simulation{1000, 10_000, 300_000, 1},
			cluster{failing: 0.01, slow: 0.02, slowness: 3}, 1.45},
		{"also 0.1 % of the attempts preempted", simulation{1000, 10_000, 300_000, 1},
			cluster{failing: 0.01, slow: 0.02, slowness: 3, preempted: 0.001}, 1.5},
		{"100 workers", simulation{100, 1000, 30_000, 1}, cluster{failing: 0.01}, 1.35},
	} {
		t.Run(c.name, func(t *testing.T) {
			worst := 0.0
			for seed := range uint64(1) {
				r := rand.New(rand.NewPCG(seed, 9))
				cl := c.c
				cl.workers, cl.start, cl.r = c.x.workers, 200*time.Millisecond, r
				s, work, ideal := c.x.schedule(r)
				took, attempts := cl.run(s, work)
				require.NoError(t, s.Err())
				ratio := float64(took) / float64(ideal)
				worst = max(worst, ratio)
				t.Logf("%v of %v ideal (%.2f), %d attempts", took.Round(time.Second/10), ideal.Round(time.Second/10),
					ratio, attempts)
			}
			require.Less(t, worst, c.most, fmt.Sprintf("times the ideal, with %v workers", c.x.workers))
		})
	}
}
