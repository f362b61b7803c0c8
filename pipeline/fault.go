package pipeline

import (
	"errors"
	"fmt"
	"strings"
)

// ErrJob is the sentinel behind every error that the job itself causes: its
// file, its variables, its expressions. Match it with errors.Is.
var ErrJob = errors.New("invalid job")

// Fault is one thing wrong with a job.
type Fault struct {
	File string // empty for a job built in Go
	Place
	Step string // the step or source, empty for the rest
	Msg  string
	Err  error // the cause when it is not the job, as an unreadable file
}

func (f *Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		b.WriteString(": ")
	}
	if f.Step != "" {
		b.WriteString(f.Step + ": ")
	}
	b.WriteString(f.Msg)
	return b.String()
}

// Unwrap returns the cause, ErrJob when it is the job itself.
func (f *Fault) Unwrap() error {
	if f.Err != nil {
		return f.Err
	}
	return ErrJob
}

// Faults is everything that was found wrong with a job, in the order of the file.
type Faults []*Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (fs Faults) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

// didYouMean returns ` (did you mean "x"?)` for the candidate nearest to name,
// or nothing when none is near.
func didYouMean(name string, candidates []string) string {
	best, limit := "", len(name)/3+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), strings.ToLower(c)); d <= limit {
			best, limit = c, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// editDistance is the Levenshtein distance with transpositions of neighbours
// (optimal string alignment) of two strings, in bytes.
func editDistance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
