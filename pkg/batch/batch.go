// Package batch has the format of a batch: a POST of an EventList to the Events API of
// eventd, which answers each of its Events by itself. docs/batch.md describes it.
//
// The request is a POST to the usual path of Events in a namespace, with the parameter of
// this package. The body is an EventList of core/v1 or of events.k8s.io/v1, as the path
// says, in JSON or protobuf. The answer is an Answer in JSON.
package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Parameter is the URL parameter of a batch, with the value "true". A server without
	// batches ignores it, and refuses the EventList.
	Parameter = "batch"
	// Query is the parameter with its value.
	Query = Parameter + "=true"
	// MaxItems is the maximum number of Events in a batch.
	MaxItems = 1000
)

// The type of an Answer.
const (
	APIVersion = "batch.eventd.io/v1alpha1"
	Kind       = "EventListAnswer"
)

// Answer is the answer to a batch that was handled: each of its Events has a Status, as the
// answer to a POST of that Event alone would have.
type Answer struct {
	metav1.TypeMeta `json:",inline"`
	// Code is the code of all Events that are not in Others: a success.
	Code int32 `json:"code"`
	// Others are the Events with another answer, in ascending order.
	Others Items `json:"others,omitempty"`
}

// Items are the answers to some Events of a batch.
type Items []Item

// UnmarshalJSON implements json.Unmarshaler. It reads no more than MaxItems, since many empty ones take
// 60 times the memory of their JSON.
func (i *Items) UnmarshalJSON(data []byte) error {
	*i = nil
	in := json.NewDecoder(bytes.NewReader(data))
	if token, err := in.Token(); err != nil || token == nil {
		return err // null
	} else if token != json.Delim('[') {
		return errors.New("the others are no list")
	}
	for in.More() {
		if len(*i) == MaxItems {
			return fmt.Errorf("the answer to a batch has more than %d others", MaxItems)
		}
		var item Item
		if err := in.Decode(&item); err != nil {
			return err
		}
		*i = append(*i, item)
	}
	return nil
}

// Item is the answer to one Event.
type Item struct {
	// Index is the place of the Event in the batch, from 0.
	Index int `json:"index"`
	// Status is that of the answer. Of a success it has the code only.
	Status metav1.Status `json:"status"`
}

// Statuses returns the Status of each of n Events. It returns an error if the answer cannot
// be one to n Events.
func (a *Answer) Statuses(n int) ([]metav1.Status, error) {
	if a.Kind != Kind || a.APIVersion != APIVersion {
		return nil, fmt.Errorf("the answer to a batch is a %q of %q", a.Kind, a.APIVersion)
	}
	if a.Code < http.StatusOK || a.Code >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("the answer to a batch has the code %d", a.Code)
	}
	statuses := make([]metav1.Status, n)
	for i := range statuses {
		statuses[i] = metav1.Status{Status: metav1.StatusSuccess, Code: a.Code}
	}
	last := -1
	for i := range a.Others {
		other := &a.Others[i]
		if other.Index <= last || other.Index >= n || other.Status.Code == 0 {
			return nil, fmt.Errorf("the answer to a batch of %d has the code %d for %d", n, other.Status.Code, other.Index)
		}
		last = other.Index
		statuses[last] = other.Status
	}
	return statuses, nil
}
