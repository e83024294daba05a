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
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// rules are what an apiserver with RBAC allows.
type rules struct {
	mu      sync.Mutex
	server  *sinktest.Server
	allowed map[string]bool
	asked   map[string]int
}

func newRules(allowed ...string) *rules {
	r := &rules{server: sinktest.NewServer(), asked: map[string]int{}}
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

func (c *rules) do(right, name string, request func() (*corev1.Event, error)) (*corev1.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[right]++
	if !c.allowed[right] {
		return nil, apierrors.NewForbidden(sinktest.EventsResource, name, fmt.Errorf("User \"eventd\" cannot %s resource \"events\" in API group \"\" in the namespace \"ns\"", right))
	}
	return request()
}

func (c *rules) times(right string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[right]
}

func (c *rules) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do("create", event.Name, func() (*corev1.Event, error) { return c.server.Create(event.Name, event) })
}

func (c *rules) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	return c.do("patch", name, func() (*corev1.Event, error) { return c.server.Patch(name, patch) })
}

// updating is one whose client can update.
type updating struct{ *rules }

func (c updating) Get(_ context.Context, _ occurrence.API, _, name string) ([]byte, error) {
	event, err := c.do("get", name, func() (*corev1.Event, error) { return c.server.Get(name) })
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
	stored := c.server.Objects[name]
	c.mu.Unlock()
	if stored != nil && stored.UID != e.UID {
		return nil, apierrors.NewConflict(sinktest.EventsResource, name, errors.New("another UID"))
	}
	return c.do("update", name, func() (*corev1.Event, error) { return c.server.Patch(name, event) })
}

func (c *rules) counts() (objects int, sum int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.server.Objects), c.server.Counted()
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
	r.server.Strips = true
	bubble(t, r, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		if objects, sum := r.counts(); objects != 1 || sum != 3 {
			t.Errorf("%d objects with %d in all", objects, sum)
		}
		b.record(1) // whose name is drawn, since the namespace is known
		b.Flush(t.Context())
		if n := testutil.ToFloat64(b.metrics.unique.WithLabelValues(string(counter.NameUnmarked))); n != 1 {
			t.Errorf("%v names were drawn", n)
		}
		// Somebody else changes the Event, which is noticed, and counted on.
		r.mu.Lock()
		for _, e := range r.server.Objects {
			r.server.Store(e.DeepCopy())
		}
		r.server.Strips = false
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
		event := sinktest.Event(false)
		event.InvolvedObject.Name, event.Reason, event.Message = "pod-3", "Tested", "it was"
		if r.server.Objects[identity.Name("pod-3", identity.Of(event), 0)] == nil {
			t.Error("the namespace is still taken for one without annotations")
		}
	})
}
