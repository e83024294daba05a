package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// Whatever the rights are and whatever admission removes: what is said to be written
// is stored, once.
func TestAccountsAgreeWithFewerRightsAndWithoutAnnotations(t *testing.T) {
	for _, test := range []struct {
		name            string
		may             means
		strips, giveUps bool
		expiry          bool
		then            means // from the middle on, if it is set
	}{
		{name: "update", may: means{change: apiclient.VerbUpdate}, giveUps: true},
		{name: "create only", may: means{change: verbNone}},
		{name: "create only, and some are given up", may: means{change: verbNone}, giveUps: true},
		{name: "stripped, not known yet", may: means{change: apiclient.VerbPatch}, strips: true, giveUps: true},
		{name: "stripped", may: means{change: apiclient.VerbPatch, unmarked: true}, strips: true},
		{name: "stripped, and some are given up", may: means{change: apiclient.VerbPatch, unmarked: true}, strips: true, giveUps: true},
		{name: "stripped, and they expire", may: means{change: apiclient.VerbPatch, unmarked: true}, strips: true, expiry: true},
		{name: "stripped, create only", may: means{change: verbNone, unmarked: true}, strips: true, giveUps: true},
		{name: "forbidden to change anything after a while", may: means{change: apiclient.VerbPatch}, then: means{change: verbNone}},
		{name: "found to be stripped after a while", may: means{change: apiclient.VerbPatch}, strips: true, then: means{change: apiclient.VerbPatch, unmarked: true}},
		{name: "no more stripped", may: means{change: apiclient.VerbPatch, unmarked: true}, giveUps: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(300) {
				w := newWorld(t, seed, 3, seed%2 == 0)
				w.may, w.server.strips = test.may, test.strips
				for i := range 200 {
					if i == 100 && test.then != (means{}) {
						w.may = test.then
					}
					switch n := w.rng.IntN(100); {
					case n < 20:
						w.record()
					case n < 50:
						w.start(w.writers[w.rng.IntN(len(w.writers))])
					case n < 90:
						w.finish(false)
					case n < 95:
						w.arrive()
					case n < 96 && test.expiry:
						w.expireAnything()
					case n < 98 && test.giveUps:
						a := w.writers[w.rng.IntN(len(w.writers))]
						if !a.busy {
							a.take(a.series.account.giveUp(a.sequence, occurrence.RetriesExhausted, nil))
						}
					}
				}
				w.settleDown()
				written, uncertain := w.check()
				if counted := w.server.counted(); counted < written || counted > written+uncertain+w.slack {
					t.Errorf("counted %d, written %d, uncertain %d, possibly on two objects %d", counted, written, uncertain, w.slack)
				}
				if alone := test.may.unmarked || test.may.change == verbNone; alone && !test.giveUps && uncertain != 0 {
					t.Errorf("%d uncertain, though nobody gave up", uncertain)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}

// expireAnything is expire for Events that do not say what is in them.
func (w *world) expireAnything() {
	for _, writer := range w.writers {
		a := writer.series.account
		for i := range a.pending {
			if a.pending[i].sequence <= a.carried {
				w.slack += a.pending[i].weight
			}
		}
	}
	w.late = nil
	w.server.expire()
}

// What clients have reported is remembered where no annotation says it.
func TestClientIsCountedOnceWhereAdmissionRemovesAnnotations(t *testing.T) {
	w := quiet(t, false)
	w.server.strips = true
	for range 2 {
		w.clients["client"] = 5
		w.writers[0].views["client"] = 0
		w.reportTo(w.writers[0], "client")
		w.settleDown()
	}
	w.check()
	if n := w.writers[0].settled[occurrence.Replayed]; n != 5 || w.server.counted() != 5 {
		t.Errorf("%d are replayed, %d are counted", n, w.server.counted())
	}
}

// A write that adds nothing to the count is not known by it: lost, it is made again.
func TestLostChangeIsMadeAgainWhereAdmissionRemovesAnnotations(t *testing.T) {
	w := quiet(t, false)
	ours := w.writers[0]
	w.server.strips = true
	w.one(ours)
	w.all(ours)
	event := w.event.DeepCopy()
	event.Labels = map[string]string{"l": "m"}
	ours.add(&occurrence.Occurrence{Settled: func(occurrence.Settlement) {}}, event)
	w.step(ours, false, false) // lost on the way
	name := identity.Name("web-0", w.digest, 0)
	w.server.stamp(w.server.objects[name].DeepCopy()) // somebody else's write
	w.settleDown()
	if got := w.server.objects[name]; got.Labels["l"] != "m" || got.Count != 1 {
		t.Errorf("stored with labels %v and a count of %d", got.Labels, got.Count)
	}
}

// An Event that has its annotations again is everybody's, and what they say is true.
func TestAnnotationsThatAreNoMoreRemovedAreRead(t *testing.T) {
	w := faultless(t, 2)
	ours, other := w.writers[0], w.writers[1]
	w.server.strips = true
	w.one(ours)
	w.all(ours)
	w.server.strips = false
	w.one(ours)
	w.step(ours, true, false) // a patch, which puts them there
	for _, writer := range []*writer{other, ours} {
		w.clients["client"] = 5
		w.reportTo(writer, "client")
		w.settleDown()
	}
	w.check()
	if n := ours.settled[occurrence.Replayed]; n != 5 || w.server.counted() != 2+5 || len(w.server.objects) != 1 {
		t.Errorf("%d are replayed, %d are counted, in %d Events", n, w.server.counted(), len(w.server.objects))
	}
}

// rules are what an apiserver with RBAC allows.
type rules struct {
	mu      sync.Mutex
	server  *server
	allowed map[string]bool
	asked   map[string]int
}

func newRules(allowed ...string) *rules {
	r := &rules{server: newServer(), asked: map[string]int{}}
	r.allow(allowed...)
	return r
}

func (c *rules) allow(allowed ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = map[string]bool{}
	for _, verb := range allowed {
		c.allowed[verb] = true
	}
}

func (c *rules) do(right string, r *request) (*corev1.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[right]++
	if !c.allowed[right] {
		return nil, apierrors.NewForbidden(eventsResource, r.name, fmt.Errorf("User \"eventd\" cannot %s resource \"events\" in API group \"\" in the namespace \"ns\"", right))
	}
	return c.server.do(r)
}

func (c *rules) times(right string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[right]
}

func (c *rules) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do("create", &request{verb: apiclient.VerbCreate, name: event.Name, event: event})
}

func (c *rules) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	v := apiclient.VerbPatch
	if string(patch) == string(emptyPatch) {
		v = apiclient.VerbRead
	}
	return c.do("patch", &request{verb: v, name: name, patch: patch})
}

// updating is one whose client can update.
type updating struct{ *rules }

func (c updating) Get(_ context.Context, _ occurrence.API, _, name string) ([]byte, error) {
	event, err := c.do("get", &request{verb: apiclient.VerbGet, name: name})
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(event)
	return append(out[:len(out)-1], `,"later":{"x":12345678901234567890}}`...), err
}

func (c updating) Update(_ context.Context, _ occurrence.API, _, name string, event []byte) (*corev1.Event, error) {
	if !strings.Contains(string(event), `"later":{"x":12345678901234567890}`) {
		return nil, apierrors.NewBadRequest("what a later release has is lost")
	}
	var e corev1.Event
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, err
	}
	c.mu.Lock()
	stored := c.server.objects[name]
	c.mu.Unlock()
	if stored != nil && stored.UID != e.UID {
		return nil, apierrors.NewConflict(eventsResource, name, errors.New("another UID"))
	}
	return c.do("update", &request{verb: apiclient.VerbUpdate, name: name, patch: event})
}

func (c *rules) counts() (objects int, sum int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.server.objects), c.server.counted()
}

