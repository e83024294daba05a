package history

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
)

// adder adds versions as Run does: it waits while too much is not sealed.
type adder struct {
	t   *testing.T
	h   *History
	rv  uint64
	now time.Time
}

func newAdder(t *testing.T, maxBytes int64) *adder {
	h, err := New(Options{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { waitSealed(h) })
	return &adder{t: t, h: h, now: time.UnixMicro(1_790_000_000_000_000)}
}

func (a *adder) add(e *corev1.Event) {
	a.t.Helper()
	a.rv++
	a.now = a.now.Add(time.Millisecond)
	e.ResourceVersion = formatRV(a.rv)
	a.h.Add(observer.Version{Event: e, Observed: a.now})
	if s := a.h.Status(); s.Bytes > s.MaxBytes {
		a.t.Fatalf("%d bytes of %d after %d versions", s.Bytes, s.MaxBytes, a.rv)
	}
	if sealed := a.h.sealed(); sealed != nil {
		<-sealed
	}
}

func eventOf(namespace, object string, i int) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%016x", object, i), UID: types.UID(fmt.Sprintf("5e0c1a52-7d0a-4c58-8b43-%012x", i))},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: object}, Reason: "Test", Type: "Normal",
	}
}

// noise cannot be compressed.
func noise(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return string(b)
}

// Whatever is added, the size is below the limit after each version, and the last ones are there.
func TestHostileVersionsStayWithinTheLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for name, test := range map[string]struct {
		n    int
		make func(i int) *corev1.Event
	}{
		"100,000 objects": {100_000, func(i int) *corev1.Event { return eventOf("a", fmt.Sprint("object-", i), i) }},
		"everything differs": {20_000, func(i int) *corev1.Event {
			e := eventOf(noise(rng, 20), noise(rng, 40), i)
			e.Reason, e.Type, e.Message, e.Source.Component, e.InvolvedObject.Kind = noise(rng, 30), noise(rng, 9), noise(rng, 300), noise(rng, 20), noise(rng, 9)
			e.UID, e.InvolvedObject.UID = types.UID(noise(rng, 30)), types.UID(noise(rng, 30))
			return e
		}},
		"1.5 MiB each": {300, func(i int) *corev1.Event {
			e := eventOf("a", "object", i)
			e.Message, e.Reason, e.InvolvedObject.FieldPath = strings.Repeat(noise(rng, 1000), 1500), noise(rng, 3000), noise(rng, 3000)
			return e
		}},
		"namespaces": {30_000, func(i int) *corev1.Event { return eventOf(fmt.Sprint("namespace-", i/300), "object", i) }},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdder(t, MinMaxBytes)
			for i := range test.n {
				a.add(test.make(i))
			}
			waitSealed(a.h)
			if got, err := a.h.List(t.Context(), Query{Limit: 3}); err != nil || len(got.Versions) != 3 || got.Versions[2].Event.ResourceVersion != formatRV(a.rv) || !got.Truncated {
				t.Errorf("%v, %v", ids(got.Versions), err)
			}
			s := a.h.Status()
			if evicted := int64(testutil.ToFloat64(a.h.metrics.evicted)); s.Versions+evicted != int64(test.n) {
				t.Errorf("%d versions, %d evicted, of %d", s.Versions, evicted, test.n)
			}
			if len(a.h.store.removed) > maxRemoved {
				t.Errorf("%d namespaces that were removed", len(a.h.store.removed))
			}
		})
	}
}

// A namespace that floods replaces its own history, not that of others.
func TestAFloodLeavesTheHistoryOfOthers(t *testing.T) {
	a := newAdder(t, MinMaxBytes)
	rng := rand.New(rand.NewPCG(6, 6))
	const quiet = 3000
	for i := range quiet { // of 40 namespaces, none of which has much
		a.add(eventOf(fmt.Sprint("quiet-", i%40), fmt.Sprint("object-", i%400), i))
	}
	since := a.now
	for i := range 60_000 {
		e := eventOf("flood", fmt.Sprint("object-", rng.IntN(1000)), 1_000_000+i)
		e.Message = noise(rng, 100)
		a.add(e)
		if i%100 == 0 {
			a.add(eventOf("quiet-1", "object", 2_000_000+i))
		}
	}
	waitSealed(a.h)
	for _, n := range []string{"quiet-1", "quiet-7"} {
		got, err := a.h.List(t.Context(), Query{Namespaces: []string{n}, Limit: MaxLimit})
		want := quiet / 40
		if n == "quiet-1" {
			want += 600
		}
		if err != nil || len(got.Versions) != want || got.KnownSince.After(since) {
			t.Errorf("%s has %d versions since %v, want %d since %v (%v)", n, len(got.Versions), got.KnownSince, want, since, err)
		}
	}
	got, err := a.h.List(t.Context(), Query{Namespaces: []string{"flood"}, Limit: 1})
	if err != nil || !got.KnownSince.After(since) {
		t.Errorf("the flood is known since %v, %v", got.KnownSince, err)
	}
	if all, err := a.h.List(t.Context(), Query{Limit: 1}); err != nil || !all.KnownSince.Equal(got.KnownSince) {
		t.Errorf("all is known since %v, the flood since %v", all.KnownSince, got.KnownSince)
	}
	if o := a.h.store.owners["flood"]; o.bytes < MinMaxBytes/3 {
		t.Errorf("the flood has %d bytes", o.bytes)
	}
}

