package recorder

import (
	"cmp"
	"os"
	"strings"
	"testing"
	"time"
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
	before := time.Now()
	r.Eventf(pod, ref, "Warning", "Evicted", "Evicting", "from %s", "node-1")
	o := k.published[0]
	host, _ := os.Hostname()
	wantOccurrence(t, o, before, &occurrence.Occurrence{Weight: 1, API: occurrence.EventsV1, Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
		InvolvedObject: podReference, Related: ref, EventTime: metav1.NewMicroTime(o.Recorded),
		Type: "Warning", Reason: "Evicted", Action: "Evicting", Message: "from node-1",
		ReportingController: "example.com/controller", ReportingInstance: "example.com/controller-" + host,
	}})
}

// call is a call of a recorder.
type call struct {
	classic              bool
	object, related      runtime.Object // a pod, and none
	reason, action, note string
	args                 []any
}

func (c call) of(classic *Recorder, newStyle *EventsRecorder) {
	switch object := cmp.Or[runtime.Object](c.object, pod); {
	case c.classic:
		classic.Eventf(object, "Normal", c.reason, c.note, c.args...)
	default:
		newStyle.Eventf(object, c.related, "Normal", c.reason, c.action, c.note, c.args...)
	}
}

func TestRepairs(t *testing.T) {
	euros := strings.Repeat("€", 400) // of three bytes, so that 1024 is inside of one
	long := strings.Repeat("x", maxClassicMessage)
	message := func(e *corev1.Event) any { return e.Message }
	reason := func(e *corev1.Event) any { return e.Reason }
	action := func(e *corev1.Event) any { return e.Action }
	namespace := func(e *corev1.Event) any { return e.Namespace }
	related := func(e *corev1.Event) any { return e.Related }
	for _, test := range []struct {
		repair repair
		call   call
		field  func(*corev1.Event) any
		want   any
	}{
		{repairMessageCut, call{reason: "R", action: "A", note: "%s", args: []any{euros}}, message, euros[:1023]},
		{repairMessageCut, call{classic: true, reason: "R", note: long + "x"}, message, long},
		{repairUTF8, call{reason: "R", action: "A", note: "a\xffb"}, message, "a\uFFFDb"},
		{repairUTF8, call{classic: true, reason: "R\xff"}, reason, "R\uFFFD"},
		{repairReasonCut, call{reason: euros, action: "A"}, reason, euros[:126]},
		{repairReasonEmpty, call{action: "A"}, reason, "Unknown"},
		{repairActionCut, call{reason: "R", action: euros}, action, euros[:126]},
		{repairActionEmpty, call{reason: "R"}, action, "R"},
		{repairRelatedLeftOut, call{related: (*corev1.Pod)(nil), reason: "R", action: "A"}, related, (*corev1.ObjectReference)(nil)},
		{repairClusterScoped, call{object: node, reason: "R", action: "A"}, namespace, "default"},
		{repairClusterScoped, call{classic: true, object: node, reason: "R"}, namespace, "default"},
		{repairUnformattable, call{classic: true, reason: "R", note: "%v", args: []any{panicsAgain{}}}, message, "%v"},
	} {
		t.Run(string(test.repair), func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			repairs, err := NewRepairs(registry)
			if err != nil {
				t.Fatal(err)
			}
			var k kept
			classic, newStyle := recorders(&k)
			test.call.of(classic.WithRepairs(repairs), newStyle.WithRepairs(repairs))
			if len(k.published) != 1 || test.field(k.published[0].Event) != test.want {
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

// The names of a recorder are valid, and those that are valid are not changed.
func FuzzQualifiedName(f *testing.F) {
	for _, name := range []string{
		"", "-", "a b", "/", "a/b", "a/b/c", "UPPER/name", "prefix.example.com/" + strings.Repeat("x", 64), "\xff", "é",
		strings.Repeat("a", 63), strings.Repeat("y", 300), "kubelet", "example.com/x",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		repairs, err := NewRepairs(nil)
		if err != nil {
			t.Fatal(err)
		}
		var k kept
		NewEvents(&k, occurrence.CoreV1, scheme.Scheme, name).WithRepairs(repairs).Eventf(pod, nil, "Normal", "R", "A", "")
		e := k.published[0].Event
		if problems := validation.IsQualifiedName(e.ReportingController); len(problems) > 0 {
			t.Errorf("%q became the controller %q: %v", name, e.ReportingController, problems)
		}
		for _, instance := range []string{e.ReportingInstance, shortInstance(name)} {
			if len(instance) > identity.MaxReportingInstance || !utf8.ValidString(instance) {
				t.Errorf("%q became the instance %q", name, instance)
			}
		}
		repaired := testutil.ToFloat64(repairs.counters[repairReportingController]) == 1
		valid := len(validation.IsQualifiedName(name)) == 0
		if changed := e.ReportingController != name; changed == valid || repaired == valid || e.ReportingInstance == "" {
			t.Errorf("%q became %q and %q, counted %v", name, e.ReportingController, e.ReportingInstance, repaired)
		}
	})
}

func TestLongInstancesStayDistinct(t *testing.T) {
	long := strings.Repeat("long", 50)
	if shortInstance(long+"a") == shortInstance(long+"b") {
		t.Error("two long instances became one")
	}
}
