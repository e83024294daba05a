package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kjson "sigs.k8s.io/json"

	"github.com/eventd/eventd/internal/documents"
	"github.com/eventd/eventd/internal/identity"
)

// decodeEvents decodes the documents of a file, YAML or JSON: Events, lists of them, and lines of a jsonLines receiver.
func decodeEvents(data []byte) ([]*corev1.Event, error) {
	split, err := documents.Split(data)
	if err != nil {
		return nil, err
	}
	var events []*corev1.Event
	for _, document := range split {
		if events, err = appendEvents(events, document); err != nil {
			return nil, err
		}
	}
	if len(events) == 0 {
		return nil, errors.New("the file has no Event")
	}
	return events, nil
}

// listed is an Event or a list. Items of a typed list do not repeat its version.
type listed struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func appendEvents(events []*corev1.Event, document []byte) ([]*corev1.Event, error) {
	var list listed
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &list); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(list.Kind, "List") {
		event, err := decodeEvent(list.APIVersion, list.Kind, document)
		return append(events, event), err
	}
	for i, item := range list.Items {
		var of listed
		if err := kjson.UnmarshalCaseSensitivePreserveInts(item, &of); err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		event, err := decodeEvent(cmp.Or(of.APIVersion, list.APIVersion), cmp.Or(of.Kind, strings.TrimSuffix(list.Kind, "List")), item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		events = append(events, event)
	}
	return events, nil
}

func decodeEvent(apiVersion, kind string, document []byte) (*corev1.Event, error) {
	if kind != "Event" {
		return nil, fmt.Errorf("kind must be Event, got %q", kind)
	}
	switch apiVersion {
	case corev1.SchemeGroupVersion.String():
		var line struct { // of a jsonLines receiver, or an Event alone
			ID           string    `json:"id"`
			ClusterName  string    `json:"clusterName"`
			ObservedTime time.Time `json:"observedTime"`
			Summarized   int       `json:"summarized"`
			corev1.Event `json:",inline"`
		}
		err := decodeStrictly(document, &line)
		return &line.Event, err
	case eventsv1.SchemeGroupVersion.String():
		event := new(eventsv1.Event)
		err := decodeStrictly(document, event)
		return identity.ToCoreV1(event), err
	default:
		return nil, fmt.Errorf("apiVersion must be v1 or events.k8s.io/v1, got %q", apiVersion)
	}
}

// decodeStrictly refuses unknown fields: an Event written by hand would not be the one that is meant.
func decodeStrictly(document []byte, into any) error {
	strict, err := kjson.UnmarshalStrict(document, into)
	if err != nil {
		return err
	}
	return utilerrors.NewAggregate(strict)
}
