package main

import (
	"runtime"
	"syscall"
	"time"

	"github.com/eventd/eventd/hack/bench/internal/timing"
)

// effort is what one side has done in its turn.
type effort struct {
	occurrences int // recorded
	written     int // of them
	took        time.Duration
	cpu         time.Duration   // of this process, which did nothing else, or of the leader
	posts       []time.Duration // what each took, ascending
}

func (e effort) rate() float64  { return float64(e.written) / e.took.Seconds() }
func (e effort) share() float64 { return float64(e.written) / float64(e.occurrences) }
func (e effort) each() float64  { return e.cpu.Seconds() / float64(e.written) }
func (e effort) p50() float64   { return timing.Percentile(e.posts, 50).Seconds() }
func (e effort) p99() float64   { return timing.Percentile(e.posts, 99).Seconds() }

// exert measures f, which returns how much was written. It collects the garbage of the
// previous turn before.
func exert(occurrences int, f func() (written int, err error)) (effort, error) {
	runtime.GC()
	began, before := time.Now(), processorTime()
	written, err := f()
	return effort{occurrences: occurrences, written: written, took: time.Since(began), cpu: processorTime() - before}, err
}

// processorTime is what this process has taken, in user and in kernel mode.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // cannot fail for this process
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
