package out

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // client-go logs requests without an answer
	goleak.VerifyTestMain(testenv.Runner(m))
}

const (
	namespace = metav1.NamespaceDefault
	component = "kubelet" // whose Events the tests write
)

// emptied returns the control plane of the package, in which no Event of these tests is stored. They run one
// after another, and take it down and up.
func emptied(t *testing.T) *testenv.ControlPlane {
	t.Helper()
	cluster := testenv.Shared(t)
	if err := eventsOf(cluster).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return cluster
}

func eventsOf(c *testenv.ControlPlane) typedcorev1.EventInterface {
	return kubernetes.NewForConfigOrDie(c.Config()).CoreV1().Events(namespace)
}

func newEvent(name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "web-" + name, UID: "6f6f2a3e-8f53-4f0b-9b0e-2d3c0f4b8f6e"},
		Reason:         "BackOff",
		Message:        "Back-off restarting failed container app in pod web-" + name,
		Source:         corev1.EventSource{Component: component, Host: "node-17"},
		Type:           corev1.EventTypeWarning,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: 1,
	}
}

// write stores versions of Events: n new ones, by 8 clients at once, each changed so many times.
func write(t *testing.T, events typedcorev1.EventInterface, prefix string, n, changes int) (ids map[string]bool) {
	t.Helper()
	ids = make(map[string]bool)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < n && !t.Failed(); i += 8 {
				stored, err := events.Create(t.Context(), newEvent(fmt.Sprintf("%s-%d", prefix, i)), metav1.CreateOptions{})
				for change := 0; err == nil; change++ {
					mu.Lock()
					ids[idOf(stored)] = true
					mu.Unlock()
					if change == changes {
						break
					}
					stored.Count++
					stored, err = events.Update(t.Context(), stored, metav1.UpdateOptions{})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return ids
}

func idOf(e *corev1.Event) string { return string(e.UID) + "/" + e.ResourceVersion }

// requests are what a client has sent.
type requests struct {
	mu   sync.Mutex
	seen []string
}

// record has the requests of a configuration noted that are answered 200: the query, and the content type of the response.
// Others, such as those that a busy apiserver answers 429, are sent again.
func record(config *rest.Config) *requests {
	r := &requests{}
	config.WrapTransport = transport.Wrappers(config.WrapTransport, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusOK {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.seen = append(r.seen, request.URL.RawQuery+" "+response.Header.Get("Content-Type"))
			}
			return response, err
		})
	})
	return r
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *requests) count(part string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// observe runs an Observer until the test, or what it returns, ends.
func observe(t *testing.T, config *rest.Config, opts observer.Options) (*observer.Observer, func()) {
	t.Helper()
	source, err := observer.NewSource(config)
	if err != nil {
		t.Fatal(err)
	}
	opts.Source = source
	o, err := observer.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = o.Run(ctx) // is nil
	}()
	end := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(end)
	return o, end
}

// collected is what a reader has returned.
type collected struct {
	versions []observer.Version
	ids      map[string]bool
	cursor   observer.Cursor
	gaps     int
	restored int
}

// read reads until a condition holds.
func (c *collected) read(t *testing.T, r *observer.Reader, until func() bool) {
	t.Helper()
	if c.ids == nil {
		c.ids = make(map[string]bool)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	for !until() {
		b, err := r.Next(ctx, 512)
		if err != nil {
			t.Fatalf("after %d versions, cursor %v: %v", len(c.versions), c.cursor, err)
		}
		for _, e := range b.Entries {
			if e.Event.Source.Component != component {
				continue // the apiserver writes Events, too, of IP addresses that it repairs
			}
			if c.ids[e.ID()] {
				t.Errorf("%s is returned twice", e.ID())
			}
			if e.Event.ManagedFields != nil {
				t.Errorf("%s has managedFields", e.ID())
			}
			c.ids[e.ID()] = true
			c.versions = append(c.versions, e.Version)
		}
		if b.Cursor != (observer.Cursor{}) {
			c.cursor = b.Cursor
		}
		if b.Gap {
			c.gaps++
		}
		if b.Restored {
			c.restored++
		}
	}
}

// has reports whether all of some ids were returned.
func (c *collected) has(ids map[string]bool) func() bool {
	return func() bool {
		for id := range ids {
			if !c.ids[id] {
				return false
			}
		}
		return true
	}
}

func (c *collected) begun() bool { return c.cursor != (observer.Cursor{}) }

func wantCount(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}
