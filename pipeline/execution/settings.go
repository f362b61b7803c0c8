package execution

import (
	"strconv"

	"github.com/gstream/gstream/gpu"
)

// fields are the settings that errors name, as a Go program sets them: fields of package pipeline's options.
var fields = map[gpu.Setting]string{
	gpu.DeviceMemory: "RunOptions.DeviceMemory",
	gpu.HostMemory:   "RunOptions.HostMemory",
	gpu.SpillDir:     "RunOptions.SpillDir",
	gpu.SpillLimit:   "RunOptions.SpillLimit",
	gpu.UseHost:      "RunOptions.Use: " + strconv.Quote(Host),
	gpu.UseGPU:       "RunOptions.Use: " + strconv.Quote(CUDA),
	gpu.Overwrite:    "RunOptions.Overwrite",
	gpu.Discard:      "RunOptions.Discard",
	gpu.Variables:    "LoadOptions.Set",
	gpu.Parameters:   "Params",
}

// A program that runs pipelines has these fields; the command, which has flags, says so.
func init() { gpu.NameSettings(field) }

func field(s gpu.Setting, value string) string {
	if value == "" {
		return fields[s]
	}
	return fields[s] + ": " + value
}
