package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/cuda"
)

const gib = 1 << 30

// good are the facts of a machine without a fault.
func good() facts {
	return facts{cores: 16, cpus: 16, memory: 64 * gib, free: 60 * gib, installed: 64 * gib, lockable: 1 << 63,
		files: 65536,
		spill: spillFacts{dir: "/nvme", free: 1000 * gib, write: 2e9, read: 3e9},
		gpus: []gpuFacts{{deviceInfo: deviceInfo{gpu.Properties{ID: "cuda:0", Name: "A GPU", Memory: 80 * gib,
			Free: 79 * gib, Details: "compute capability 9.0"},
			&gpu.Link{Up: 50e9, Down: 51e9, Both: 90e9}}}},
		peers: []cuda.PeerLink{{From: "cuda:0", To: "cuda:1", Direct: true, Rate: 390e9},
			{From: "cuda:1", To: "cuda:0", Direct: true, Rate: 380e9}},
	}
}

func TestDoctorFindsNothingOnAGoodMachine(t *testing.T) {
	d := diagnose(good())
	require.NoError(t, d.problem)
	for _, f := range d.Findings {
		assert.Equal(t, "ok", f.State, f)
		assert.Empty(t, f.Advice)
	}
	assert.Contains(t, d.String(), "ok       cuda:0 link: 50.0 GB/s up, 51.0 down, 90.0 both\n")
	assert.Contains(t, d.String(), "ok       copies between GPUs: direct: cuda:0 to cuda:1 390.0 GB/s, cuda:1 to "+
		"cuda:0 380.0 GB/s\n")
}

