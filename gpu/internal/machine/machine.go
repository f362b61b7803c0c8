// Package machine reads properties of this machine: its memory, and the name and the cache
// of its processor.
package machine

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Memory returns the bytes of memory in total and available now, within the limits of the
// container and of the control groups of this process. Page cache counts as available as
// far as the system gives it back.
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
var CPU = sync.OnceValue(func() string {
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
})

// L2 returns the bytes of the second-level cache of a core, or 0 if the system does not
// tell.
var L2 = sync.OnceValue(func() int64 {
	const caches = "/sys/devices/system/cpu/cpu0/cache/"
	dirs, _ := os.ReadDir(caches)
	for _, d := range dirs {
		read := func(name string) string {
			text, _ := os.ReadFile(caches + d.Name() + "/" + name)
			return strings.TrimSpace(string(text))
		}
		if read("level") != "2" {
			continue
		}
		if kb, err := strconv.ParseInt(strings.TrimSuffix(read("size"), "K"), 10, 64); err == nil {
			return kb << 10
		}
	}
	return 0
})
