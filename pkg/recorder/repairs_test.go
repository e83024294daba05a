package recorder

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestNewStyleEvent(t *testing.T) {
	var k kept
	r := NewEvents(&k, occurrence.EventsV1, scheme.Scheme, "example.com/controller").WithLogger(klog.Background())
	ref := &corev1.ObjectReference{Kind: "Node", Name: "node-1"}
	r.Eventf(pod, ref, "Warning", "Evicted", "Evicting", "from %s", "node-1")
	ref.Name = "changed by the caller"
	e := k.published[0].Event
	if e.Namespace != "ns" || e.InvolvedObject.Name != "web-0" || e.Related.Name != "node-1" || e.Type != "Warning" ||
		e.Reason != "Evicted" || e.Action != "Evicting" || e.Message != "from node-1" || e.EventTime.IsZero() ||
		e.ReportingController != "example.com/controller" || !strings.HasPrefix(e.ReportingInstance, "example.com/controller-") ||
		e.Count != 0 || !e.FirstTimestamp.IsZero() || !e.LastTimestamp.IsZero() || e.Source != (corev1.EventSource{}) {
		t.Errorf("recorded %+v", e)
	}
	if o := k.published[0]; o.API != occurrence.EventsV1 || o.Weight != 1 || o.Series() != identity.Of(e) {
		t.Errorf("occurrence %+v", o)
	}
}

func TestRepairs(t *testing.T) {
	euros := strings.Repeat("€", 400) // of three bytes, so that 1024 is inside of one
	var typedNil *corev1.Pod
	for _, test := range []struct {
		repair repair
		record func(*EventsRecorder, *Recorder)
		ok     func(*corev1.Event) bool
	}{
		{repairMessageCut,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", "R", "A", "%s", euros) },
			func(e *corev1.Event) bool { return e.Message == euros[:1023] }},
		{repairMessageCut,
			func(_ *EventsRecorder, r *Recorder) {
				r.Event(pod, "Normal", "R", strings.Repeat("x", maxClassicMessage+1))
			},
			func(e *corev1.Event) bool { return len(e.Message) == maxClassicMessage }},
		{repairUTF8,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", "R", "A", "a\xffb") },
			func(e *corev1.Event) bool { return e.Message == "a\uFFFDb" }},
		{repairUTF8,
			func(_ *EventsRecorder, r *Recorder) { r.Event(pod, "Normal", "R\xff", "") },
			func(e *corev1.Event) bool { return e.Reason == "R\uFFFD" }},
		{repairReasonCut,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", euros, "A", "") },
			func(e *corev1.Event) bool { return e.Reason == euros[:126] }},
		{repairReasonEmpty,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", "", "A", "") },
			func(e *corev1.Event) bool { return e.Reason == "Unknown" }},
		{repairActionCut,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", "R", euros, "") },
			func(e *corev1.Event) bool { return e.Action == euros[:126] }},
		{repairActionEmpty,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, nil, "Normal", "R", "", "") },
			func(e *corev1.Event) bool { return e.Action == "R" }},
		{repairRelatedLeftOut,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(pod, typedNil, "Normal", "R", "A", "") },
			func(e *corev1.Event) bool { return e.Related == nil }},
		{repairClusterScoped,
			func(r *EventsRecorder, _ *Recorder) { r.Eventf(node, nil, "Normal", "R", "A", "") },
			func(e *corev1.Event) bool { return e.Namespace == "default" }},
		{repairClusterScoped,
			func(_ *EventsRecorder, r *Recorder) { r.Event(node, "Normal", "R", "") },
			func(e *corev1.Event) bool { return e.Namespace == "default" }},
		{repairUnformattable,
			func(_ *EventsRecorder, r *Recorder) { r.Eventf(pod, "Normal", "R", "%v", panicsAgain{}) },
			func(e *corev1.Event) bool { return e.Message == "%v" }},
	} {
		t.Run(string(test.repair), func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			repairs, err := NewRepairs(registry)
			if err != nil {
				t.Fatal(err)
			}
			var k kept
			newStyle := NewEvents(&k, occurrence.EventsV1, scheme.Scheme, "controller").WithRepairs(repairs)
			test.record(newStyle, New(&k, scheme.Scheme, source).WithRepairs(repairs))
			if len(k.published) != 1 || !test.ok(k.published[0].Event) {
				t.Errorf("recorded %+v, refused %v", k.published, k.refused)
			}
			for _, done := range allRepairs {
				want := 0.0
				if done == test.repair {
					want = 1
				}
				if got := testutil.ToFloat64(repairs.counters[done]); got != want {
					t.Errorf("%s is counted %v times, want %v", done, got, want)
				}
			}
			if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
				t.Errorf("metrics: %v %v", problems, err)
			}
		})
	}
}

