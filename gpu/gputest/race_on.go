//go:build race

package gputest

// Race reports whether the race detector is on.
const Race = true
