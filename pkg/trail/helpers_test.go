package trail

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

func newTrail(t testing.TB, o Options) *Trail {
	t.Helper()
	of, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// event is one of a Pod.
func event(namespace, name, reason, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		ReportingController: "kubelet", Type: "Warning", Reason: reason, Message: message,
	}
}

// record has an Event recorded by a user, and written.
func record(to *Trail, e *corev1.Event, user string, weight int64) {
	decide(to, e, user, weight, correlator.Decision{})
	to.Settled(sink.Part{Event: e, User: user, Weight: weight, Writes: 1}, occurrence.Settlement{Outcome: occurrence.Created})
}

func decide(to *Trail, e *corev1.Event, user string, weight int64, d correlator.Decision) {
	d.Target.Event = e
	to.Decided(&occurrence.Occurrence{Event: e, User: user, Weight: weight}, d)
}

func drop(to *Trail, e *corev1.Event, user string, reason occurrence.Reason) {
	to.Ended(&occurrence.Occurrence{Event: e, User: user, Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason})
}

// lines are what steps are about.
func lines(steps []Step) []string {
	out := []string{}
	for _, s := range steps {
		words := []string{s.Regarding.Name, s.Action, fmt.Sprint(s.Occurrences), s.Outcome, s.Cause, s.Rule, s.Receiver, s.Detail, s.Message}
		out = append(out, strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	}
	return out
}

func why(t *Trail, name string) []Step {
	steps, _, _ := t.Why(Query{Object: Object{Name: name}})
	return steps
}
