//go:build race

package intake_test

// measuredFactor is by how much what is measured of the memory may exceed what is
// reserved. With the race detector a sync.Pool forgets a part of what it is given at
// random, so regular expressions allocate anew.
const measuredFactor = 4
