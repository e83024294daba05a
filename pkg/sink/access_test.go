package sink

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/sinktest"
	"github.com/eventd/eventd/test/testenv"
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

// rightsTests are combinations of rights, how many Events three occurrences of a series
// become with them, and which rights turn out to be denied.
var rightsTests = map[string]struct {
	objects int
	denied  []right
}{
	"create patch":            {1, nil},
	"create patch get update": {1, nil},
	"create patch update":     {1, nil},
	"create get update":       {1, []right{rightPatch}},
	"create get":              {3, []right{rightPatch, rightUpdate}},
	"create update":           {3, []right{rightPatch, rightGet}},
	"create":                  {3, []right{rightPatch, rightGet}},
	"patch":                   {0, nil},
	"patch get update":        {0, nil},
	"":                        {0, nil},
}

func TestEventsAreWrittenWithTheRightsThatThereAre(t *testing.T) {
	write := func(t *testing.T, f *fake, objects int, denied ...right) {
		bubble(t, f, nil, func(t *testing.T, b *bench) {
			writeThrice(b)
			if objects > 0 {
				b.wantEnds(ends{written: 3})
			} else {
				b.wantEnds(ends{occurrence.Forbidden: 3})
			}
			f.wantStored(t, objects, int64(3*min(objects, 1)))
			b.wantDenied(denied...)
		})
	}
	for rights, test := range rightsTests {
		t.Run(rights, func(t *testing.T) { write(t, withRights(rights), test.objects, test.denied...) })
	}
	t.Run("of a client that cannot update", func(t *testing.T) {
		f := withRights("create get update")
		f.updates = false
		write(t, f, 3, rightPatch)
	})
	t.Run("after a lost answer", func(t *testing.T) {
		f := withRights("create")
		rights := f.answer
		f.answer = func(ctx context.Context, c *call) error {
			if c.number == 2 {
				return errNoAnswer
			}
			return rights(ctx, c)
		}
		bubble(t, f, nil, func(t *testing.T, b *bench) {
			for range 3 { // the series is no longer pending in the callback
				b.record(0, onSettled(func(occurrence.Settlement) { b.flush() }))
				b.flush()
			}
			b.wantEnds(ends{written: 2, occurrence.Uncertain: 1})
		})
	})
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
	var l logged
	f := &fake{log: l.add}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		f.server.Strips = true
		writeThrice(b)
		f.wantStored(t, 1, 3)
		b.record(1) // gets a random name, since the namespace is known
		b.flush()
		if n := testutil.ToFloat64(b.metrics.unique.WithLabelValues(string(counter.NameUnmarked))); n != 1 {
			t.Errorf("%v random names", n)
		}
		l.wantLines(t, []string{`Admission removes eventd's annotations`, `"namespace"="ns"`})
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

// serviceAccount makes one that may use the verbs on the Events of a namespace.
func serviceAccount(t *testing.T, namespace string, verbs ...string) *rest.Config {
	t.Helper()
	config := testenv.Shared(t).ServiceAccount(t, namespace, "writer")
	if len(verbs) > 0 {
		testenv.Shared(t).Grant(t, namespace, "writer", rbacv1.PolicyRule{
			APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: verbs,
		})
	}
	return config
}

// soonForbidden are options with which a 403 is retried for a moment only.
func soonForbidden() Options {
	o := unlimited()
	o.ForbiddenFor = time.Millisecond
	return o
}

// inBothAPIs runs a test with occurrences of each.
func inBothAPIs(t *testing.T, test func(t *testing.T, api change)) {
	t.Run("core/v1", func(t *testing.T) { test(t, normal) })
	t.Run("events.k8s.io/v1", func(t *testing.T) { test(t, newStyle) })
}

// Every combination of rights that can work does, and each of the others says why not.
func TestRightsOfServiceAccounts(t *testing.T) {
	for verbs, test := range rightsTests {
		t.Run(verbs, func(t *testing.T) {
			t.Parallel()
			namespace := testenv.Shared(t).Namespace(t)
			config := serviceAccount(t, namespace, strings.Fields(verbs)...)
			for name, client := range map[string]Client{"client-go's": clientFor(t, config), "own": connect(t, config)} {
				b := newBench(t, namespace, client, soonForbidden())
				settled := make(chan occurrence.Settlement, 100)
				report := onSettled(func(s occurrence.Settlement) { settled <- s })
				for range 3 {
					b.record(len(name), report) // a series of its own
					b.record(len(name), report, newStyle)
					b.flush()
				}
				b.drain()
				close(settled)
				for end := range settled {
					if want := test.objects > 0; end.Counted() != want || !want && (end.Reason != occurrence.Forbidden || !isStatus(end.Err)) {
						t.Errorf("settled as %+v", end)
					}
				}
			}
			wantStored(t, namespace, 4*test.objects, int64(12*min(test.objects, 1)))
		})
	}
}

// overtakenUpdate deletes an Event between the read and the write.
type overtakenUpdate struct {
	Updater
	delete func(name string) error
}

func (c overtakenUpdate) Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	if err := c.delete(name); err != nil {
		return nil, err
	}
	return c.Updater.Update(ctx, api, namespace, name, event)
}

