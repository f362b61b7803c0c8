package phrase

import (
	"strings"
	"sync/atomic"
)

// flags is set in the command.
var flags atomic.Bool

// UseFlags makes Setting leave flags as they are. The command calls it when it starts.
func UseFlags() { flags.Store(true) }

// options are what a Go program sets instead of flags, all of package pipeline.
var options = strings.NewReplacer(
	"--device-memory", "RunOptions.DeviceMemory",
	"--device host", `RunOptions.Use: "host"`,
	"--device cuda", `RunOptions.Use: "cuda"`,
	"--host-memory", "RunOptions.HostMemory",
	"--overwrite", "RunOptions.Overwrite",
	"--spill-dir", "RunOptions.SpillDir",
	"--spill-limit", "RunOptions.SpillLimit",
	"--stride-size", "RunOptions.StrideSize",
	"--set ", "LoadOptions.Set: ",
)

// Setting returns a text for people that names flags of the command. In another program,
// which has no flags, it names the options of package pipeline instead.
func Setting(text string) string {
	if flags.Load() {
		return text
	}
	return options.Replace(text)
}
