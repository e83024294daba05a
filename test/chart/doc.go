// Package chart tests deploy/chart with the library of Helm: that it renders the objects of deploy/,
// refuses wrong values, and that an installation can be upgraded and leaves nothing behind.
//
// It is a module of its own, since Helm needs more modules than all else together.
package chart