// Versions that come faster than they are sealed push out older ones, and nobody waits.
func TestAddNeverWaits(t *testing.T) {
	h := newForTest(t, MinMaxBytes, defaultSizes(MinMaxBytes))
	h.sealing = make(chan struct{}) // a goroutine that hangs
	for rv := range uint64(20_000) {
		h.Add(numbered(1 + rv))
		if s := h.Status(); s.Bytes > MinMaxBytes {
			t.Fatalf("%d bytes", s.Bytes)
		}
	}
	s := h.Status()
	got, err := h.List(t.Context(), Query{AllVersions: true, Limit: MaxLimit, Since: time.Unix(0, 1)})
	if err != nil || s.Versions == 20_000 || int(s.Versions) != len(got.Versions) || !got.KnownSince.Equal(got.Versions[0].Observed) || !s.KnownSince.Equal(got.KnownSince) {
		t.Errorf("%+v; %d versions since %v, %v", s, len(got.Versions), got.KnownSince, err)
	}
	close(h.sealing)
	h.sealing = nil
}

// Who follows is told that versions were removed before they were sealed, and gets none of those behind them.
func TestAFollowerIsToldWhatWasNeverSealed(t *testing.T) {
	h := newForTest(t, MinMaxBytes, defaultSizes(MinMaxBytes))
	h.sealing = make(chan struct{}) // a goroutine that hangs
	h.Add(numbered(1))
	f, err := h.Follow("", "jane")
	if err != nil {
		t.Fatal(err)
	}
	from := h.Status().ResourceVersion
	rv := uint64(2)
	for ; h.head[0].seq == 0; rv++ {
		h.Add(numbered(rv))
	}
	if versions, _, err := f.Read(t.Context(), 1); !errors.Is(err, ErrExpired) {
		t.Errorf("the follower reads %d versions, %v", len(versions), err)
	}
	if _, err := h.Follow(from, "jane"); !errors.Is(err, ErrExpired) {
		t.Errorf("to follow from %s: %v", from, err)
	}
	close(h.sealing)
	h.sealing = nil
}

// A result is bounded in bytes too, and has the newest. Memory is reserved for what it has, not for what was found.
func TestALargeResultIsCut(t *testing.T) {
	a := newAdder(t, 64<<20)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 8000 {
		e := eventOf("a", "object", i)
		e.Message = noise(rng, maxMessage)
		a.add(e)
	}
	for _, q := range []Query{{Limit: MaxLimit}, {Limit: MaxLimit, AllVersions: true}} {
		got, err := a.h.List(t.Context(), q)
		bytes := int64(0)
		for i, v := range got.Versions {
			r, _ := newRow(v, false)
			bytes += r.bytes
			if want := formatRV(a.rv - uint64(len(got.Versions)-1-i)); v.Event.ResourceVersion != want {
				t.Fatalf("%s comes, want %s", v.Event.ResourceVersion, want)
			}
		}
		if err != nil || bytes > maxResultBytes || bytes < maxResultBytes*9/10 || !got.Truncated {
			t.Errorf("%d bytes, truncated: %v, %v", bytes, got.Truncated, err)
			return
		}
		if reserved := a.h.budget.results.InUse(); reserved != bytes {
			t.Errorf("%d bytes are reserved for %d", reserved, bytes)
		}
		got.Release()
	}
}

func TestMetricsAreThoseOfTheLastHistory(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	for range 2 {
		h, err := New(Options{MaxBytes: MinMaxBytes, Metrics: metrics})
		if err != nil {
			t.Fatal(err)
		}
		h.Add(numbered(1_500_000))
		h.Add(observer.Version{Event: &corev1.Event{}})
		s := h.Status()
		want := fmt.Sprintf(`
# HELP eventd_history_bytes Size of the history in memory.
# TYPE eventd_history_bytes gauge
eventd_history_bytes %d
# HELP eventd_history_capacity_bytes Limit of the history. Its oldest versions are removed above that.
# TYPE eventd_history_capacity_bytes gauge
eventd_history_capacity_bytes %d
# HELP eventd_history_oldest_timestamp_seconds When the oldest version in the history was observed, in seconds since 1970; 0 if there is none.
# TYPE eventd_history_oldest_timestamp_seconds gauge
eventd_history_oldest_timestamp_seconds 1.5
# HELP eventd_history_versions Versions of Events in the history.
# TYPE eventd_history_versions gauge
eventd_history_versions 1
`, s.Bytes, MinMaxBytes)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
			"eventd_history_bytes", "eventd_history_capacity_bytes", "eventd_history_oldest_timestamp_seconds", "eventd_history_versions"); err != nil {
			t.Error(err)
		}
	}
	if n := testutil.ToFloat64(metrics.skipped); n != 2 {
		t.Errorf("%v skipped", n)
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	if _, err := New(Options{MaxBytes: MinMaxBytes - 1}); err == nil || !strings.Contains(err.Error(), "4194304") {
		t.Error(err)
	}
}
