//go:build !linux

package runner

// peakRSS is not known on this system.
func peakRSS() int64 { return 0 }
