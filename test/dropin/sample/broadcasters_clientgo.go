//go:build clientgo

package sample

import (
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

// Implementation is the name of the implementation.
const Implementation = "client-go"

var (
	newBroadcaster       = record.NewBroadcaster
	withContext          = record.WithContext
	withCorrelator       = record.WithCorrelatorOptions
	newEventsBroadcaster = events.NewBroadcaster
)
