package sink

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// withRights is an apiserver with RBAC. The rights are separated by spaces.
func withRights(rights string) *fake {
	f := &fake{updates: true}
	f.grant(rights)
	return f
}

func (f *fake) grant(rights string) {
	allowed := strings.Fields(rights)
	f.answer = func(_ context.Context, c *call) error {
		verb := string(c.verb)
		if c.verb == apiclient.VerbRead {
			verb = "patch"
		}
		if !slices.Contains(allowed, verb) {
			return denied(verb)
		}
		return nil
	}
}

// patches is the number of requests that need the right to patch.
func (f *fake) patches() int { return f.verbs[apiclient.VerbPatch] + f.verbs[apiclient.VerbRead] }

// writeThrice writes three occurrences of a series one after the other.
func writeThrice(b *bench) {
	b.t.Helper()
	for range 3 {
		b.record(0)
		b.flush()
	}
}

// wantDenied compares the rights that are known to be denied.
func (b *bench) wantDenied(want ...right) {
	b.t.Helper()
	for right := range rights {
		n := 0
		if slices.Contains(want, right) {
			n = 1
		}
		if got := b.deniedNamespaces(right, occurrence.CoreV1); got != n {
			b.t.Errorf("%s is denied in %d namespaces, want %d", right, got, n)
		}
	}
}

func TestEventsAreWrittenWithTheRightsThatThereAre(t *testing.T) {
	for name, test := range map[string]struct {
		rights  string
		cannot  bool // the client cannot update
		objects int
		denied  []right
	}{
		"by patches":                     {"create patch", false, 1, nil},
		"by patches, with all rights":    {"create patch get update", false, 1, nil},
		"by updates":                     {"create get update", false, 1, []right{rightPatch}},
		"by a client that cannot update": {"create get update", true, 3, []right{rightPatch}},
		"without update":                 {"create get", false, 3, []right{rightPatch, rightUpdate}},
		"without get":                    {"create update", false, 3, []right{rightPatch, rightGet}},
		"by creates":                     {"create", false, 3, []right{rightPatch, rightGet}},
		"without rights":                 {"", false, 0, nil},
		"without create":                 {"patch get update", false, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := withRights(test.rights)
			f.updates = !test.cannot
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				writeThrice(b)
				if test.objects > 0 {
					b.wantEnds(ends{written: 3})
					f.wantStored(t, test.objects, 3)
				} else {
					b.wantEnds(ends{occurrence.Forbidden: 3})
					f.wantStored(t, 0, 0)
				}
				b.wantDenied(test.denied...)
			})
		})
	}
}

func TestRightThatIsGrantedAgainIsUsed(t *testing.T) {
	f := withRights("create")
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		f.grant("create patch")
		before := f.patches()
		b.record(0)
		b.flush()
		if n := f.patches() - before; n != 0 {
			t.Errorf("a right that was just denied is used %d times", n)
		}
		time.Sleep(deniedFor)
		writeThrice(b)
		f.wantStored(t, 4, 7)
		b.wantDenied(rightGet)
	})
}

// An update begins with a get, so its success shows that both rights are granted.
func TestRightsToUpdateThatAreGrantedAgainAreNotDeniedAnyMore(t *testing.T) {
	f := withRights("create")
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		for _, rights := range []string{"create update", "create get update"} {
			f.grant(rights)
			time.Sleep(deniedFor)
			writeThrice(b)
		}
		b.wantDenied(rightPatch)
	})
}

// It was denied before, so nothing waits for ForbiddenFor again.
func TestRightThatIsStillMissingDelaysNothing(t *testing.T) {
	f := withRights("create get update")
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		writeThrice(b)
		time.Sleep(deniedFor)
		began, before := time.Now(), f.patches()
		writeThrice(b)
		if took, n := time.Since(began), f.patches()-before; took != 0 || n != 1 {
			t.Errorf("took %v, with %d patches", took, n)
		}
	})
}

func TestCountsAreRightWhereAdmissionRemovesAnnotations(t *testing.T) {
	f := &fake{}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		f.server.Strips = true
		writeThrice(b)
		f.wantStored(t, 1, 3)
		b.record(1) // gets a random name, since the namespace is known
		b.flush()
		if n := testutil.ToFloat64(b.metrics.unique.WithLabelValues(string(counter.NameUnmarked))); n != 1 {
			t.Errorf("%v random names", n)
		}
		// Another client changes the Event. The sink reads that, and counts on.
		f.mu.Lock()
		for _, e := range f.server.Objects {
			f.server.Store(e.DeepCopy())
		}
		f.server.Strips = false
		f.mu.Unlock()
		writeThrice(b)
		f.wantStored(t, 2, 7)
		// A later series has a derived name again.
		for _, series := range []int{2, 3} {
			b.record(series)
			b.flush()
		}
		event := sinktest.Event(false)
		event.InvolvedObject.Name, event.Reason, event.Message = "pod-3", "Tested", "it was"
		if f.server.Objects[identity.Name("pod-3", identity.Of(event), 0)] == nil {
			t.Error("the namespace still counts as one without annotations")
		}
	})
}
