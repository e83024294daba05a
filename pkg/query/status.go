package query

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// status returns what this replica does.
func (a *API) status() (*v1alpha1.PipelineStatus, error) {
	r, err := a.figures.get()
	if err != nil {
		return nil, err
	}
	s := a.options.Status()
	s.TypeMeta, s.Leader = typeMeta("PipelineStatus"), a.leader()
	s.Time = metav1.NewMicroTime(r.at)
	s.Apiserver, _ = apiserver.read(r)
	s.Stations = []v1alpha1.Station{}
	for _, from := range stations {
		if station, ok := from.read(r); ok {
			s.Stations = append(s.Stations, station)
		}
	}
	for i := range s.Receivers {
		addFigures(&s.Receivers[i], r)
	}
	for i := range s.Rules {
		addRuleFigures(&s.Rules[i], r)
	}
	unwatched := map[string]bool{
		"observer": slices.ContainsFunc(s.Receivers, observes) && r.value("eventd_observer_connected") == 0,
	}
	if a.options.History != nil {
		s.History = a.historyStatus()
		unwatched["history"] = !s.History.Connected
	}
	for i := range s.Stations {
		if station := &s.Stations[i]; unwatched[station.Name] {
			station.Healthy, station.Message = false, "the watch of Events is not open"
		}
	}
	return &s, nil
}

// observes reports whether Events are observed for a receiver: here, and now.
func observes(r v1alpha1.ReceiverStatus) bool { return r.State != "standby" && r.State != "paused" }

// receiverFigures are what became of versions.
var receiverFigures = []string{
	"eventd_receiver_delivered_versions_total", "eventd_receiver_filtered_versions_total", "eventd_receiver_superseded_versions_total",
	"eventd_receiver_given_up_versions_total", "eventd_receiver_handed_over_versions_total",
}

// addFigures adds the figures of a receiver.
func addFigures(to *v1alpha1.ReceiverStatus, r *reading) {
	figure := func(name string) v1alpha1.Figure {
		if f := r.one(name, "receiver", to.Name); f != nil {
			return *f
		}
		return v1alpha1.Figure{Metric: name, Labels: map[string]string{"receiver": to.Name}}
	}
	to.LagSeconds, to.Pending = figure("eventd_receiver_lag_seconds"), figure("eventd_receiver_pending_versions")
	for _, name := range receiverFigures {
		to.Settled = append(to.Settled, r.all(name, "receiver", to.Name)...)
	}
}

func (a *API) historyStatus() *v1alpha1.HistoryStatus {
	h := a.options.History.Status()
	out := &v1alpha1.HistoryStatus{Versions: h.Versions, Bytes: h.Bytes, MaxBytes: h.MaxBytes, Connected: h.Connected}
	if !h.KnownSince.IsZero() {
		out.KnownSince = new(metav1.NewMicroTime(h.KnownSince))
	}
	return out
}