func TestDoctorSaysWhatToChange(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*facts)
		check, state  string
		found, advice string
		code          int
	}{
		"quota of cores": {func(f *facts) { f.cores = 2 }, "cores", "note", "2 of 16", "CPU quota", exitOK},
		"control group": {func(f *facts) { f.memory, f.free = 2*gib, gib/2 }, "memory", "note",
			"cgroup) allows 2.0 GiB of the machine's 64 GiB", "raise the memory limit of the container", exitOK},
		"no memory": {func(f *facts) { f.free = 64 << 20 }, "memory", "problem", "64 MiB free of 64 GiB",
			"stop other programs", exitMemory},
		"few files": {func(f *facts) { f.files = 256 }, "open files", "note", "at most 256", "ulimit -n", exitOK},
		"no spill": {func(f *facts) { f.spill = spillFacts{dir: "none"} }, "spill folder", "note", "memory fails",
			"--spill-dir", exitOK},
		"no spill folder": {func(f *facts) {
			f.spill.err = &os.PathError{Op: "open", Path: "/x",
				Err: os.ErrPermission}
		}, "spill folder", "problem", "open /x: permission denied", "--spill-dir", exitIO},
		"spill in memory": {func(f *facts) { f.spill.inMemory = true }, "spill folder", "note", "in memory (tmpfs)",
			"on a disk", exitOK},
		"full disk": {func(f *facts) { f.spill.free = gib }, "spill folder", "note", "1.0 GiB free",
			"free some space", exitOK},
		"slow disk": {func(f *facts) { f.spill.write = 1e8 }, "spill folder", "note", "writes 100 MB/s",
			"faster disk", exitOK},
		"no driver": {func(f *facts) {
			f.gpus, f.driver = nil, fmt.Errorf("%w: libcuda.so.1 cannot be opened", cuda.ErrNoDriver)
		}, "driver", "note", "libcuda.so.1", "driver 580", exitOK},
		"driver fails": {func(f *facts) { f.gpus, f.driver = nil, &cuda.Error{Call: "cuInit", Code: 803} }, "driver",
			"problem", "cuInit", "nvidia-smi", exitDefect},
		"GPUs are hidden": {func(f *facts) { f.gpus, f.driver, f.visible = nil, errors.New("sees no GPU"), "-1" },
			"driver", "problem", `CUDA_VISIBLE_DEVICES is "-1"`, "CUDA_VISIBLE_DEVICES", exitDefect},
		"GPU fails": {func(f *facts) { f.gpus[0].err = errors.New("open GPU 0: broken") }, "cuda:0", "problem",
			"broken", "--device host", exitDefect},
		"no page-lock": {func(f *facts) {
			f.lockable = 64 << 10
			f.gpus[0].err = fmt.Errorf("open GPU 0: %w", &cuda.Error{Call: "cuMemHostRegister_v2", Code: 304})
		}, "cuda:0", "problem", "cuMemHostRegister", "ulimit -l (it is 64 KiB)", exitDefect},
		"page-lock in a text": {func(f *facts) { f.gpus[0].err = errors.New("no page-lock, as the kernel is old") },
			"cuda:0", "problem", "old", "look at nvidia-smi", exitDefect},
		"GPU in use": {func(f *facts) { f.gpus[0].Free = gib }, "cuda:0", "note", "1.0 GiB free of 80 GiB",
			"stop other programs", exitOK},
		"slow link": {func(f *facts) { f.gpus[0].Link.Down = 3e9 }, "cuda:0 link", "note", "3.0 down",
			"width of the link", exitOK},
		"no access to a peer": {func(f *facts) { f.peers[1].Direct, f.peers[1].Rate = false, 12e9 },
			"copies between GPUs", "note",
			"access: cuda:1 to cuda:0 12.0 GB/s; these go through host memory; direct: cuda:0 to cuda:1 390",
			"nvidia-smi topo -m", exitOK},
		"pairs of GPUs": {func(f *facts) {}, "copies between GPUs", "ok",
			"direct: cuda:0 to cuda:1 390.0 GB/s, cuda:1 to", "", exitOK},
		"pairs of five GPUs": {func(f *facts) {
			for i := range 20 {
				f.peers = append(f.peers, cuda.PeerLink{From: "cuda:3", To: "cuda:4", Direct: true,
					Rate: float64(i+1) * 1e9})
			}
		}, "copies between GPUs", "ok",
			"direct: 22 pairs, from cuda:3 to cuda:4 1.0 GB/s up to cuda:0 to cuda:1 390.0 GB/s", "", exitOK},
		"copies are damaged": {func(f *facts) { f.peers[0].Changed = true }, "copies between GPUs", "problem",
			"bytes arrive changed: cuda:0 to cuda:1", "IOMMU", exitDefect},
		"copies fail": {func(f *facts) { f.peersErr = errors.New("copy from cuda:0: lost") }, "copies between GPUs",
			"problem", "lost", "one GPU", exitDefect},
		"limit of locking": {func(f *facts) { f.lockable = 8 << 20 }, "cuda:0 page-locked memory", "ok",
			"ulimit -l is 8.0 MiB", "", exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			c.change(&f)
			d := diagnose(f)
			others := 0
			for _, found := range d.Findings {
				if found.Check != c.check {
					if found.State != "ok" {
						others++
					}
					continue
				}
				assert.Equal(t, c.state, found.State, found)
				assert.Contains(t, found.Found, c.found)
				assert.Contains(t, found.Advice, c.advice)
				assert.Equal(t, c.state == "ok", found.Advice == "")
			}
			assert.Zero(t, others, "%v", d)
			assert.Contains(t, d.String(), c.found)
			assert.Equal(t, c.code, exitCode(d.problem))
		})
	}
}

func TestDoctorMeasuresAndLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	code, stdout, stderr := gstream("doctor", "--spill-dir", folder, "--format", "json")
	var d diagnosis
	require.NoError(t, json.Unmarshal([]byte(stdout), &d), stderr)
	checks := map[string]finding{}
	for _, f := range d.Findings {
		checks[f.Check] = f
	}
	assert.Contains(t, checks["spill folder"].Found, folder)
	for _, check := range []string{"cores", "memory", "open files", "spill folder", "driver"} {
		assert.Contains(t, checks, check)
	}
	assert.Contains(t, []int{exitOK, exitDefect, exitMemory}, code)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestDoctorFailsWithoutAFolder(t *testing.T) {
	code, stdout, stderr := gstream("doctor", "--spill-dir", "/nowhere/at/all")
	if cudaFails := code == exitDefect; !cudaFails {
		assert.Equal(t, exitIO, code)
	}
	assert.Empty(t, stderr)
	assert.Contains(t, stdout,
		"problem  spill folder: look at /nowhere/at/all: no such file or directory\n         → choose another folder")
	code, stdout, stderr = gstream("doctor", "--format", "xml")
	assert.Equal(t, exitJob, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "--format xml")
}
