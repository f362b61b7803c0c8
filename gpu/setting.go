package gpu

import "sync/atomic"

// Setting is something that a person or a program sets and that an error advises to change. What it is called depends
// on who talks to the user: a command names a flag, a library the field of an option. Whoever talks calls NameSettings
// once; all other packages use these values, and know no flag.
type Setting uint8

// The settings that errors name.
const (
	DeviceMemory Setting = iota + 1 // the budget of a device with memory of its own
	HostMemory                      // the budget of host memory
	SpillDir                        // the folder of spill files
	SpillLimit                      // the budget of the disk
	UseHost                         // that the CPU runs a job
	UseGPU                          // that a GPU does
	Overwrite                       // whether an output that exists is replaced
	Discard                         // that an output is removed at the end, for measurements
	Variables                       // the variables of a job
	Parameters                      // the parameters of an SQL text
	settings                        // the number of settings and one
)

// plain are the names when nobody has said any.
var plain = [settings]string{DeviceMemory: "DeviceMemory", HostMemory: "HostMemory", SpillDir: "SpillDir",
	SpillLimit: "SpillLimit", UseHost: "UseHost", UseGPU: "UseGPU", Overwrite: "Overwrite", Discard: "Discard",
	Variables: "Variables", Parameters: "Params"}

// namer names settings.
var namer atomic.Pointer[func(s Setting, value string) string]

// NameSettings says how errors and reports of this process call settings, from now on. name returns the name of a
// setting, with the value that it should have unless value is "". A nil name ends it.
func NameSettings(name func(s Setting, value string) string) {
	if name == nil {
		namer.Store(nil)
		return
	}
	namer.Store(&name)
}

// String returns the name of the setting.
func (s Setting) String() string { return s.To("") }

// To returns the name of the setting with a value, as in "--set day=1".
func (s Setting) To(value string) string {
	if name := namer.Load(); name != nil {
		return (*name)(s, value)
	}
	name := "a setting without a name"
	if s > 0 && s < settings {
		name = plain[s]
	}
	if value != "" {
		name += ": " + value
	}
	return name
}
