package jsonlines

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventjson"
	"github.com/eventd/eventd/pkg/receiver"
)

// line is the object on a line: the Event with three more fields, or four. Its fields are not nested, so it
// decodes as an Event, and queries for the lines of kubernetes-event-exporter apply.
type line struct {
	ID           string    `json:"id"`
	ClusterName  string    `json:"clusterName"`
	ObservedTime time.Time `json:"observedTime"`
	Summarized   int       `json:"summarized,omitempty"`
	corev1.Event `json:",inline"`
}

func lineOf(r *receiver.Record) *line {
	return &line{ID: r.ID, ClusterName: r.Cluster, ObservedTime: r.Observed.UTC(), Summarized: r.Summarized, Event: eventjson.Of(r.Event)}
}
