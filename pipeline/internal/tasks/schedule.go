package tasks

import (
	"cmp"
	"slices"
	"time"
)

// Fragment is tasks that may run at the same time. They begin when those of its inputs have ended: the barrier.
type Fragment struct {
	Inputs []int // earlier fragments
	// Begin makes its tasks, and returns their weights, once the inputs have ended.
	Begin func() (weights []int64, err error)
	// End is called once, when all tasks have ended.
	End func() error

	state state
	tasks []task
	left  int // tasks that have not ended
	// took are the times of the tasks that have ended, per weight and whole, in order.
	took []time.Duration
}

type state uint8

const (
	waiting state = iota
	running
	ended
)

type task struct {
	weight   int64
	state    state
	attempts int // begun
	failures int
	open     int // attempts that have not ended
	since    time.Duration
}

// Attempt is one of the times that a task runs.
type Attempt struct{ Fragment, Task, Number int }

// Schedule decides what runs next on a number of workers. It is not safe for concurrent use. Times are those of any
// clock.
//
// The heaviest tasks begin first. A task whose attempt is lost begins again, up to Failures times. If a worker is idle,
// a task that takes much longer than the others of its fragment begins a second time, on that worker (Dean, Ghemawat:
// MapReduce, OSDI 2004). The first attempt that ends counts.
type Schedule struct {
	Fragments []Fragment
	// Failures is the number of attempts of a task that may be lost.
	Failures int
	// Patience is how many times the median time of its fragment a task takes before it begins a second time; 0 is
	// never. Least is a time before which it does not.
	Patience float64
	Least    time.Duration

	err error
}

// Err returns the error that has ended the schedule.
func (s *Schedule) Err() error { return s.err }

// Done reports whether all fragments have ended, or an error has ended them.
func (s *Schedule) Done() bool {
	return s.err != nil || !slices.ContainsFunc(s.Fragments, func(f Fragment) bool { return f.state != ended })
}

// Next returns an attempt for a worker that is free, or false if it has to wait: until another one has ended or, for a
// second attempt, until a time, which is 0 if there is none.
func (s *Schedule) Next(now time.Duration) (a Attempt, ok bool, until time.Duration) {
	s.begin()
	if s.err != nil {
		return a, false, 0
	}
	var best *task
	for f := range s.Fragments {
		fragment := &s.Fragments[f]
		for t := range fragment.tasks {
			x := &fragment.tasks[t]
			if fragment.state == running && x.state == waiting && (best == nil || x.weight > best.weight) {
				best, a = x, Attempt{f, t, x.attempts}
			}
		}
		if best != nil {
			break // those of earlier fragments first
		}
	}
	if best == nil {
		if best, a, until = s.slow(now); best == nil {
			return a, false, until
		}
	}
	best.state, best.since = running, now
	best.attempts++
	best.open++
	return a, true, 0
}

// slow returns a task that should begin a second time, or the time when there may be one.
func (s *Schedule) slow(now time.Duration) (best *task, a Attempt, until time.Duration) {
	for f := range s.Fragments {
		fragment := &s.Fragments[f]
		if s.Patience == 0 || fragment.state != running || 2*len(fragment.took) < len(fragment.tasks) {
			continue
		}
		median := fragment.took[len(fragment.took)/2]
		patience := max(time.Duration(float64(median)*s.Patience), s.Least)
		for t := range fragment.tasks {
			x := &fragment.tasks[t]
			if x.state != running || x.open > 1 {
				continue
			}
			if at := x.since + patience; at > now {
				if until == 0 || at < until {
					until = at
				}
			} else if best == nil || x.since < best.since {
				best, a = x, Attempt{f, t, x.attempts}
			}
		}
	}
	return best, a, until
}

// begin begins fragments whose inputs have ended, and ends those without tasks.
func (s *Schedule) begin() {
	for f := range s.Fragments {
		fragment := &s.Fragments[f]
		if s.err != nil || fragment.state != waiting ||
			slices.ContainsFunc(fragment.Inputs, func(i int) bool { return s.Fragments[i].state != ended }) {
			continue
		}
		weights, err := fragment.Begin()
		if err != nil {
			s.err = err
			return
		}
		fragment.state, fragment.left = running, len(weights)
		for _, w := range weights {
			fragment.tasks = append(fragment.tasks, task{weight: w})
		}
		s.end(fragment)
	}
}

// end ends a fragment if all its tasks have ended.
func (s *Schedule) end(f *Fragment) {
	if f.left > 0 || s.err != nil {
		return
	}
	f.state = ended
	s.err = f.End()
}

// Open reports whether an attempt is still of use.
func (s *Schedule) Open(a Attempt) bool {
	return s.err == nil && s.Fragments[a.Fragment].tasks[a.Task].state != ended
}

// Ended notes that an attempt has ended well. It returns false if another one had ended before.
func (s *Schedule) Ended(a Attempt, now time.Duration) (first bool) {
	f := &s.Fragments[a.Fragment]
	t := &f.tasks[a.Task]
	t.open--
	if t.state == ended {
		return false
	}
	t.state = ended
	took := now - t.since
	at, _ := slices.BinarySearchFunc(f.took, took, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	f.took = slices.Insert(f.took, at, took)
	f.left--
	s.end(f)
	return true
}

// Lost notes that an attempt has failed. again says that another one may succeed. The error ends the schedule if not,
// or if the task has failed too often.
func (s *Schedule) Lost(a Attempt, again bool, err error) {
	t := &s.Fragments[a.Fragment].tasks[a.Task]
	t.open--
	if t.state == ended {
		return
	}
	if t.failures++; !again || t.failures > s.Failures {
		if s.err == nil {
			s.err = err
		}
		return
	}
	if t.open == 0 {
		t.state = waiting
	}
}

// Attempts returns the number of attempts of all tasks of a fragment that have begun, and of its tasks.
func (s *Schedule) Attempts(fragment int) (attempts, tasks int) {
	for _, t := range s.Fragments[fragment].tasks {
		attempts += t.attempts
	}
	return attempts, len(s.Fragments[fragment].tasks)
}
