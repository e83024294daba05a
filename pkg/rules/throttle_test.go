package rules

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// Every field that groups and labels can have is what an expression sees.
func TestEveryStringFieldIsRead(t *testing.T) {
	for _, name := range v1alpha1.StringFields() {
		got := readField(full(), name)
		if e := result(t, "event."+name+` == "`+got+`"`, full()); got == "" || e.Result != Match {
			t.Errorf("%s is %q: %v %v", name, got, e.Result, e.Err)
		}
		if got := readField(&corev1.Event{}, name); got != "" {
			t.Errorf("%s of an empty Event is %q", name, got)
		}
	}
	for name, want := range map[string]string{
		`metadata.labels["a"]`: "b", `metadata.labels["none"]`: "",
		`metadata.annotations["example.com/key"]`: "b",
	} {
		if got := readField(full(), name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	classic := &corev1.Event{Source: corev1.EventSource{Component: "kubelet", Host: "node-1"}}
	if readField(classic, "reportingComponent") != "kubelet" || readField(classic, "reportingInstance") != "node-1" {
		t.Error("the source of a classic Event is not read")
	}
}

func throttleBy(by ...string) *Throttle {
	return newThrottle(&v1alpha1.Throttle{Interval: &metav1.Duration{Duration: time.Minute}, By: by})
}

func TestEventsOfAGroupAgreeInTheFieldsOfTheThrottle(t *testing.T) {
	throttle := throttleBy("metadata.namespace", `metadata.labels["team"]`)
	event := func(namespace, team string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"team": team}, UID: "any"}, Reason: team + namespace}
	}
	group := throttle.Group(event("shop", "a"))
	for _, test := range []struct {
		event *corev1.Event
		same  bool
	}{
		{event("shop", "a"), true},
		{event("shop", "b"), false},
		{event("sho", "pa"), false},
		{event("", "shopa"), false},
		{&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, false},
		{&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"team": "a"}}, Message: "other"}, true},
	} {
		if same := throttle.Group(test.event) == group; same != test.same {
			t.Errorf("%v is in the group: %t", test.event, same)
		}
	}
	if throttle.Interval() != time.Minute {
		t.Errorf("the interval is %s", throttle.Interval())
	}
}

// The uid of an object is optional: without one, its API group, kind, namespace and name stand for it.
func TestObjectsWithoutAUIDAreThrottledEach(t *testing.T) {
	throttle := throttleBy("involvedObject.uid")
	groups := make(map[[32]byte]corev1.ObjectReference)
	for _, o := range []corev1.ObjectReference{
		{}, {Name: "a"}, {Name: "b"}, {Kind: "Pod", Name: "a"}, {Kind: "Pod", Namespace: "shop", Name: "a"},
		{APIVersion: "v1", Kind: "Service", Name: "a"}, {APIVersion: "serving.knative.dev/v1", Kind: "Service", Name: "a"},
		{Kind: "Pod", Name: "a", UID: "u"},
	} {
		group := throttle.Group(&corev1.Event{InvolvedObject: o})
		if other, taken := groups[group]; taken {
			t.Errorf("%v and %v are one group", o, other)
		}
		groups[group] = o
		o.FieldPath, o.ResourceVersion = "spec", "7"
		if o.APIVersion == "serving.knative.dev/v1" {
			o.APIVersion = "serving.knative.dev/v1beta1"
		}
		if throttle.Group(&corev1.Event{InvolvedObject: o}) != group {
			t.Errorf("%v is in another group than itself", o)
		}
	}
}

// The throttle is that of the route that delivers.
func TestThrottleIsThatOfTheRoute(t *testing.T) {
	set := mustCompile(t, &v1alpha1.EventdConfiguration{
		Receivers: []v1alpha1.Receiver{{Name: "a"}, {Name: "b"}},
		Routes: []v1alpha1.Route{
			{Name: "warnings", Match: `event.type == "Warning"`, Receivers: []string{"a"}, Continue: true,
				Throttle: &v1alpha1.Throttle{Interval: &metav1.Duration{Duration: time.Hour}, By: []string{"reason"}}},
			{Name: "rest", Receivers: []string{"a", "b"}},
		},
	})
	for _, test := range []struct {
		receiver, eventType, route string
		interval                   time.Duration
	}{{"a", "Warning", "warnings", time.Hour}, {"a", "Normal", "rest", 0}, {"b", "Warning", "rest", 0}} {
		event := &corev1.Event{Type: test.eventType}
		ok, route := set.For(test.receiver).Deliver(event)
		throttle := set.For(test.receiver).Throttle(route)
		if !ok || route != test.route || (throttle != nil) != (test.interval > 0) || throttle != nil && throttle.Interval() != test.interval {
			t.Errorf("%s gets a %s by %q with %v", test.receiver, test.eventType, route, throttle)
		}
		for _, d := range set.Route(event).Receivers {
			if d.Receiver == test.receiver && (d.Throttle != nil) != (test.interval > 0) {
				t.Errorf("Route says of %s and %s: %+v", test.receiver, test.eventType, d)
			}
		}
	}
	if set.For("unknown").Throttle("warnings") != nil {
		t.Error("an unknown receiver is throttled")
	}
}

// Who may create Events in one namespace writes about an object of another one, with its reason. By
// default, that takes the place of nothing there.
func TestNamespacesShareNoGroupByDefault(t *testing.T) {
	config, err := v1alpha1.Load([]byte("apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\nroutes: [{name: a, throttle: {interval: 5m}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	throttle := newThrottle(config.Routes[0].Throttle)
	event := func(namespace, uid string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Reason: "NodeNotReady",
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "node-1", UID: types.UID(uid)},
		}
	}
	for _, uid := range []string{"node-1", ""} {
		if throttle.Group(event("default", uid)) == throttle.Group(event("tenant", uid)) {
			t.Errorf("the uid %q has a group of two namespaces", uid)
		}
	}
}
