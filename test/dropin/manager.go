package dropin

import (
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/eventd/eventd/pkg/pipeline"
)

// Manager is a manager of controller-runtime whose GetEventRecorder uses eventd.
// manager.Options.EventBroadcaster is used by GetEventRecorderFor only; for GetEventRecorder,
// controller-runtime creates a broadcaster. So pass this Manager to the controllers:
//
//	manager, err := ctrl.NewManager(config, ctrl.Options{EventBroadcaster: broadcaster})
//	manager = dropin.Manager{Manager: manager, Broadcaster: broadcaster}
//
// Start the broadcaster's sink before: the manager starts it only with the first recorder of
// GetEventRecorderFor. Both may start it.
type Manager struct {
	manager.Manager
	Broadcaster *pipeline.RecordBroadcaster
}

// GetEventRecorder returns a recorder of new-style Events that are written through core/v1,
// so it needs the same rights as GetEventRecorderFor.
func (m Manager) GetEventRecorder(name string) events.EventRecorder {
	return m.Broadcaster.NewEventsRecorder(m.GetScheme(), name)
}
