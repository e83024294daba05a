package counter

import (
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/wire"
)

func aSeries() *Series {
	return &Series{
		Key: occurrence.Key{A: 1, B: 2}, Namespace: "ns", Object: "web-0", EventType: "Normal", Combined: true, Keyed: true,
		Identity: SeriesIdentity{digest: occurrence.Digest{3}},
	}
}

func anEntry(event *corev1.Event) EntryRecord {
	content := Content{Event: event, API: occurrence.EventsV1, Recorded: time.Unix(0, 4), bytes: eventsize.Of(event)}
	return EntryRecord{
		Sequence: 5, Weight: 13, Anonymous: 6, Claims: []Claim{{Contributor{8}, 9, 7}}, Changes: true,
		User: "jane", CreateOnly: true, Oldest: content, Newest: Content{Recorded: time.Unix(0, 10)},
		Labels: map[string]string{"k": "v"}, Annotations: map[string]string{},
		Merged: occurrence.Aggregated, Deferred: true,
	}
}

// decode decodes a series and its entries.
func decode(b []byte) (*Series, []EntryRecord, error) {
	r := wire.NewReader(b)
	s, entries := ReadSeries(r), ReadEntries(r)
	return s, entries, r.Err()
}

func encode(t *testing.T, event *corev1.Event) []byte {
	var w wire.Writer
	aSeries().Write(&w)
	if err := WriteEntries(&w, []EntryRecord{anEntry(event), {Merged: occurrence.Merged}}); err != nil {
		t.Fatal(err)
	}
	return w.Bytes
}

func TestEverythingArrivesAsItWasSent(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "b"}}, Message: "it was"}
	s, entries, err := decode(encode(t, event))
	if err != nil || !reflect.DeepEqual(s, aSeries()) || len(entries) != 2 || !reflect.DeepEqual(entries[0], anEntry(event)) {
		t.Errorf("%+v, %+v, %v", s, entries, err)
	}
}

// allocated returns the bytes that a call allocates.
func allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Whatever number another one replaces, such as the length of a list.
func TestDecodingAllocatesNoMoreThanThereIs(t *testing.T) {
	sent := encode(t, &corev1.Event{Message: "it was"})
	for i := range sent {
		many := slices.Concat(sent[:i], []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, sent[i+1:])
		if n := allocated(func() { decode(many) }); n > 256<<10 {
			t.Errorf("%d bytes are allocated for %d, of which number %d is large", n, len(many), i)
		}
	}
	sent = encode(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 1<<16)}})
	n := allocated(func() {
		if _, _, err := decode(sent); err == nil {
			t.Error("an Event with any number of owners is decoded")
		}
	})
	if n > 256<<10 {
		t.Errorf("%d bytes are allocated for %d", n, len(sent))
	}
}
