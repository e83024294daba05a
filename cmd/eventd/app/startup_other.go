//go:build !linux

package app

// releaseStartupMemory is implemented on Linux only.
func releaseStartupMemory() error { return nil }
