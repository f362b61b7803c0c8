package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/class"
	"github.com/gstream/gstream/sink"
	"github.com/gstream/gstream/source"
)

// mostSampled bounds the rows of a report that do not meet an expectation, and mostShown the bytes of a value.
const (
	mostSampled = 5
	mostShown   = 80
)

// violations counts the rows that do not meet an expectation, and keeps the first ones as texts. It is a sink.Sink.
type violations struct {
	schema *gpu.Schema
	mu     sync.Mutex
	rows   int64
	sample [][]string
}

func (v *violations) Write(_ context.Context, s *gpu.Stride) error {
	defer s.Release()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows += int64(s.Rows)
	for i := 0; i < s.Rows && len(v.sample) < mostSampled; i++ {
		row := make([]string, len(s.Cols))
		for k, c := range s.Cols {
			if row[k] = c.ScalarAt(i).String(); len(row[k]) > mostShown {
				row[k] = strings.ToValidUTF8(row[k][:mostShown], "") + "…"
			}
		}
		v.sample = append(v.sample, row)
	}
	return nil
}

func (v *violations) Commit(context.Context) error { return nil }
func (v *violations) Abort() error                 { return nil }

func (v *violations) Stats() sink.Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	return sink.Stats{Rows: v.rows}
}

// expectation reports what is known of an expectation so far.
func (s *sinkRun) expectation() execution.ExpectationReport {
	e := execution.ExpectationReport{Step: s.Expect.Step, Expects: s.Expect.Text, Warn: s.Expect.Warn,
		Columns: s.Schema.Names()}
	if v, ok := s.sink.(*violations); ok {
		v.mu.Lock()
		defer v.mu.Unlock()
		e.Rows, e.Sample = v.rows, v.sample
	}
	return e
}

// unmet returns an error if an expectation is not met that is no warning.
func (r *run) unmet() error {
	var errs []error
	for _, s := range r.sinks {
		if s.Expect == nil || s.Expect.Warn {
			continue
		}
		if e := s.expectation(); e.Rows > 0 {
			errs = append(errs, &unmetError{e})
		}
	}
	return errors.Join(errs...)
}

// unmetError is an expectation that is not met.
type unmetError struct{ execution.ExpectationReport }

func (e *unmetError) Error() string {
	text := fmt.Sprintf("%s: expect %s: %s %s not meet it", e.Step, e.Expects,
		humanize.Comma(e.Rows)+" "+english.PluralWord(int(min(e.Rows, 2)), "row", ""),
		english.PluralWord(int(min(e.Rows, 2)), "does", "do"))
	if first := e.First(); first != "" {
		text += ", as " + first
	}
	return text + "; nothing is written"
}

// Is makes errors.Is true for what is wrong: the data.
func (e *unmetError) Is(target error) bool {
	return target == source.ErrData || target == class.ErrExpectation
}
