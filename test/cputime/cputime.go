// Package cputime measures work by the time of processors: other processes have no part in it.
package cputime

import (
	"syscall"
	"testing"
	"time"
)

// Spent returns the time of processors that this process has spent so far, in the kernel too.
func Spent(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
