package runner

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gstream/gstream/gpu/cuda"
	"github.com/gstream/gstream/gpu/host"
	"github.com/gstream/gstream/pipeline/execution"
	"github.com/gstream/gstream/pipeline/internal/physical"
	"github.com/gstream/gstream/pipeline/job"
)

// The model of the time of a plan on each device, in seconds of one core per unit of
// work, unless "wall" says that it is wall time. The constants are fitted to whole
// processes of the 13 example jobs at scale factors 0.01 to 30, on an H200 with 16 cores,
// on 64 cores with four H200 and on a CPU with 2 cores (examples/bench/devices.md).
// TestTheChoiceIsRightWhereBothDevicesWereMeasured has the figures that they must
// explain.
const (
	hostStart   = 0.022 // start and end of a process; wall
	gpuStart    = 0.409 // the same with the only GPU of a machine; wall
	driverStart = 0.105 // of that, the start of the driver
	hiddenStart = 0.018 // the start of the driver for each further GPU of the machine; wall
	// The start of the driver with n further GPUs visible takes shownStart × n + crowdStart × n² more; wall.
	shownStart, crowdStart = 0.193, 0.0167
	hostDecode             = 1.749e-9   // a byte of the scanned columns, as encoded in the file
	gpuDecode              = 1.075e-9   // the same to encoded columns, partly while the GPU starts
	hostRow                = 11.01e-9   // a row that goes into a filter or a join
	gpuRow                 = 0.809e-9   // the same; wall
	hostValue              = 0.5093e-9  // a value that an operator returns, or a group-by takes
	hostGroup              = 19.6e-9    // a row that goes into a group-by of many groups
	hostSort               = 19.3e-9    // a value of a row that is sorted
	encodeValue            = 28.7e-9    // a value of the output, on either device
	gpuLink                = 1 / 30.7e9 // a byte over the link in either direction; wall
	// serialShare is the share of an operator's work that runs on one core, however many
	// there are.
	serialShare = 0.156
	// manyGroups is the number of groups from which the table of a group-by no longer
	// fits the cache.
	manyGroups = 1 << 16
)

// work is the work of a plan, by its estimates.
type work struct {
	scanned float64 // bytes of decoded columns, as encoded in the files
	rows    float64 // rows that go into filters and joins, and pairs that joins compare one by one
	values  float64 // values that operators return and group-bys take
	grouped float64 // rows that go into group-bys of many groups
	sorted  float64 // values of rows that are sorted
	encoded float64 // values of the output
	written float64 // bytes of the output
}

// planWork returns the work of a plan.
func planWork(p *physical.Plan) work {
	w := work{encoded: p.Root.Rows * float64(p.Schema.Len()), written: p.Root.Rows * float64(p.Schema.RowBytes())}
	w.add(p.Root)
	return w
}

// add adds the work of a stage and its inputs. A top-k, a limit and a union cost little
// compared with their inputs.
func (w *work) add(s *physical.Stage) {
	for _, in := range s.Inputs {
		w.add(in)
	}
	columns := float64(s.Schema.Len())
	switch spec := s.Spec.(type) {
	case *physical.Scan:
		for _, c := range spec.Columns {
			w.scanned += float64(spec.Table.Stats(c).Bytes)
		}
	case *physical.Project:
		w.values += s.Rows * float64(s.Computed)
	case *physical.Group:
		w.values += s.Inputs[0].Rows * columns
		if s.Rows >= manyGroups {
			w.grouped += s.Inputs[0].Rows
		}
	case *physical.Sort:
		if spec.Limit < 0 {
			w.sorted += s.Rows * columns
		}
	case *physical.Window:
		w.sorted += s.Rows * columns
	case *physical.Limit, *physical.Union, *physical.Materialize, *physical.Materialized, *physical.Values,
		*physical.SingleRow:
	case *physical.Filter, *physical.Join, *physical.Expand:
		for _, in := range s.Inputs {
			w.rows += in.Rows
		}
		w.rows += s.Pairs
		w.sorted += s.Sorted
		w.values += s.Rows * columns
	default:
		panic(fmt.Sprintf("runner: the work of a stage of type %T is not known", spec))
	}
}

