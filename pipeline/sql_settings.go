package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gstream/gstream/operators/expr/syntax"
	"github.com/gstream/gstream/pipeline/internal/runner"
	"github.com/gstream/gstream/pipeline/job"
)

// settings are what SET has set. Zeros are not set.
type settings struct {
	Device, SpillDir, SpillCompression               string
	Threads                                          int
	HostMemory, DeviceMemory, SpillLimit, StrideSize int64
}

// over returns options in which the settings replace others.
func (s settings) over(opt RunOptions) RunOptions {
	opt.Use = cmp.Or(s.Device, opt.Use)
	opt.SpillDir = cmp.Or(s.SpillDir, opt.SpillDir)
	opt.SpillCompression = cmp.Or(s.SpillCompression, opt.SpillCompression)
	opt.Threads = cmp.Or(s.Threads, opt.Threads)
	opt.HostMemory = cmp.Or(s.HostMemory, opt.HostMemory)
	opt.DeviceMemory = cmp.Or(s.DeviceMemory, opt.DeviceMemory)
	opt.SpillLimit = cmp.Or(s.SpillLimit, opt.SpillLimit)
	opt.StrideSize = cmp.Or(s.StrideSize, opt.StrideSize)
	return opt
}

// settingNames maps the names of settings to those of gstream: DuckDB has other names for some.
var settingNames = map[string]string{
	"memory_limit": "host_memory", "max_memory": "host_memory", "worker_threads": "threads",
	"temp_directory": "spill_dir", "max_temp_directory_size": "spill_limit",
	"device": "device", "threads": "threads", "host_memory": "host_memory", "device_memory": "device_memory",
	"spill_dir": "spill_dir", "spill_limit": "spill_limit", "spill_compression": "spill_compression",
	"stride_size": "stride_size",
}

// assign does SET. The error is a *syntax.Error.
func (s *settings) assign(n *syntax.Set) error {
	wrong := func(format string, args ...any) error { return syntax.NewError(n.Source(), n.Pos(), format, args...) }
	name, known := settingNames[strings.ToLower(n.Name)]
	if !known {
		names := slices.Sorted(maps.Keys(settingNames))
		return wrong("there is no setting %q%s; there are %s", n.Name, job.DidYouMean(strings.ToLower(n.Name), names),
			strings.Join(names, ", "))
	}
	var text string
	switch v := n.Value.(type) {
	case *syntax.StringLiteral:
		text = v.Text
	case *syntax.NumberLiteral:
		text = v.Text
	case *syntax.Name:
		text = strings.Join(v.Parts, ".")
	default:
		return wrong("SET %s takes a string or a number, not %s", n.Name, n.Value)
	}
	sizes := map[string]*int64{"host_memory": &s.HostMemory, "device_memory": &s.DeviceMemory,
		"spill_limit": &s.SpillLimit, "stride_size": &s.StrideSize}
	switch name {
	case "device":
		if err := runner.CheckDevice(text); err != nil {
			return wrong("SET %v", err)
		}
		s.Device = text
	case "spill_dir":
		s.SpillDir = text
	case "spill_compression":
		if text != "lz4" && text != "none" {
			return wrong("SET spill_compression takes 'lz4' or 'none', not %s", n.Value)
		}
		s.SpillCompression = text
	case "threads":
		count, err := strconv.Atoi(text)
		if err == nil && count < 1 {
			err = fmt.Errorf("too few")
		}
		if err == nil {
			err = runner.CheckThreads(count)
		} else {
			err = fmt.Errorf("%s is no number of CPU cores", n.Value)
		}
		if err != nil {
			return wrong("SET %s: %v", n.Name, err)
		}
		s.Threads = count
	default:
		size, err := job.ParseSize(text)
		if err == nil && size <= 0 {
			err = fmt.Errorf("%s is no size; it is a number of bytes such as '4GiB'", n.Value)
		}
		if err != nil {
			return wrong("SET %s: %v", n.Name, err)
		}
		*sizes[name] = int64(size)
	}
	return nil
}
