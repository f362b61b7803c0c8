// Package machine reads what this machine has: memory and the processor's name.
package machine

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory returns the bytes of memory in all and available now, within the limits of
// the container and the slices that this process is in. What files take of memory
// counts as available, as far as the system gives it back.
func Memory() (total, free int64) {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		total = int64(si.Totalram) * int64(si.Unit)
		free = int64(si.Freeram+si.Bufferram) * int64(si.Unit)
	}
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
				if kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
					free = kb << 10
				}
			}
		}
	}
	limit, left := cgroupMemory(os.DirFS("/"))
	total, free = min(total, limit), min(free, left)
	return total, max(free, 64<<20)
}

// CPU returns the processor's name.
func CPU() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "CPU"
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "CPU"
}
