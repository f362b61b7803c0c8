package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// visibleVariable is the environment variable by which the driver chooses and numbers the GPUs that a process sees.
const visibleVariable = "CUDA_VISIBLE_DEVICES"

// root is the root of the file system in which the kernel module lists GPUs; tests change it.
var root = "/"

// Census is the number of GPUs of a machine, as far as it is known before the driver starts.
type Census struct {
	// Installed is the number of GPUs that the kernel module drives; 0 if unknown.
	Installed int
	// Visible is the number of GPUs that the driver will show to the process. Counted is false if
	// only the driver knows it: GPUs are divided (MIG), or neither the kernel module nor the
	// environment lists them.
	Visible int
	Counted bool
	// Started means that the driver has started in this process.
	Started bool
}

// Look counts GPUs without starting the driver, so it takes some milliseconds; Count takes a tenth
// of a second or more. Without a driver the error matches ErrNoDriver.
func Look(library string) (Census, error) {
	drv, err := openDriver(library)
	if err != nil {
		return Census{}, err
	}
	names, ok := visible()
	return Census{Installed: installedGPUs(), Visible: len(names), Counted: ok, Started: drv.started()}, nil
}

// visible returns the names, for CUDA_VISIBLE_DEVICES, of all GPUs that the driver will show, in
// its order. It reports false if they are unknown.
func visible() (names []string, known bool) {
	installed := installedGPUs()
	if parts, _ := filepath.Glob(filepath.Join(root, "proc/driver/nvidia/capabilities/gpu*/mig/gi*")); len(parts) > 0 {
		return nil, false
	}
	list, chosen := os.LookupEnv(visibleVariable)
	if !chosen {
		for i := range installed {
			names = append(names, strconv.Itoa(i))
		}
		return names, installed > 0
	}
	for name := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseUint(name, 10, 16)
		switch {
		case name == "" || name == "-1" || err == nil && installed > 0 && int(n) >= installed:
			return names, true // the driver shows only the GPUs before one that does not exist
		case slices.Contains(names, name):
			return nil, false
		case err == nil && strconv.FormatUint(n, 10) == name, strings.HasPrefix(name, "GPU-"):
			names = append(names, name)
		default:
			return nil, false
		}
	}
	return names, true
}

// installedGPUs returns the number of GPUs that the kernel module drives, 0 if unknown. A container
// may be allowed to use fewer.
func installedGPUs() int {
	for _, pattern := range []string{"proc/driver/nvidia/gpus/*", "dev/nvidia[0-9]*"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			return len(found)
		}
	}
	return 0
}

// shown has the GPUs that this process shows to the driver, if they are some of several; otherwise nil.
var shown struct {
	sync.Mutex
	ordinals []int
}

// showAlone makes some GPUs the only visible ones. It does nothing if the driver has started, since
// the driver reads the environment only at its start.
func showAlone(drv *driver, ordinals []int) {
	shown.Lock()
	defer shown.Unlock()
	if shown.ordinals != nil || drv.started() {
		return
	}
	names, ok := visible()
	if !ok || len(names) <= len(ordinals) {
		return
	}
	var alone []string
	for _, n := range ordinals {
		if n < 0 || n >= len(names) {
			return
		}
		alone = append(alone, names[n])
	}
	if os.Setenv(visibleVariable, strings.Join(alone, ",")) == nil {
		shown.ordinals = slices.Clone(ordinals)
	}
}

// numbered returns the driver's number of the GPU with an ordinal, which counts all GPUs, while the
// driver shows only some.
func numbered(ordinal, count int) (int, error) {
	shown.Lock()
	defer shown.Unlock()
	switch at := slices.Index(shown.ordinals, ordinal); {
	case at >= 0:
		return at, nil
	case len(shown.ordinals) == 1:
		return 0, fmt.Errorf("this process uses GPU %d alone", shown.ordinals[0])
	case len(shown.ordinals) > 1:
		return 0, fmt.Errorf("this process uses GPUs %v alone", shown.ordinals)
	case ordinal >= 0 && ordinal < count:
		return ordinal, nil
	case count == 1:
		return 0, fmt.Errorf("this machine has one, number 0")
	}
	return 0, fmt.Errorf("this machine has %d, numbers 0 to %d", count, count-1)
}
