package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu/cuda/emulator"
	"github.com/gstream/gstream/gpu/gputest"
)

// machineWith makes a root with the files of a kernel module.
func machineWith(t *testing.T, paths ...string) string {
	dir := t.TempDir()
	for _, p := range paths {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, p), 0o700))
	}
	return dir
}

var twoGPUs = []string{"proc/driver/nvidia/gpus/0000:01:00.0", "proc/driver/nvidia/gpus/0000:02:00.0"}

func TestGPUsAreListedWithoutTheDriver(t *testing.T) {
	defer func(old string) { root = old }(root)
	const unset = "unset"
	for what, c := range map[string]struct {
		paths []string
		list  string
		want  string
		known bool
	}{
		"two GPUs":         {twoGPUs, unset, "0,1", true},
		"no kernel module": {nil, unset, "", false},
		"a container without /proc/driver": {[]string{"dev/nvidia0", "dev/nvidia5", "dev/nvidiactl", "dev/nvidia-uvm"},
			unset, "0,1", true},
		"the second":              {twoGPUs, "1", "1", true},
		"another order":           {twoGPUs, "1,0", "1,0", true},
		"one that does not exist": {twoGPUs, "0,2,1", "0", true},
		"none":                    {twoGPUs, "", "", true},
		"none, by a number":       {twoGPUs, "-1", "", true},
		"an end":                  {twoGPUs, "1,-1,0", "1", true},
		"names": {twoGPUs, "GPU-8932f937,GPU-12345678-9abc-def0-1234-56789abcdef0",
			"GPU-8932f937,GPU-12345678-9abc-def0-1234-56789abcdef0", true},
		"a name and a number":           {twoGPUs, "GPU-8932f937,0", "GPU-8932f937,0", true},
		"numbers of an unknown machine": {nil, "3,5", "3,5", true},
		"one twice":                     {twoGPUs, "0,0", "", false},
		"a part of a GPU":               {twoGPUs, "MIG-12345678-9abc-def0-1234-56789abcdef0", "", false},
		"a number that is none":         {twoGPUs, "0x1", "", false},
		"a number with a space":         {twoGPUs, "0, 1", "", false},
		"GPUs that are parted": {append([]string{"proc/driver/nvidia/capabilities/gpu0/mig/gi7"},
			twoGPUs...), unset, "", false},
		"GPUs that could be parted": {append([]string{"proc/driver/nvidia/capabilities/mig"}, twoGPUs...), unset,
			"0,1", true},
	} {
		t.Run(what, func(t *testing.T) {
			root = machineWith(t, c.paths...)
			t.Setenv(visibleVariable, c.list) // restores it
			if c.list == unset {
				require.NoError(t, os.Unsetenv(visibleVariable))
			}
			names, known := visible()
			require.Equal(t, c.known, known)
			require.Equal(t, c.want, strings.Join(names, ","))
		})
	}
}

// emulated is the number of GPUs of the emulator.
const emulated = 8

// TestAProcessShowsTheDriverItsGPUAlone runs itself, as a driver reads its environment once.
func TestAProcessShowsTheDriverItsGPUAlone(t *testing.T) {
	gputest.SkipWithRaceDetector(t)
	const variable = "GSTREAM_TEST_ALONE"
	library := emulator.Build(t)
	if os.Getenv(variable) == "" {
		for what, c := range map[string]struct{ how, list, bus string }{
			"all are visible":         {"alone", "", "0000:02:00.0"},
			"in another order":        {"alone", "1,0", "0000:01:00.0"},
			"not understood":          {"alone", "0,1x", "0000:02:00.0"},
			"the driver has started":  {"started", "", "0000:02:00.0"},
			"other GPUs may be asked": {"all", "", "0000:02:00.0"},
		} {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()[:strings.Index(t.Name(), "/")]+"$")
				cmd.Env = append(os.Environ(), variable+"="+c.how+","+c.bus)
				if c.list != "" {
					cmd.Env = append(cmd.Env, visibleVariable+"="+c.list)
				}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
			})
		}
		return
	}
	how, bus, _ := strings.Cut(os.Getenv(variable), ",")
	root = machineWith(t, twoGPUs...)
	understood := !strings.Contains(os.Getenv(visibleVariable), "x")
	if how == "started" {
		n, err := Count(library)
		require.NoError(t, err)
		require.Equal(t, emulated, n)
	}
	open := func(ordinal int) *Device {
		d, err := Open(Options{Library: library, Ordinal: ordinal, Alone: how != "all", Ahead: true, Memory: 1 << 26,
			HostMemory: 16 << 20})
		require.NoError(t, err)
		return d
	}
	d := open(1)
	require.NoError(t, d.Wait())
	require.Equal(t, "cuda:1", d.Properties().ID)
	lib, err := purego.Dlopen(library, purego.RTLD_NOW)
	require.NoError(t, err)
	busID, err := purego.Dlsym(lib, "cuDeviceGetPCIBusId")
	require.NoError(t, err)
	id := make([]byte, 13)
	purego.SyscallN(busID, uintptr(unsafe.Pointer(&id[0])), uintptr(len(id)), uintptr(d.props.ordinal))
	require.Equal(t, bus, string(id[:12]))
	require.NoError(t, roundTrip(d))
	other := open(0)
	count := emulated
	if list := os.Getenv(visibleVariable); list != "" {
		count = 2
	}
	if how == "alone" && understood {
		count = 1
		require.ErrorContains(t, other.Wait(), "open GPU 0: the GPU cannot be used: this process uses GPU 1 alone")
	} else {
		require.NoError(t, other.Wait())
	}
	n, err := Count(library)
	require.NoError(t, err)
	require.Equal(t, count, n, strconv.Quote(os.Getenv(visibleVariable)))
	require.NoError(t, other.Close())
	require.NoError(t, d.Close())
}