// An update creates what is not there; it must not create an expired Event with its old count.
func TestUpdateOfAnEventThatHasExpiredBeginsAnew(t *testing.T) {
	inBothAPIs(t, func(t *testing.T, api change) {
		namespace := testenv.Shared(t).Namespace(t)
		events := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).CoreV1().Events(namespace)
		deletions := 0
		c := overtakenUpdate{clientFor(t, serviceAccount(t, namespace, "create", "get", "update")), func(name string) error {
			deletions++
			return events.Delete(t.Context(), name, metav1.DeleteOptions{})
		}}
		b := newBench(t, namespace, c, soonForbidden())
		for range 3 {
			b.recordLater(0, time.Hour, api) // one write has them all
		}
		b.flush()
		b.record(0, api)
		b.flush()
		if totals := b.drain(); totals.Written() != 4 || deletions != 1 {
			t.Errorf("settled as %v, after %d deletions", totals.Outcomes, deletions)
		}
		wantStored(t, namespace, 1, 1)
	})
}

// removeAnnotations has admission remove the annotations of all Events of a namespace. It
// returns when it does.
func removeAnnotations(t *testing.T, namespace string) {
	t.Helper()
	kind := admissionv1.PatchTypeJSONPatch
	testenv.Shared(t).ReviewEvents(t, namespace, func(context.Context) admissionv1.AdmissionResponse {
		return admissionv1.AdmissionResponse{
			Allowed: true, PatchType: &kind, Patch: []byte(`[{"op":"add","path":"/metadata/annotations","value":{}}]`),
		}
	})
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	await.Until(t, "the apiserver to call the webhook", func() bool {
		event := sinktest.Unnamed(namespace, false)
		event.Annotations = map[string]string{"a": "b"}
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		created, err := clients.CoreV1().Events(namespace).Create(t.Context(), event, dryRun)
		return err == nil && len(created.Annotations) == 0
	})
}

func TestCountsAddUpWhereAdmissionRemovesAnnotations(t *testing.T) {
	for name, verbs := range map[string][]string{"by patches": {"create", "patch"}, "by updates": {"create", "get", "update"}} {
		t.Run(name, func(t *testing.T) {
			const sinks, rounds, series = 2, 10, 3
			namespace := testenv.Shared(t).Namespace(t)
			removeAnnotations(t, namespace)
			config := serviceAccount(t, namespace, verbs...)
			for range sinks { // one after the other: the next one cannot recognize the first's Events
				b := newBench(t, namespace, clientFor(t, config), soonForbidden())
				for range rounds {
					b.recordEach(series)
					b.recordEach(series, newStyle)
					b.flush()
				}
				b.drain()
				b.wantEnds(ends{written: 2 * series * rounds})
			}
			wantStored(t, namespace, sinks*2*series, sinks*2*series*rounds)
		})
	}
}
