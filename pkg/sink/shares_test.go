package sink

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/eventd/eventd/internal/occurrence"
)

const (
	sinkA = "aaaaaaaaaaaaaaaa"
	sinkB = "bbbbbbbbbbbbbbbb"
)

func TestSharesFormat(t *testing.T) {
	s := shares{
		sinks:   []share{{sinkA, 12}, {sinkB, 18446744073709551615}},
		clients: []share{{clientKey("web-0.17a2"), 3}},
	}
	want := "v1;s=aaaaaaaaaaaaaaaa:12,bbbbbbbbbbbbbbbb:18446744073709551615;n=" + clientKey("web-0.17a2") + ":3"
	if got := s.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := clientKey("web-0.17a2"); !validContributor(got) || got != "7noj8sa1j8jf0c4c" {
		t.Errorf("client key %q has changed: it is part of what is stored", got)
	}
	if got := newInstance(); !validContributor(got) || got == newInstance() {
		t.Errorf("instance %q", got)
	}
}

func TestWhatDoesNotParseIsForeign(t *testing.T) {
	for _, annotation := range []string{
		"", "v2;s=" + sinkA + ":1", "v1;s", "v1;s=", "v1;s=short:1", "v1;s=" + sinkA, "v1;s=" + sinkA + ":",
		"v1;s=" + sinkA + ":-1", "v1;s=" + sinkA + ":+1", "v1;s=" + sinkA + ":01", "v1;s=" + sinkA + ":18446744073709551616",
		"v1;s=" + sinkA + ":1," + sinkA + ":2", "v1;s=" + sinkA + ":1;s=" + sinkB + ":1", "v1;s=" + strings.ToUpper(sinkA) + ":1",
		"v1;x=1;x=2", "v1;n=" + sinkA + ":1,",
	} {
		if s, err := parseShares(annotation); err == nil {
			t.Errorf("%q parsed to %+v", annotation, s)
		}
	}
}

func TestUnknownPartsSurvive(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	w.faults = 0
	w.record()
	w.settleDown()
	for _, e := range w.server.objects {
		e.Annotations[sharesAnnotation] += ";later=something:else,and more"
		w.server.stamp(e)
	}
	w.record()
	w.settleDown()
	for _, e := range w.server.objects {
		if got := e.Annotations[sharesAnnotation]; !strings.HasSuffix(got, ";later=something:else,and more") {
			t.Errorf("got %q", got)
		}
	}
	written, _ := w.check()
	if counted := w.server.counted(); counted != written {
		t.Errorf("counted %d, written %d", counted, written)
	}
}

func FuzzShares(f *testing.F) {
	f.Add("v1")
	f.Add("v1;s=" + sinkA + ":1;n=" + sinkB + ":2;z=3")
	f.Fuzz(func(t *testing.T, annotation string) {
		s, err := parseShares(annotation)
		if err != nil {
			return
		}
		again, err := parseShares(s.String())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%q reads as %+v, written %q reads as %+v: %v", annotation, s, s.String(), again, err)
		}
	})
}

func TestListsAreBoundedAndKeepTheLastChanged(t *testing.T) {
	var list []share
	for i := range 20 {
		list = set(list, fmt.Sprintf("%016d", i), uint64(i), 8)
	}
	list = set(list, fmt.Sprintf("%016d", 12), 99, 8)
	if len(list) != 8 {
		t.Fatalf("%d entries", len(list))
	}
	if got := list[7]; got.value != 99 {
		t.Errorf("the last changed is %+v", got)
	}
	if got := list[0]; got.value != 13 {
		t.Errorf("the oldest is %+v", got)
	}
}

func TestAnnotationStaysSmall(t *testing.T) {
	var s shares
	for i := range 100 {
		s.sinks = set(s.sinks, fmt.Sprintf("%016d", i), 1<<63, maxSinks)
		s.clients = set(s.clients, fmt.Sprintf("%016d", i), 1<<63, maxClients)
	}
	if n := len(s.String()); n > 2800 {
		t.Errorf("%d bytes", n)
	}
}

func TestAnonymousOccurrencesNobodyWaitsForAreOneEntry(t *testing.T) {
	w := newWorld(t, 1, 1, false)
	a := w.writers[0].series.account
	for range 1000 {
		w.record()
	}
	if n := len(a.pending); n != 1 {
		t.Errorf("%d entries", n)
	}
	if r, _ := a.next(); r == nil {
		t.Fatal("nothing to ask")
	}
	w.record() // while a write carries the others
	w.record()
	if n := len(a.pending); n != 2 {
		t.Errorf("%d entries", n)
	}
	w.writers[0].add(&occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) {}}, w.event)
	if n := len(a.pending); n != 3 {
		t.Errorf("%d entries", n)
	}
}
