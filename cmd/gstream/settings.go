package main

import (
	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/pipeline"
)

// flagNames are the settings that errors name, as the command line sets them.
var flagNames = map[gpu.Setting]string{
	gpu.DeviceMemory: "--device-memory",
	gpu.HostMemory:   "--host-memory",
	gpu.SpillDir:     "--spill-dir",
	gpu.SpillLimit:   "--spill-limit",
	gpu.UseHost:      "--device " + pipeline.Host,
	gpu.UseGPU:       "--device " + pipeline.CUDA,
	gpu.Overwrite:    "--overwrite",
	gpu.Discard:      "gstream explain --analyze",
	gpu.Variables:    "--set",
	gpu.Parameters:   "--param",
}

// flagOf returns the flag of a setting, with a value unless that is "".
func flagOf(s gpu.Setting, value string) string {
	if value == "" {
		return flagNames[s]
	}
	return flagNames[s] + " " + value
}
