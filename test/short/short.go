// Package short says how much of a randomised test "go test -short" runs.
package short

import "testing"

// Seeds returns how many of n seeds a test tries: a third with -short (make check), else all (make
// test).
func Seeds(n uint64) uint64 {
	if testing.Short() {
		return (n + 2) / 3
	}
	return n
}