// panicsAgain panics with a value that panics when it is formatted. fmt does not recover
// that.
type panicsAgain struct{}

func (panicsAgain) String() string { panic(panicsAgain{}) }

func TestReportingControllerAndInstanceAreValid(t *testing.T) {
	repairs, err := NewRepairs(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"", "-", "a b", "/", "a/b/c", "UPPER/name", "prefix.example.com/" + strings.Repeat("x", 64), "\xff", "é",
		strings.Repeat("a", 63), strings.Repeat("y", 300), "kubelet", "example.com/x",
	} {
		var k kept
		NewEvents(&k, occurrence.CoreV1, scheme.Scheme, name).WithRepairs(repairs).Eventf(pod, nil, "Normal", "R", "A", "")
		e := k.published[0].Event
		if problems := validation.IsQualifiedName(e.ReportingController); len(problems) > 0 {
			t.Errorf("%q became the controller %q: %v", name, e.ReportingController, problems)
		}
		if n := len(e.ReportingInstance); n == 0 || n > 128 || !utf8.ValidString(e.ReportingInstance) {
			t.Errorf("%q became the instance %q of %d bytes", name, e.ReportingInstance, n)
		}
		if good := len(validation.IsQualifiedName(name)) == 0; good && e.ReportingController != name {
			t.Errorf("%q was changed to %q", name, e.ReportingController)
		}
	}
	if n := testutil.ToFloat64(repairs.counters[repairReportingController]); n != 10 {
		t.Errorf("%v controllers are counted as repaired", n)
	}
	long := strings.Repeat("long", 50)
	if shortInstance(long+"a") == shortInstance(long+"b") {
		t.Error("two long instances became one")
	}
}

func FuzzQualifiedName(f *testing.F) {
	f.Add("a/b")
	f.Fuzz(func(t *testing.T, name string) {
		if problems := validation.IsQualifiedName(qualifiedName(name)); len(problems) > 0 {
			t.Errorf("%q became %q: %v", name, qualifiedName(name), problems)
		}
		if got := shortInstance(name); len(got) > identity.MaxReportingInstance || !utf8.ValidString(got) {
			t.Errorf("%q became the instance %q", name, got)
		}
	})
}

func TestNewStyleRecordingNeverPanics(t *testing.T) {
	var k kept
	r := NewEvents(&k, occurrence.EventsV1, nil, "controller")
	var nilPod *corev1.Pod
	for _, object := range []runtime.Object{nil, nilPod, &runtime.Unknown{}, (*corev1.ObjectReference)(nil), &corev1.Pod{}} {
		r.Eventf(object, object, "Normal", "R", "A", "%s", panics{})
	}
	withKind := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}}
	r.Eventf(withKind, nil, "Unusual", "R", "A", "")
	r.Eventf(withKind, nil, "Normal", "R", "A", "%v %d", panicsAgain{})
	if len(k.published)+len(k.refused) != 7 || len(k.published) == 0 {
		t.Errorf("published %d, refused %v", len(k.published), k.refused)
	}
}