// onHost estimates the time of the work on cores CPU cores.
func (w work) onHost(cores int) time.Duration {
	operators := w.rows*hostRow + w.values*hostValue + w.grouped*hostGroup + w.sorted*hostSort
	spread := w.scanned*hostDecode + w.encoded*encodeValue + operators*(1-serialShare)
	return seconds(hostStart + spread/float64(cores) + operators*serialShare)
}

// starts estimates the seconds in which a process starts and ends a GPU. alone says that it makes no other visible.
func starts(c cuda.Census, alone bool) float64 {
	if c.Started {
		return gpuStart - driverStart
	}
	visible := c.Visible
	if !c.Counted {
		visible = c.Installed
	} else if alone {
		visible = min(visible, 1)
	}
	more := float64(max(visible, 1) - 1)
	return gpuStart + hiddenStart*float64(max(c.Installed, 1)-1) + more*(shownStart+more*crowdStart)
}

// onGPU estimates the time of the work on a GPU that takes some seconds to start and end. The cores decode and encode.
func (w work) onGPU(cores int, start float64) time.Duration {
	spread := w.scanned*gpuDecode + w.encoded*encodeValue
	return seconds(start + spread/float64(cores) + w.rows*gpuRow + (w.scanned+w.written)*gpuLink)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// ChooseDevice returns the device of a run of a plan with these options. If they leave it
// open (Auto) and there is an NVIDIA driver, it is the device that takes less time by a
// model of the plan's estimates, or a GPU if the job forces an algorithm for one; the GPU is
// not started. The error is a *Diagnostic about the name of the device, or about a step that
// forces an algorithm that is not for the device.
func ChooseDevice(p *physical.Plan, opt execution.Options) (*execution.Choice, error) {
	if err := host.CheckThreads(opt.Threads); err != nil {
		return nil, &job.Diagnostic{Msg: err.Error()}
	}
	if opt.Device != nil {
		props := opt.Device.Known()
		return &execution.Choice{Device: props.ID, Why: "given by the caller"}, p.RunsOn(props)
	}
	c, err := choose(p, opt)
	if err == nil && c.Device == execution.Host {
		err = p.RunsOn(host.Unopened())
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func choose(p *physical.Plan, opt execution.Options) (*execution.Choice, error) {
	want, err := parseDevice(opt.Use)
	if err != nil {
		return nil, err
	}
	if want.kind != execution.Auto {
		return &execution.Choice{Device: opt.Use, Why: "asked for"}, nil
	}
	gpus, err := cuda.Look("")
	if errors.Is(err, cuda.ErrNoDriver) {
		return &execution.Choice{Device: execution.Host, Why: err.Error()}, nil
	}
	if gpus.Counted && gpus.Visible == 0 {
		return &execution.Choice{Device: execution.Host, Why: "CUDA_VISIBLE_DEVICES shows no GPU"}, nil
	}
	c := planWork(p).choose(cmp.Or(opt.Threads, min(runtime.GOMAXPROCS(0), host.MaxThreads())), starts(gpus, opt.Alone))
	if p.RunsOn(host.Unopened()) != nil {
		c.Device, c.Why = execution.CUDA, "the job forces an algorithm for a GPU"
	}
	if want.withHost && c.Device == execution.CUDA {
		c.Device += execution.WithHost
	}
	return c, nil
}

// choose returns the device with the lower estimate.
func (w work) choose(cores int, start float64) *execution.Choice {
	c := &execution.Choice{Device: execution.Host, Host: w.onHost(cores), CUDA: w.onGPU(cores, start)}
	about := func(d time.Duration) string { return fmt.Sprintf("about %.2g s", d.Seconds()) }
	onHost := fmt.Sprintf("%s on %d cores", about(c.Host), cores)
	onGPU := fmt.Sprintf("%s on the GPU, %.2g s to start and end it among them", about(c.CUDA), start)
	if c.Why = onHost + "; " + onGPU; c.CUDA < c.Host {
		c.Device, c.Why = execution.CUDA, onGPU+"; "+onHost
	}
	return c
}
