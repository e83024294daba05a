// Package longrun has the flag -soak, with which a suite runs in full: as long and
// as often as its figures need.
package longrun

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Full reports whether the suite runs in full.
var Full = flag.Bool("soak", false, "run every test in its full length")

// Either returns what a full run takes, or a short one.
func Either[T any](full, short T) T {
	if *Full {
		return full
	}
	return short
}

// Report logs a measurement or the progress of a test. A full run writes it to stderr
// at once.
func Report(t testing.TB, format string, args ...any) {
	t.Helper()
	if !*Full {
		t.Logf(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", t.Name(), fmt.Sprintf(format, args...))
}
