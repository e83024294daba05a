//go:build !clientgo

package sample

import (
	"k8s.io/client-go/tools/events"

	"github.com/eventd/eventd/pkg/pipeline"
)

// Implementation is the name of the implementation.
const Implementation = "eventd"

var (
	newBroadcaster       = pipeline.NewRecordBroadcaster
	withContext          = pipeline.WithContext
	withCorrelator       = pipeline.WithCorrelatorOptions
	newEventsBroadcaster = func(sink events.EventSink) events.EventBroadcaster { return pipeline.NewEventsBroadcaster(sink) }
)
