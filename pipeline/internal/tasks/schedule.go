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
	queue []int        // tasks that wait, the heaviest last
	open  map[int]bool // tasks that run
	left  int          // tasks that have not ended
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
	for i := range s.Fragments { // tasks of earlier fragments first
		f := &s.Fragments[i]
		if n := len(f.queue); n > 0 {
			t := f.queue[n-1]
			f.queue = f.queue[:n-1]
			return s.start(i, t, now), true, 0
		}
	}
	fragment, t, until := s.slow(now)
	if t < 0 {
		return a, false, until
	}
	return s.start(fragment, t, now), true, 0
}

// start begins an attempt of a task.
func (s *Schedule) start(fragment, t int, now time.Duration) Attempt {
	f := &s.Fragments[fragment]
	x := &f.tasks[t]
	a := Attempt{fragment, t, x.attempts}
	x.state, x.since = running, now
	x.attempts++
	x.open++
	f.open[t] = true
	return a
}

// slow returns a task that should begin a second time, -1 if there is none, and the time when there may be one.
func (s *Schedule) slow(now time.Duration) (fragment, task int, until time.Duration) {
	task = -1
	var since time.Duration
	for i := range s.Fragments {
		f := &s.Fragments[i]
		if s.Patience == 0 || len(f.open) == 0 || 2*len(f.took) < len(f.tasks) {
			continue
		}
		patience := max(time.Duration(float64(f.took[len(f.took)/2])*s.Patience), s.Least)
		for t := range f.open {
			x := &f.tasks[t]
			switch at := x.since + patience; {
			case x.open > 1:
			case at > now && (until == 0 || at < until):
				until = at
			case at <= now && (task < 0 || x.since < since || x.since == since && t < task):
				fragment, task, since = i, t, x.since
			}
		}
	}
	return fragment, task, until
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
		fragment.state, fragment.left, fragment.open = running, len(weights), map[int]bool{}
		for i, w := range weights {
			fragment.tasks, fragment.queue = append(fragment.tasks, task{weight: w}), append(fragment.queue, i)
		}
		slices.SortStableFunc(fragment.queue, func(a, b int) int { return cmp.Compare(weights[a], weights[b]) })
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
	delete(f.open, a.Task)
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
	f := &s.Fragments[a.Fragment]
	t := &f.tasks[a.Task]
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
		delete(f.open, a.Task)
		f.queue = append(f.queue, a.Task) // next, as others may wait for it
	}
}

// Attempts returns the number of attempts of all tasks of a fragment that have begun, and of its tasks.
func (s *Schedule) Attempts(fragment int) (attempts, tasks int) {
	for _, t := range s.Fragments[fragment].tasks {
		attempts += t.attempts
	}
	return attempts, len(s.Fragments[fragment].tasks)
}
