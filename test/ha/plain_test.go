package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

const (
	// source is what plain clients are called.
	source = "ha"
	single = "single-"
	// patience is the timeout of a request.
	patience = 5 * time.Second
	// pause is before a retry without a Retry-After.
	pause = 50 * time.Millisecond
)

// rate is so many occurrences per second. The single ones are of series that are reported once.
// Many clients report each of the others, once per second, at most as often as an Event stores
// names: so no retry counts twice, however long its write is deferred.
type rate struct{ all, single int }

// mostAtOnce is how many clients may wait for an answer; more are not started. It is
// above the number that is started while a short lease expires.
func (r rate) mostAtOnce() int { return 5 * r.all }

// series is what an occurrence is of: the involved object and the reason.
type series struct{ object, reason string }

// counts are of occurrences.
type counts = stored.Counts[series]

// post is one occurrence, under a name of its own.
type post struct {
	name  string
	of    series
	began time.Time // with the first request
	acked time.Time // zero if it is not
	code  int       // of the acknowledgement
	tries int       // requests of this client; client-go's own repetitions are not among them
}

// plain are clients that do not correlate: they post single occurrences, and repeat
// each under the same name until it is acknowledged, also when client-go's rest
// client has stopped retrying. Their ledger is exact.
type plain struct {
	namespace string
	client    rest.Interface
	working   sync.WaitGroup
	ctx       context.Context // ends with the test
	stop      func()          // ends goOn

	mu      sync.Mutex
	n       int
	posts   map[string]*post // by what stands for the name in the apiserver
	count   counts
	refused []error
}

func newPlain(t *testing.T, config *rest.Config, namespace string) *plain {
	config = rest.CopyConfig(config)
	config.Timeout = cmp.Or(config.Timeout, patience)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p := &plain{
		namespace: namespace, ctx: ctx, stop: func() {},
		client: kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(),
		posts:  map[string]*post{}, count: counts{},
	}
	t.Cleanup(func() { // what a test that failed has left
		cancel()
		p.stop()
		p.working.Wait()
	})
	return p
}

// begin enters a post into the ledger.
func (p *plain) begin(of series) *post {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	made := &post{name: fmt.Sprintf("%s.%s.%d", of.object, of.reason, p.n), of: of, began: time.Now()}
	p.posts[clientKey(made.name)] = made
	p.count[of]++
	return made
}

// post posts an occurrence until it is acknowledged, refused, or the test ends.
func (p *plain) post(of series) {
	made := p.begin(of)
	event := occurrenceOf(p.namespace, made)
	for {
		var code int
		err := p.client.Post().Namespace(p.namespace).Resource("events").Body(event).Do(p.ctx).StatusCode(&code).Error()
		switch {
		case apierrors.IsAlreadyExists(err):
			p.note(made, http.StatusConflict, nil)
			return
		case err == nil || !isRetryable(err):
			p.note(made, code, err)
			return
		}
		p.note(made, 0, nil)
		if await.Sleep(p.ctx, pause) != nil {
			return
		}
	}
}

// isRetryable reports whether the same request may succeed later. client-go's rest
// client retries less; service.answered has those answers.
func isRetryable(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return true // no answer
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// note enters a request: its acknowledgement if there is a code, or its refusal.
func (p *plain) note(made *post, code int, refused error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	made.tries++
	switch {
	case refused != nil:
		p.refused = append(p.refused, fmt.Errorf("%s: %w", made.name, refused))
	case code != 0:
		made.code, made.acked = code, time.Now()
	}
}

// goOn posts occurrences, each by a client of its own, until end is called, which returns when
// all are acknowledged.
func (p *plain) goOn(r rate) (end func()) {
	slots := make(chan struct{}, r.mostAtOnce())
	n, due, last := 0, 0., time.Now()
	p.stop = await.Every(10*time.Millisecond, func(context.Context) {
		now := time.Now()
		// After a pause, not everything that was due is posted at once.
		due = min(due+now.Sub(last).Seconds()*float64(r.all), float64(r.all)/5)
		for last = now; due >= 1; due-- {
			of := r.nth(n)
			n++
			slots <- struct{}{}
			p.working.Go(func() {
				p.post(of)
				<-slots
			})
		}
	})
	return func() {
		p.stop()
		p.working.Wait()
	}
}

// nth is the series of the n-th occurrence of the load.
func (r rate) nth(n int) series {
	if n*r.single%r.all < r.single {
		return series{fmt.Sprint(single, n), "Tested"}
	}
	hot := n - (n*r.single+r.all-1)/r.all // the number of those before it
	round, i := hot/(r.all-r.single), hot%(r.all-r.single)
	return series{fmt.Sprintf("hot-%d-%d", i, (round+i)/window), "Repeated"} // not all are replaced at once
}

// isSingle reports whether the series is reported once, and so is written at once.
func (s series) isSingle() bool { return strings.HasPrefix(s.object, single) }

// number is how many were posted.
func (p *plain) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}

