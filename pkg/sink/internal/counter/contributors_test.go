package counter

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

const (
	sinkA = "aaaaaaaaaaaaaaaa"
	sinkB = "bbbbbbbbbbbbbbbb"
)

// numbered returns a contributor for a test.
func numbered(i int) Contributor { return Contributor([]byte(fmt.Sprintf("%016d", i))) }

func TestSharesFormat(t *testing.T) {
	s := contributors{
		sinks:   []contribution{{Contributor([]byte(sinkA)), 12}, {Contributor([]byte(sinkB)), 18446744073709551615}},
		clients: []contribution{{clientKey("web-0.17a2"), 3}},
	}
	want := "v1;s=aaaaaaaaaaaaaaaa:12,bbbbbbbbbbbbbbbb:18446744073709551615;n=7noj8sa1j8jf0c4c:3"
	if got := s.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := clientKey("web-0.17a2").String(); got != "7noj8sa1j8jf0c4c" {
		t.Errorf("client key %q has changed: it is part of what is stored", got)
	}
	got := NewInstance()
	if parsed, err := parseContributor(got.String()); err != nil || parsed != got || got == NewInstance() {
		t.Errorf("instance %q: %v", got, err)
	}
}

func TestWhatDoesNotParseIsForeign(t *testing.T) {
	for _, annotation := range []string{
		"", "v2;s=" + sinkA + ":1", "v1;s", "v1;s=", "v1;s=short:1", "v1;s=" + sinkA, "v1;s=" + sinkA + ":",
		"v1;s=" + sinkA + ":-1", "v1;s=" + sinkA + ":+1", "v1;s=" + sinkA + ":01", "v1;s=" + sinkA + ":18446744073709551616",
		"v1;s=" + sinkA + ":1," + sinkA + ":2", "v1;s=" + sinkA + ":1;s=" + sinkB + ":1", "v1;s=" + strings.ToUpper(sinkA) + ":1",
		"v1;x=1;x=2", "v1;n=" + sinkA + ":1,", "v1;x=" + strings.Repeat("x", maxUnknown),
	} {
		if s, err := parseContributors(annotation); err == nil {
			t.Errorf("%q parsed to %+v", annotation, s)
		}
	}
}

// More contributors than are kept are those of another release: the oldest go, as
// with the next write.
func TestListsOfOthersAreCut(t *testing.T) {
	s, err := parseContributors(manyClients(maxClients + 2))
	if err != nil || len(s.clients) != maxClients || s.clients[0].contributor != numbered(2) {
		t.Errorf("%d clients, %v", len(s.clients), err)
	}
}

func TestUnknownPartsSurvive(t *testing.T) {
	const unknown = ";later=something:else,and more"
	check(t, scenario{
		steps: []step{adds, settles, changes(func(e *corev1.Event) { e.Annotations[Annotation] += unknown }), adds, settles},
		ends:  []string{"created", "merged"}, counted: 2, events: 1,
		then: func(t *testing.T, w *world) {
			for _, e := range w.server.Objects {
				if got := e.Annotations[Annotation]; !strings.HasSuffix(got, unknown) {
					t.Errorf("got %q", got)
				}
			}
		},
	})
}

func FuzzShares(f *testing.F) {
	f.Add("v1")
	f.Add("v1;s=" + sinkA + ":1;n=" + sinkB + ":2;z=3")
	f.Fuzz(func(t *testing.T, annotation string) {
		s, err := parseContributors(annotation)
		if err != nil {
			return
		}
		again, err := parseContributors(s.String())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%q reads as %+v, written %q reads as %+v: %v", annotation, s, s.String(), again, err)
		}
	})
}

// FuzzObserve reads anything from a stored Event: what is not of this series is
// not marked as its Event, and what is read is written again as it was.
func FuzzObserve(f *testing.F) {
	own := occurrence.Digest(identity.Of(sinktest.Event(false))).String()
	f.Add(own, "v1;s="+sinkA+":1;n="+sinkB+":2", int32(3), true)
	f.Add(own, "v1;s="+sinkA+":18446744073709551615", int32(-1), false)
	f.Add("", "", int32(0), false)
	f.Add("of another", "v1;s="+sinkA+":1", int32(1), false)
	f.Fuzz(func(t *testing.T, digest, annotation string, count int32, series bool) {
		event := sinktest.Event(false)
		a := &Counter{digest: identity.Of(event)}
		event.Count = count
		if series {
			event.Series = &corev1.EventSeries{Count: count}
		}
		event.Annotations = map[string]string{identity.Annotation: digest, Annotation: annotation}
		o, marked := a.observe(event)
		parsed, err := parseContributors(annotation)
		if marked != (digest == own && err == nil) {
			t.Errorf("marked is %t: %q, %v", marked, digest, err)
		}
		if marked && o.contributors.String() != parsed.String() {
			t.Errorf("%q is read as %q", annotation, o.contributors)
		}
	})
}

func TestAnnotationStaysSmall(t *testing.T) {
	var s contributors
	for i := range 100 {
		s.sinks = set(s.sinks, numbered(i), 1<<63, maxSinks)
		s.clients = set(s.clients, numbered(i), 1<<63, maxClients)
	}
	if n := len(s.String()); n > 2800 {
		t.Errorf("%d bytes", n)
	}
}
