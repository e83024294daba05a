package correlator

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
)

// The apiserver refuses a longer note. The differences from client-go have a test of the
// other fields.
func TestMessageOfACombinedEventIsCut(t *testing.T) {
	s := newStream(t, func(o *Options) { o.MaxMessages = 1 })
	event := about("a", "r", strings.Repeat("é", 512))
	event.EventTime = metav1.NowMicro()
	before := event.DeepCopy()
	got := s.occurs(0, event).Target.Event
	if len(got.Message) > identity.MaxNote || !strings.HasPrefix(got.Message, identity.CombinedPrefix+"éé") {
		t.Errorf("%d bytes of message %q", len(got.Message), got.Message)
	}
	if event.Message != before.Message {
		t.Error("the published Event was changed")
	}
}

func TestKeyFunctions(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.Burst, o.MaxMessages = 1, 2
		o.SubjectKey = func(e *corev1.Event) string { return e.Source.Component }
		o.GroupKey = func(e *corev1.Event) (string, string) { return e.Reason, e.InvolvedObject.Name }
		o.Message = func(e *corev1.Event) string { return "many: " + e.Message + "\xff" }
	})
	s.want(s.occurs(0, about("a", "r", "m")), NewSeries, NotDeferred, 0)
	d := s.occurs(0, about("b", "r", "m"))
	s.want(d, Combined, Budget, 300*time.Second) // of the one budget
	if d.Target.Name != "combined" || d.Target.Event.Message != "many: m\uFFFD" {
		t.Errorf("target %+v", d.Target)
	}
	if other := s.occurs(0, about("c", "r", "m")); other.Target.Key != d.Target.Key || other.Target.Series() != d.Target.Series() {
		t.Error("another combined Event for another object")
	}
	elsewhere := about("d", "r", "m")
	elsewhere.Namespace = "elsewhere"
	if other := s.occurs(0, elsewhere); other.Target.Combined {
		t.Error("an Event of another namespace is combined with the others")
	}
}

func TestKeyFunctionsMayPanic(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.MaxMessages = 2
		o.SubjectKey = func(*corev1.Event) string { panic("subject") }
		o.GroupKey = func(*corev1.Event) (string, string) { panic("group") }
		o.Message = func(*corev1.Event) string { panic("message") }
	})
	s.occurs(0, about("a", "r", "1"))
	if d := s.occurs(0, about("a", "r", "2")); d.Target.Event.Message != identity.CombinedPrefix+"2" || d.Target.Name != "a" {
		t.Errorf("decided %+v", d)
	}
}
