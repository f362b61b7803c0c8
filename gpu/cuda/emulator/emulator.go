// Package emulator builds a stand-in for NVIDIA's driver library that runs gstream's
// kernels on the CPU. g++ compiles it from the sources that nvcc compiles for GPUs. It
// makes the CUDA device testable on machines without a GPU: slow, but strict about
// memory, barriers and arguments. It is for tests only.
//
// It emulates eight GPUs, and shows those that CUDA_VISIBLE_DEVICES names by number. It refuses copies and fills of one
// GPU's memory on a stream of another, but for copies between peers; it does not check kernels for that.
//
// The library exports functions for tests besides the driver API:
//
//	void emulatorFailAt(const char* function, long n, int code)
//	long emulatorCalls(const char* function)
//	long emulatorLive(void)
//	void emulatorSchedule(uint64_t seed)
//
// It also exports the functions of NCCL that gstream uses (src/nccl.cpp), between threads with a GPU each.
//
// emulatorFailAt makes the n-th call from now of a driver function fail with a code (n =
// 0: none). emulatorCalls returns how often a function was called. emulatorLive returns
// the number of allocations, page-locked blocks, events and streams that were not given
// back. emulatorSchedule sets the seed of the order in which the threads of a block take
// turns (0: the plain order); the environment variable GSTREAM_EMULATOR_SEED sets it at
// the start.
//
// In kernels it finds accesses outside of an allocation (behind the end at once or at the
// end of the launch, before the start when it is freed), misaligned accesses, indexes
// outside of arrays, shifts by the width or more, divisions by zero, barriers that some
// threads of a block do not reach, and warp collectives whose lanes do not meet. Memory
// that nothing was written to is full of 0xCB. It refuses launches as a driver does, by the
// shared memory and the registers of the compiled kernels, which kernels/resources.txt
// lists. Copies between page-locked memory and the device, and between GPUs, are made when something waits
// for them, so tests see memory that is released or written too early.
//
// With GSTREAM_EMULATOR_RACES=1 in the environment kernels run ten times slower. A launch
// then fails when threads race for shared memory, or when it reads memory that nothing
// was written to. Races for global memory are reported on standard error: some are
// intended, as a look at a slot before the compare-and-swap. Without the variable, races
// show only by wrong results under the order of some seed.
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

// Require names an environment variable. When it is 1, a machine without a C++ compiler
// fails tests instead of skipping them.
const Require = "GSTREAM_REQUIRE_EMULATOR"

// Races names an environment variable. When it is 1, kernels look for races.
const Races = "GSTREAM_EMULATOR_RACES"

var once = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// Build returns the path of the library with the kernels of gpu/cuda/kernels, and builds
// it first when it is missing. It skips the test where there is no g++ or no source tree.
func Build(t testing.TB) string {
	t.Helper()
	return BuildKernels(t)
}

// BuildKernels is Build for other kernels: paths of .cu files, relative to the package
// under test.
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

// sourceTree returns the folder of the emulator in the module of the test.
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
			return "",
				fmt.Errorf("the emulator of CUDA is compiled from the source tree, and there is none above the " +
					"working directory")
		}
		dir = up
	}
}

// build runs the build script, in one process at a time. The hash of all sources names
// the result.
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

// hashOf returns the hash of everything that the library is made from.
func hashOf(here string, kernels []string) (string, error) {
	files := append([]string{filepath.Join(here, "build.sh")}, kernels...)
	patterns := []string{filepath.Join(here, "src", "*"), filepath.Join(here, "..", "kernels", "*.cuh")}
	if len(kernels) == 0 {
		patterns = append(patterns, filepath.Join(here, "..", "kernels", "*.cu"),
			filepath.Join(here, "..", "kernels", "resources.txt"))
	}
	for _, k := range kernels {
		patterns = append(patterns, filepath.Join(filepath.Dir(k), "resources.txt"))
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