// writeThrice has three occurrences of a series written one after the other.
func writeThrice(b *bench) {
	for range 3 {
		b.record(0)
		b.Flush(b.t.Context())
	}
}

func TestEventsAreWrittenWithTheRightsThatThereAre(t *testing.T) {
	plain := func(r *rules) Client { return r }
	updater := func(r *rules) Client { return updating{r} }
	for name, test := range map[string]struct {
		allowed []string
		client  func(*rules) Client
		objects int
		denied  []right
	}{
		"create, patch":                                    {[]string{"create", "patch"}, updater, 1, nil},
		"create, patch, get, update":                       {[]string{"create", "patch", "get", "update"}, updater, 1, nil},
		"create, get, update":                              {[]string{"create", "get", "update"}, updater, 1, []right{rightPatch}},
		"create, get, update, of a client that cannot put": {[]string{"create", "get", "update"}, plain, 3, []right{rightPatch}},
		"create, get":                                      {[]string{"create", "get"}, updater, 3, []right{rightPatch, rightUpdate}},
		"create, update":                                   {[]string{"create", "update"}, updater, 3, []right{rightPatch, rightGet}},
		"create":                                           {[]string{"create"}, updater, 3, []right{rightPatch, rightGet}},
		"none":                                             {nil, updater, 0, nil},
		"patch, get, update":                               {[]string{"patch", "get", "update"}, updater, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRules(test.allowed...)
			bubble(t, test.client(r), nil, func(t *testing.T, b *bench) {
				writeThrice(b)
				want := int64(3)
				if test.objects == 0 {
					want = 0
				}
				got := b.ledger.Totals()
				if objects, sum := r.counts(); objects != test.objects || sum != want || got.Written() != want || got.Dropped[occurrence.Forbidden] != 3-want {
					t.Errorf("%d objects with %d in all, settled as %v", objects, sum, got)
				}
				for right := range rights {
					n := 0
					for _, denied := range test.denied {
						if denied == right {
							n = 1
						}
					}
					if got := b.deniedNamespaces(right, occurrence.CoreV1); got != n {
						t.Errorf("%s is denied in %d namespaces, want %d", right, got, n)
					}
				}
			})
		})
	}
}

