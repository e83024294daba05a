//go:build !race

package intake_test

// measuredFactor is by how much what is measured of the memory may exceed what is
// reserved: race_test.go says where it may.
const measuredFactor = 1