// acknowledged is how many of them are acknowledged.
func (p *plain) acknowledged() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, made := range p.posts {
		if !made.acked.IsZero() {
			n++
		}
	}
	return n
}

// postAll posts occurrences, many at once, and returns when all are acknowledged.
func (p *plain) postAll(all []series) {
	var clients errgroup.Group
	clients.SetLimit(64)
	for _, of := range all {
		clients.Go(func() error {
			p.post(of)
			return nil
		})
	}
	_ = clients.Wait() // no error
}

// find returns a copy of the post that a key in the annotation stands for.
func (p *plain) find(key string) (post, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if made, ok := p.posts[key]; ok {
		return *made, true
	}
	return post{}, false
}

// ledger returns copies of all posts, by key, and how many there are of each series.
func (p *plain) ledger() (map[string]post, counts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	posts := map[string]post{}
	for key, made := range p.posts {
		posts[key] = *made
	}
	return posts, maps.Clone(p.count)
}

// wantAcknowledged checks that no client was refused, or is still waiting.
func (p *plain) wantAcknowledged(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.refused) > 0 {
		t.Errorf("%d clients were refused, the first: %v", len(p.refused), p.refused[0])
	}
	waiting := 0
	for _, made := range p.posts {
		if made.acked.IsZero() {
			waiting++
		}
	}
	if waiting > len(p.refused) {
		t.Errorf("%d posts are not acknowledged", waiting-len(p.refused))
	}
}

// occurrenceOf is what a client posts that does not correlate by itself.
func occurrenceOf(namespace string, made *post) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: made.name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: made.of.object},
		Reason:         made.of.reason, Message: "it was tested by somebody who says so at some length", Type: corev1.EventTypeNormal, Count: 1,
		FirstTimestamp: metav1.NewTime(made.began), LastTimestamp: metav1.NewTime(made.began),
		Source: corev1.EventSource{Component: source},
	}
}

// storedBy lists the Events of a namespace that one source has reported.
func storedBy(t *testing.T, cluster *testenv.ControlPlane, namespace, source string) []corev1.Event {
	t.Helper()
	return slices.DeleteFunc(stored.List(t, cluster, namespace), func(e corev1.Event) bool {
		return e.Source.Component != source && e.ReportingController != source
	})
}

// wantStored checks that each series of the ledger has one Event, with its count and
// with the names that were counted last.
func (p *plain) wantStored(t *testing.T, cluster *testenv.ControlPlane) {
	t.Helper()
	p.wantAcknowledged(t)
	_, want := p.ledger()
	events := storedBy(t, cluster, p.namespace, source)
	stored.Want(t, want, events, seriesOf)
	p.wantNames(t, events)
}

// wantNames checks that Events have the posted names of their series, each name with
// the one occurrence that it stands for. A name that was counted twice cannot hide
// another one that was lost.
func (p *plain) wantNames(t *testing.T, events []corev1.Event) {
	t.Helper()
	posts, count := p.ledger()
	for i := range events {
		e := &events[i]
		s, err := versionOf(e)
		if err != nil {
			t.Errorf("%s: %v", e.Name, err)
		}
		for key, n := range s.clients {
			if made := posts[key]; made.of != seriesOf(e) || n != 1 {
				t.Errorf("%s names %s with %d, and there is %+v", e.Name, key, n, made)
			}
		}
		if want := min(count[seriesOf(e)], window); int64(len(s.clients)) != want {
			t.Errorf("%s names %d clients, want %d", e.Name, len(s.clients), want)
		}
	}
}
