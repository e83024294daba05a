package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/test/sinktest"
)

// fake is an apiserver in this process, for the sink of one bubble.
type fake struct {
	answer  answer        // decides about each request, nil accepts all
	takes   time.Duration // of each request, before its answer
	updates bool          // its client is an Updater
	log     func(line string)
	// released is closed at the end of the bubble, or by release.
	released chan struct{}
	release  func()

	mu     sync.Mutex
	began  time.Time
	server *sinktest.Server
	writes []time.Duration // when creates and patches were sent
	verbs  map[apiclient.Verb]int
	loads  map[string]*load // by namespace; "" is the sum
	open   map[string]int   // requests in flight, by name of their Event
	twice  []string         // names with two requests at once
}

// load is the number of requests: all, those in flight, and the most in flight at once.
type load struct{ sent, inFlight, most int }

// call is a request.
type call struct {
	verb            apiclient.Verb
	namespace, name string
	event           *corev1.Event // of a create
	object          string        // that the Event is about, of a create
	patch           string        // or the update
	number          int           // of the request, from 1 on
	since           time.Duration // the beginning of the bubble
}

// answer returns the error of a request, nil if it is to be executed.
type answer func(ctx context.Context, c *call) error

func (f *fake) start() {
	f.began, f.server, f.released = time.Now(), sinktest.NewServer(), make(chan struct{})
	f.release = sync.OnceFunc(func() { close(f.released) })
	f.writes, f.verbs, f.loads, f.open = nil, map[apiclient.Verb]int{}, map[string]*load{"": {}}, map[string]int{}
}

func (f *fake) client() Client {
	if f.updates {
		return updater{f}
	}
	return f
}

func (f *fake) do(ctx context.Context, c *call, execute func() (*corev1.Event, error)) (*corev1.Event, error) {
	f.begin(c)
	defer f.end(c)
	time.Sleep(f.takes)
	if f.answer != nil {
		if err := f.answer(ctx, c); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return execute()
}

func (f *fake) begin(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.since = time.Since(f.began)
	if !c.verb.IsRead() {
		f.writes = append(f.writes, c.since)
	}
	f.verbs[c.verb]++
	if f.loads[c.namespace] == nil {
		f.loads[c.namespace] = &load{}
	}
	for _, l := range []*load{f.loads[""], f.loads[c.namespace]} {
		l.sent++
		l.inFlight++
		l.most = max(l.most, l.inFlight)
	}
	c.number = f.loads[""].sent
	if f.open[c.name]++; f.open[c.name] > 1 {
		f.twice = append(f.twice, c.name)
	}
}

func (f *fake) end(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loads[""].inFlight--
	f.loads[c.namespace].inFlight--
	f.open[c.name]--
}

func (f *fake) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	c := &call{
		verb: apiclient.VerbCreate, namespace: event.Namespace, name: event.Name,
		event: event, object: event.InvolvedObject.Name,
	}
	return f.do(ctx, c, func() (*corev1.Event, error) { return f.server.Create(event.Name, event) })
}

func (f *fake) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	c := &call{verb: apiclient.VerbPatch, namespace: namespace, name: name, patch: string(patch)}
	if c.patch == "{}" {
		c.verb = apiclient.VerbRead
	}
	return f.do(ctx, c, func() (*corev1.Event, error) { return f.server.Patch(name, patch) })
}

// updater is a client of the fake that is an Updater. The Events that it reads have a field
// of a later release, which an update must keep.
type updater struct{ *fake }

const laterField = `"later":{"x":12345678901234567890}`

func (u updater) Get(ctx context.Context, _ occurrence.API, namespace, name string) ([]byte, error) {
	c := &call{verb: apiclient.VerbGet, namespace: namespace, name: name}
	event, err := u.do(ctx, c, func() (*corev1.Event, error) { return u.server.Get(name) })
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(event)
	return append(out[:len(out)-1], ","+laterField+"}"...), err
}

func (u updater) Update(ctx context.Context, _ occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	c := &call{verb: apiclient.VerbUpdate, namespace: namespace, name: name, patch: string(event)}
	return u.do(ctx, c, func() (*corev1.Event, error) {
		var e corev1.Event
		switch err := json.Unmarshal(event, &e); {
		case err != nil:
			return nil, err
		case !strings.Contains(c.patch, laterField):
			return nil, apierrors.NewBadRequest("the field of a later release is lost")
		case u.server.Objects[name] != nil && u.server.Objects[name].UID != e.UID:
			return nil, apierrors.NewConflict(sinktest.EventsResource, name, errors.New("another UID"))
		}
		return u.server.Patch(name, event)
	})
}

// load returns that of a namespace, or of all if it is "".
func (f *fake) load(namespace string) load {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.loads[namespace]; l != nil {
		return *l
	}
	return load{}
}

// sent returns the number of requests.
func (f *fake) sent() int { return f.load("").sent }

// wantStored compares the number of Events, and the sum of their counts.
func (f *fake) wantStored(t *testing.T, objects int, count int64) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, sum := len(f.server.Objects), f.server.Counted(); n != objects || sum != count {
		t.Errorf("%d Events with a count of %d are stored, want %d with %d", n, sum, objects, count)
	}
}

// wantWrites compares the times of all writes within a day, and the sum of all counts.
func (f *fake) wantWrites(t *testing.T, count int64, at ...time.Duration) {
	t.Helper()
	pass(24 * time.Hour)
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.server.Counted(); !slices.Equal(f.writes, at) || got != count {
		t.Errorf("written after %v with a count of %d, want %v with %d", f.writes, got, at, count)
	}
}

// The errors of an apiserver.
var (
	errUnreachable = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errTooMany     = apierrors.NewTooManyRequestsError("later")
	errNoAnswer    = apierrors.NewInternalError(context.DeadlineExceeded)
	errForbidden   = denied("create")
)

// denied is the error of RBAC.
func denied(verb string) error {
	return apierrors.NewForbidden(sinktest.EventsResource, "e",
		fmt.Errorf(`User "eventd" cannot %s resource "events" in API group "" in the namespace "ns"`, verb))
}

func missing(namespace string) error {
	err := apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	err.ErrStatus.Details.Kind = "namespaces"
	return err
}

func hang(ctx context.Context, _ *call) error {
	<-ctx.Done()
	return ctx.Err()
}

// ignoreContext returns when the fake is released.
func (f *fake) ignoreContext(context.Context, *call) error {
	<-f.released
	return nil
}

func fail(err error) answer { return func(context.Context, *call) error { return err } }

// failUntil fails for a time from the beginning of the bubble on.
func failUntil(end time.Duration, err error) answer {
	return func(_ context.Context, c *call) error {
		if c.since < end {
			return err
		}
		return nil
	}
}

// in answers the requests in namespaces with a prefix.
func in(prefix string, a answer) answer {
	return func(ctx context.Context, c *call) error {
		if strings.HasPrefix(c.namespace, prefix) {
			return a(ctx, c)
		}
		return nil
	}
}
