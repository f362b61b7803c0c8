//go:build !linux

package runner

import "time"

// processUse is not known on this system.
func processUse() (processor time.Duration, fromDisks int64) { return 0, 0 }

// peakRSS is not known on this system.
func peakRSS() int64 { return 0 }