func TestRightThatComesBackIsUsed(t *testing.T) {
	r := newRules("create")
	bubble(t, updating{r}, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		r.allow("create", "patch")
		asked := r.times("patch")
		b.record(0)
		b.Flush(t.Context())
		if n := r.times("patch"); n != asked {
			t.Errorf("a right that was denied a moment ago is used %d times", n-asked)
		}
		time.Sleep(deniedFor)
		before, _ := r.counts()
		writeThrice(b)
		if objects, sum := r.counts(); objects != before || sum != 7 || b.deniedNamespaces(rightPatch, occurrence.CoreV1) != 0 {
			t.Errorf("%d objects after %d, with %d in all", objects, before, sum)
		}
	})
}

// An update reads the Event first, so that it is allowed shows that both rights are.
func TestRightsToUpdateThatComeBackAreNotDeniedAnyMore(t *testing.T) {
	r := newRules("create")
	bubble(t, updating{r}, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		r.allow("create", "update")
		time.Sleep(deniedFor)
		writeThrice(b)
		r.allow("create", "get", "update")
		time.Sleep(deniedFor)
		writeThrice(b)
		for right, want := range map[right]int{rightPatch: 1, rightGet: 0, rightUpdate: 0} {
			if n := b.deniedNamespaces(right, occurrence.CoreV1); n != want {
				t.Errorf("%s is denied in %d namespaces, want %d", right, n, want)
			}
		}
	})
}

// It is known already, so nothing waits for it to change once more.
func TestRightThatIsStillMissingDelaysNothing(t *testing.T) {
	r := newRules("create", "get", "update")
	bubble(t, updating{r}, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		time.Sleep(deniedFor)
		start, asked := time.Now(), r.times("patch")
		writeThrice(b)
		if took := time.Since(start); took != 0 || r.times("patch") != asked+1 {
			t.Errorf("took %v, with %d patches", took, r.times("patch")-asked)
		}
	})
}

func TestAdmissionThatRemovesAnnotationsIsLivedWith(t *testing.T) {
	r := newRules("create", "patch")
	r.server.strips = true
	bubble(t, r, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		if objects, sum := r.counts(); objects != 1 || sum != 3 {
			t.Errorf("%d objects with %d in all", objects, sum)
		}
		b.record(1) // whose name is drawn, since the namespace is known
		b.Flush(t.Context())
		if n := testutil.ToFloat64(b.metrics.unique.WithLabelValues(string(unmarked))); n != 1 {
			t.Errorf("%v names were drawn", n)
		}
		// Somebody else changes the Event, which is noticed, and counted on.
		r.mu.Lock()
		for _, e := range r.server.objects {
			r.server.stamp(e.DeepCopy())
		}
		r.server.strips = false
		r.mu.Unlock()
		writeThrice(b)
		if objects, sum := r.counts(); objects != 2 || sum != 7 {
			t.Errorf("%d objects with %d in all", objects, sum)
		}
		// What is begun after that has its own name again.
		b.record(2)
		b.Flush(t.Context())
		b.record(3)
		b.Flush(t.Context())
		event := testEvent(false)
		event.InvolvedObject.Name, event.Reason, event.Message = "pod-3", "Tested", "it was"
		if r.server.objects[identity.Name("pod-3", identity.Of(event), 0)] == nil {
			t.Error("the namespace is still taken for one without annotations")
		}
	})
}
