package pipeline

import (
	"context"
	"errors"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/sink"
	sourcearrow "github.com/gstream/gstream/source/arrow"
)

// Collector collects the rows of a result as Arrow records, for Builder.WriteTo. It serves a single
// run; call Records after the run.
type Collector struct {
	mu      sync.Mutex
	schema  *arrow.Schema
	records []arrow.Record
	stats   sink.Stats
	done    bool
}

// Records returns the result, one record for each stride, in order. It returns nothing if the run
// failed. The records are on the Go heap and need no Release.
func (c *Collector) Records() []arrow.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		return nil
	}
	return c.records
}

// Schema returns the columns of the result, even if it has no rows. It is nil before a run and
// after a run that failed.
func (c *Collector) Schema() *arrow.Schema {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		return nil
	}
	return c.schema
}

// Reader returns the result as a stream of records. It fails if there is no result.
func (c *Collector) Reader() (array.RecordReader, error) {
	schema := c.Schema()
	if schema == nil {
		return nil, errors.New("there is no result: no run has ended without an error")
	}
	return array.NewRecordReader(schema, c.Records())
}

// Create implements Target.
func (c *Collector) Create(s *gpu.Schema, _ TargetOptions) (sink.Sink, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schema = sourcearrow.Schema(s)
	c.records, c.stats, c.done = nil, sink.Stats{}, false
	return collectorSink{c}, nil
}

// Describe implements Target.
func (c *Collector) Describe() string { return "Arrow records" }

type collectorSink struct{ *Collector }

func (c collectorSink) Write(_ context.Context, s *gpu.Stride) error {
	defer s.Release()
	r := sourcearrow.Record(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
	c.stats.Rows += int64(s.Rows)
	c.stats.Bytes += s.Bytes()
	return nil
}

func (c collectorSink) Commit(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done = true
	return nil
}

func (c collectorSink) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.records = nil
	}
	return nil
}

func (c collectorSink) Stats() sink.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// ArrowRecord copies a host-addressable stride into a record on the Go heap.
func ArrowRecord(s *gpu.Stride) arrow.Record { return sourcearrow.Record(s) }

// ArrowSchema returns the Arrow schema of a gstream schema.
func ArrowSchema(s *gpu.Schema) *arrow.Schema { return sourcearrow.Schema(s) }
