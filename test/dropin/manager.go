package dropin

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/eventd/eventd/pkg/pipeline"
)

// Manager is a manager of controller-runtime whose newer recorders are eventd's
// too. manager.Options.EventBroadcaster is behind GetEventRecorderFor only;
// behind GetEventRecorder controller-runtime always puts a broadcaster that it
// makes itself. So controllers are to be given this one:
//
//	manager, err := ctrl.NewManager(config, ctrl.Options{EventBroadcaster: broadcaster})
//	manager = dropin.Manager{Manager: manager, Broadcaster: broadcaster}
//
// The broadcaster's sink should be started by whoever made the broadcaster: the
// manager does so only when the first older recorder is used. It may be started
// by both.
type Manager struct {
	manager.Manager
	Broadcaster *pipeline.RecordBroadcaster
}

// GetEventRecorder returns a recorder of new-style Events, which are written
// through core/v1: the rights that GetEventRecorderFor needs are enough.
func (m Manager) GetEventRecorder(name string) events.EventRecorder {
	return m.Broadcaster.NewEventsRecorder(m.GetScheme(), name)
}
