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
	var text string
	switch v := n.Value.(type) {
	case *syntax.StringLiteral:
		text = v.Text
	case *syntax.NumberLiteral:
		text = v.Text
	case *syntax.Name:
		text = strings.Join(v.Parts, ".")
	default:
		return syntax.NewError(n.Source(), n.Pos(), "SET %s takes a string or a number, not %s", n.Name, n.Value)
	}
	if err := s.set(n.Name, text); err != nil {
		return syntax.NewError(n.Source(), n.Pos(), "SET %v", err)
	}
	return nil
}

// set sets a setting to a value.
func (s *settings) set(given, text string) error {
	name, known := settingNames[strings.ToLower(given)]
	if !known {
		names := slices.Sorted(maps.Keys(settingNames))
		return fmt.Errorf("%s: there is no such setting%s; there are %s", given,
			job.DidYouMean(strings.ToLower(given), names), strings.Join(names, ", "))
	}
	sizes := map[string]*int64{"host_memory": &s.HostMemory, "device_memory": &s.DeviceMemory,
		"spill_limit": &s.SpillLimit, "stride_size": &s.StrideSize}
	switch name {
	case "device":
		if err := runner.CheckDevice(text); err != nil {
			return err
		}
		s.Device = text
	case "spill_dir":
		s.SpillDir = text
	case "spill_compression":
		if text != "lz4" && text != "none" {
			return fmt.Errorf("%s takes lz4 or none, not %q", given, text)
		}
		s.SpillCompression = text
	case "threads":
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 {
			return fmt.Errorf("%s: %q is no number of CPU cores", given, text)
		}
		if err := runner.CheckThreads(count); err != nil {
			return fmt.Errorf("%s: %w", given, err)
		}
		s.Threads = count
	default:
		size, err := job.ParseSize(text)
		if err == nil && size <= 0 {
			err = fmt.Errorf("%q is no size; it is a number of bytes such as 4GiB", text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", given, err)
		}
		*sizes[name] = int64(size)
	}
	return nil
}
