package main

import "context"

// side is what delivers the Events of a cluster to a destination.
type side interface {
	// usage is that of the process that delivers.
	usage() (usage, error)
	// kill kills the process that delivers by SIGKILL, and starts another one. It returns when that, or a
	// replica, can deliver.
	kill(ctx context.Context) error
	// end ends all processes.
	end()
}

// start starts a side.
type start func(ctx context.Context, c *cluster, to ...*destination) (side, error)
