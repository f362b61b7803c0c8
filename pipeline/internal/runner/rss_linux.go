package runner

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processUse returns the processor time of the process, and the bytes that it has read from disks.
func processUse() (processor time.Duration, fromDisks int64) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		processor = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	counts, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return processor, 0
	}
	_, rest, _ := bytes.Cut(counts, []byte("\nread_bytes:"))
	if words := bytes.Fields(rest); len(words) > 0 {
		fromDisks, _ = strconv.ParseInt(string(words[0]), 10, 64)
	}
	return processor, fromDisks
}

// peakRSS returns the most memory that this program has held, in bytes. It does not use
// the resource usage of the process, which survives an exec and so includes the peak of
// the program that started this one.
func peakRSS() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	if words := bytes.Fields(rest); len(words) > 0 {
		kib, _ := strconv.ParseInt(string(words[0]), 10, 64)
		return kib << 10
	}
	return 0
}
