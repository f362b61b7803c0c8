// Package temporal runs the tasks of a job on Temporal: an engine for pipeline.RunTasks, and the worker that takes its
// tasks.
//
// Each task is a workflow of its own with one activity, whose only argument is the path of the document. So neither the
// limit of a payload nor that of a history depends on the size of a run. Documents, rows and results are files that all
// workers see. Temporal decides which worker runs a task, starts it again after a worker is lost, and tells it that it
// is cancelled. Rows never pass through Temporal.
package temporal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gstream/gstream/pipeline"
)

// The defaults of an address.
const (
	defaultNamespace = "default"
	defaultQueue     = "gstream"
)

// The times of a task. A worker that is silent for silence is lost, unless the address says another time. It beats so
// often in that time. A task runs at most for longest.
const (
	silence = 30 * time.Second
	beats   = 10
	longest = 24 * time.Hour
	// attempts is how often Temporal starts a task. RunTasks may start it again.
	attempts = 3
)

// Address is where Temporal is.
type Address struct {
	Host, Namespace, Queue string
	// Silence is how long a worker does not answer before it counts as lost, at least a second.
	Silence time.Duration
}

// ParseAddress parses an address as in temporal://host:7233/namespace?queue=gpus&silence=10s. The namespace is
// "default", the queue "gstream" and the silence 30 s if they are missing.
func ParseAddress(text string) (Address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "temporal" || u.Host == "" || u.User != nil {
		return Address{}, fmt.Errorf("%w: %q is not an address as in temporal://host:7233/namespace", pipeline.ErrJob,
			text)
	}
	a := Address{u.Host, strings.Trim(u.Path, "/"), u.Query().Get("queue"), silence}
	if text := u.Query().Get("silence"); text != "" {
		if a.Silence, err = time.ParseDuration(text); err != nil || a.Silence < time.Second {
			return Address{}, fmt.Errorf("%w: silence=%s: must be a time of at least 1s, as in 10s", pipeline.ErrJob,
				text)
		}
	}
	if a.Namespace == "" {
		a.Namespace = defaultNamespace
	}
	if a.Queue == "" {
		a.Queue = defaultQueue
	}
	return a, nil
}

// dial connects to Temporal.
func (a Address) dial() (client.Client, error) {
	c, err := client.Dial(client.Options{HostPort: a.Host, Namespace: a.Namespace,
		Logger: log.NewStructuredLogger(slog.Default())})
	if err != nil {
		return nil, fmt.Errorf("%w: connect to Temporal at %s: %w", pipeline.ErrFile, a.Host, err)
	}
	return c, nil
}

// Engine is a pipeline.Engine.
type Engine struct {
	address Address
	client  client.Client
}

// NewEngine connects to Temporal. The caller closes the engine.
func NewEngine(a Address) (*Engine, error) {
	c, err := a.dial()
	return &Engine{a, c}, err
}

// Close closes the connection.
func (e *Engine) Close() { e.client.Close() }

// Describe implements pipeline.Engine.
func (e *Engine) Describe() string {
	return fmt.Sprintf("Temporal at %s, namespace %s, queue %s", e.address.Host, e.address.Namespace, e.address.Queue)
}

// Run implements pipeline.Engine.
func (e *Engine) Run(ctx context.Context, _ int, path string) (*pipeline.TaskResult, error) {
	run, err := e.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: e.address.Queue,
		WorkflowExecutionTimeout: longest}, taskWorkflow, path, e.address.Silence)
	if err != nil {
		return nil, lost(ctx, err)
	}
	var result pipeline.TaskResult
	err = run.Get(ctx, &result)
	if ctx.Err() != nil {
		cancelling, stop := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer stop()
		if err := e.client.CancelWorkflow(cancelling, run.GetID(), run.GetRunID()); err != nil {
			slog.Warn("a task was not cancelled", "workflow", run.GetID(), "error", err)
		}
		_ = run.Get(cancelling, nil) // afterwards its worker writes nothing
		return nil, context.Cause(ctx)
	}
	if err == nil {
		return &result, nil
	}
	var failed *sdk.ApplicationError
	if errors.As(err, &failed) && failed.NonRetryable() {
		return nil, classed{failed.Message(), failed.Type()}
	}
	return nil, lost(ctx, err)
}

// lost returns the error of a task that may succeed when it runs again.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", pipeline.ErrLost, err)
}

// classes are the names of classes of errors, in failures of activities.
var classes = map[string]error{"job": pipeline.ErrJob, "data": pipeline.ErrData, "memory": pipeline.ErrBudget,
	"changed": pipeline.ErrChanged, "defect": pipeline.ErrDefect}

// classed is an error of a task on another machine.
type classed struct{ text, class string }

func (c classed) Error() string        { return c.text }
func (c classed) Is(target error) bool { return classes[c.class] == target }

// taskWorkflow runs one task.
func taskWorkflow(ctx workflow.Context, path string, silence time.Duration) (*pipeline.TaskResult, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: longest,
		HeartbeatTimeout: silence, WaitForCancellation: true,
		RetryPolicy: &sdk.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: attempts}})
	var result *pipeline.TaskResult
	err := workflow.ExecuteActivity(ctx, (*tasks).Run, path).Get(ctx, &result)
	return result, err
}

// tasks is the activity.
type tasks struct{ opt pipeline.RunOptions }

// Run runs a task. Its heartbeats have the rows that it has written so far.
func (t *tasks) Run(ctx context.Context, path string) (*pipeline.TaskResult, error) {
	opt := t.opt
	opt.Interval = activity.GetInfo(ctx).HeartbeatTimeout / beats
	opt.Progress = func(r *pipeline.Report) { activity.RecordHeartbeat(ctx, r.Output.Rows) }
	beating, end := context.WithCancel(ctx)
	defer end()
	go func() { // also before the run begins
		for t := time.NewTicker(opt.Interval); ; {
			select {
			case <-beating.Done():
				t.Stop()
				return
			case <-t.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	result, err := pipeline.RunTaskFile(ctx, path, opt)
	if err == nil || ctx.Err() != nil || pipeline.MayPass(err) {
		return result, err
	}
	class := "defect"
	for name, of := range classes {
		if pipeline.Class(err) == of {
			class = name
		}
	}
	return nil, sdk.NewNonRetryableApplicationError(err.Error(), class, nil)
}

// Work takes tasks from Temporal until the context ends, so many at a time.
func Work(ctx context.Context, a Address, opt pipeline.RunOptions, atATime int) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	// A workflow has few events, so any worker continues it from its history. A cache would tie it to one worker.
	worker.SetStickyWorkflowCacheSize(0)
	w := worker.New(c, a.Queue, worker.Options{MaxConcurrentActivityExecutionSize: atATime,
		MaxHeartbeatThrottleInterval: silence / beats, // a heartbeat's answer tells of a cancellation
		BackgroundActivityContext:    ctx, WorkerStopTimeout: 5 * time.Second})
	w.RegisterWorkflow(taskWorkflow)
	w.RegisterActivity(&tasks{opt})
	interrupt := make(chan any)
	go func() {
		<-ctx.Done()
		close(interrupt)
	}()
	if err := w.Run(interrupt); err != nil {
		return fmt.Errorf("%w: take tasks from Temporal at %s: %w", pipeline.ErrFile, a.Host, err)
	}
	return nil
}
