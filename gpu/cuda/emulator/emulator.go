// Package emulator builds a stand-in for NVIDIA's driver library that runs
// gstream's kernels on the CPU, compiled by g++ from the sources that nvcc
// compiles for GPUs. It makes the CUDA device testable on machines without a
// GPU: slow, but strict about memory, barriers and arguments. For tests only.
//
// It stands for two GPUs. Copies and fills of memory of the one on a stream of the other
// are refused; kernels are not watched for that.
//
// Beside the driver API the library exports what tests need:
//
//	void emulatorFailAt(const char* function, long n, int code)
//	long emulatorCalls(const char* function)
//	long emulatorLive(void)
//	void emulatorSchedule(uint64_t seed)
//
// The n-th call from now of a driver function fails with a code (n = 0: none);
// how often a function was called; the allocations, page-locked blocks, events
// and streams that were not given back; and a seed for the order in which the
// threads of a block take turns (0: the plain order), whose first value is that of
// the environment variable GSTREAM_EMULATOR_SEED.
//
// In kernels it finds accesses outside of an allocation (behind it at once or at
// the end of the launch, before it when it is freed), misaligned accesses, indexes
// outside of arrays, shifts by the width or more, divisions by zero, barriers
// that some threads of a block do not reach, and collectives of a warp whose lanes
// do not meet. What nothing was written to is full of 0xCB. Copies between
// page-locked memory and the device are made when they are waited for, so that it
// shows when either is given back or written too early.
//
// With GSTREAM_EMULATOR_RACES=1 in the environment kernels run ten times slower, and
// a launch fails in which threads race for shared memory, or that reads memory which
// nothing was written to. Races for global memory are said on standard error: some
// are meant, as a look at a slot before the compare-and-swap. Without it races are
// not found, except by their results under the order of a seed.
package emulator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Require is the environment variable that, when it is 1, makes a machine without
// a C++ compiler fail tests rather than skip them.
const Require = "GSTREAM_REQUIRE_EMULATOR"

// Races is the environment variable that, when it is 1, makes kernels look for races.
const Races = "GSTREAM_EMULATOR_RACES"

var once = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// Build builds the library from the kernels of gpu/cuda/kernels, unless it is
// built already, and returns its path. It skips the test where there is no g++
// or no source tree.
func Build(t testing.TB) string {
	t.Helper()
	return BuildKernels(t)
}

// BuildKernels is Build for other kernels: paths of .cu files, relative to the
// package that is tested.
func BuildKernels(t testing.TB, kernels ...string) string {
	t.Helper()
	once.Lock()
	defer once.Unlock()
	key := strings.Join(kernels, "\n") + "\n" + os.Getenv(Races)
	if path, ok := once.paths[key]; ok {
		return path
	}
	here, err := sourceTree()
	if err != nil {
		giveUp(t, err)
	}
	cxx := os.Getenv("CXX")
	if cxx == "" {
		cxx = "g++"
	}
	if _, err := exec.LookPath(cxx); err != nil {
		giveUp(t, fmt.Errorf("the emulator of CUDA is compiled with %s: %w", cxx, err))
	}
	path, err := build(here, kernels)
	if err != nil {
		t.Fatal(err)
	}
	once.paths[key] = path
	return path
}

func giveUp(t testing.TB, err error) {
	t.Helper()
	if os.Getenv(Require) == "1" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// sourceTree returns the folder of the emulator in the module that the test is of.
func sourceTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		here := filepath.Join(dir, "gpu", "cuda", "emulator")
		if _, err := os.Stat(filepath.Join(here, "build.sh")); err == nil {
			return here, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("the emulator of CUDA is compiled from the source tree, and there is none above the working directory")
		}
		dir = up
	}
}

// build runs the build script, one process at a time, for a path that is named by
// the hash of all sources.
func build(here string, kernels []string) (string, error) {
	hash, err := hashOf(here, kernels)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "gstream-emulator")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(cache, hash+".so")
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command(filepath.Join(here, "build.sh"), append([]string{path}, kernels...)...)
	cmd.Env = append(os.Environ(), "OBJECTS="+filepath.Join(cache, "objects"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the emulator: %w\n%s", err, out)
	}
	return path, nil
}

// hashOf names the library by everything that it is made from.
func hashOf(here string, kernels []string) (string, error) {
	files := append([]string{filepath.Join(here, "build.sh")}, kernels...)
	patterns := []string{filepath.Join(here, "src", "*"), filepath.Join(here, "..", "kernels", "*.cuh")}
	if len(kernels) == 0 {
		patterns = append(patterns, filepath.Join(here, "..", "kernels", "*.cu"))
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	sort.Strings(files)
	h := sha256.New()
	fmt.Fprintln(h, os.Getenv("CXX"), os.Getenv("CXXFLAGS"), os.Getenv(Races))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}
