package ha

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

const (
	classicSource, newStyleSource = "classic-recorder", "new-style-recorder"
	// recordEvery is slow enough for one recorder's queue to hold what comes
	// while it waits for a failover.
	recordEvery = 50 * time.Millisecond
	// recordedSeries are those that the classic recorder repeats.
	recordedSeries = 10
	// newStyleEvery is of how many times the new-style recorder records once. Every
	// six minutes it writes the series that have ended, one after the other, and
	// reports nothing meanwhile: what that takes has to be little beside what the load
	// waits for at its end.
	newStyleEvery = 5
)

// recorders are unmodified ones of client-go, which correlate by themselves: the
// classic one patches the counts of a few series; the new-style one reports each
// series twice, since it keeps later occurrences to itself.
type recorders struct {
	namespace string
	classic   record.EventRecorder
	newStyle  events.EventRecorder
	shutdown  func()

	classicAccount, newStyleAccount *account
}

func newRecorders(t *testing.T, config *rest.Config, namespace string) *recorders {
	t.Helper()
	r := &recorders{namespace: namespace, classicAccount: newAccount(classicSource), newStyleAccount: newAccount(newStyleSource)}
	// They are limited as clients of controllers are: what the new-style one has to
	// report when it has written the series that have ended comes at once, and without
	// a limit each of it on a connection of its own.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 200, 400
	clients := kubernetes.NewForConfigOrDie(config)
	// Its spam filter and its aggregation are opened, and it does not wait for ten
	// seconds before it tries again.
	classic := record.NewBroadcaster(
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1_000_000, QPS: 1_000_000, MaxEvents: 1_000_000}),
		record.WithSleepDuration(100*time.Millisecond),
	)
	classic.StartRecordingToSink(&classicSink{typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, r.classicAccount})
	newStyle := events.NewBroadcaster(&newStyleSink{events.EventSinkImpl{Interface: clients.EventsV1()}, r.newStyleAccount})
	ctx, cancel := context.WithCancel(t.Context())
	if err := newStyle.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	r.shutdown = sync.OnceFunc(func() {
		classic.Shutdown()
		cancel()
		newStyle.Shutdown()
	})
	t.Cleanup(r.shutdown)
	r.classic = classic.NewRecorder(scheme.Scheme, corev1.EventSource{Component: classicSource})
	r.newStyle = newStyle.NewRecorder(scheme.Scheme, newStyleSource)
	return r
}

// account is what one recorder was told, and how far client-go is with it. Each of
// its reports says the total of a series, and so stands for all before it.
type account struct {
	source string

	mu        sync.Mutex
	told      counts
	done      counts    // the highest totals that client-go is done with
	rejected  int       // reports that it gave up because of the answer
	outrun    int       // raises that were posted while the first POST was under way, and second
	sending   int       // requests
	lastEnded time.Time // of the requests
	closed    bool      // and takes no more of them
}

func newAccount(source string) *account {
	return &account{source: source, told: counts{}, done: counts{}, lastEnded: time.Now()}
}

// request is one of a recorder's, about a series of which there are so many in all.
type request struct {
	of    series
	total int64
	patch bool
	// raise is a new-style one that is not the first of its series. client-go posts it
	// when there is nothing to patch, and if there is something after all, it patches
	// again ten seconds later.
	raise bool
}

// isLast tells whether client-go is done with what it reports after such an answer.
// It does not try again what it has had any answer to, but posts what was not there
// to be patched.
func (r request) isLast(err error) bool {
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		return true
	case !errors.As(err, &status):
		return false // there was none
	case apierrors.IsNotFound(err):
		return !r.patch
	case apierrors.IsAlreadyExists(err):
		return !r.raise
	default:
		return true
	}
}

// tell enters one more occurrence.
func (a *account) tell(of series) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[of]++
}

// send makes a request and enters what became of it.
func send[E any](a *account, r request, do func() (E, error)) (answered E, err error) {
	if !a.begin() {
		// What client-go does not try again.
		return answered, &rest.RequestConstructionError{Err: errors.New("the load has ended")}
	}
	answered, err = do()
	a.note(r, err)
	return answered, err
}

func (a *account) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.sending++
	return true
}

func (a *account) note(r request, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sending--
	a.lastEnded = time.Now()
	if r.raise && apierrors.IsAlreadyExists(err) && a.done[r.of] < r.total {
		a.outrun++
	}
	if !r.isLast(err) {
		return
	}
	a.done[r.of] = max(a.done[r.of], r.total)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		a.rejected++
	}
}

// isSent tells whether client-go is done with all.
func (a *account) isSent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unsent() == 0
}

// unsent is how many occurrences client-go is not done with, for whoever holds mu.
func (a *account) unsent() (n int64) {
	for of, told := range a.told {
		n += max(0, told-a.done[of])
	}
	return n
}

// isQuiet tells whether no request has been under way for some time.
func (a *account) isQuiet(long time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sending == 0 && time.Since(a.lastEnded) >= long
}

// close lets no more requests through, and tells whether all have ended.
func (a *account) close() (ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.sending == 0
}

// recorded is what a recorder's Events count, held against what it was told.
type recorded struct {
	told int64
	stored.Difference
	givenUp          int64 // at the end: what comes later makes good what came before
	rejected, outrun int
}

func (r recorded) String() string {
	s := fmt.Sprintf("%d: -%d +%d", r.told, r.Lost, r.Twice)
	for _, part := range []struct {
		n    int
		what string
	}{
		{r.Duplicates, "duplicate Events"},
		{r.rejected, "rejected"},
		{int(r.givenUp), "given up by client-go"},
		{r.outrun, "outrun by their own first POST"},
	} {
		if part.n > 0 {
			s += fmt.Sprintf(" (%d %s)", part.n, part.what)
		}
	}
	return s
}

// compare holds a recorder's Events against its account.
func (a *account) compare(t *testing.T, events []corev1.Event) recorded {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	d := stored.Diff(a.told, events, seriesOf)
	if d != (stored.Difference{}) {
		t.Log(stored.Details(a.told, events, seriesOf))
	}
	return recorded{a.told.Sum(), d, a.unsent(), a.rejected, a.outrun}
}

// classicSink is client-go's own, with an account.
type classicSink struct {
	typedcorev1.EventSinkImpl
	*account
}

func (s *classicSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return send(s.account, request{of: seriesOf(e), total: int64(e.Count)}, func() (*corev1.Event, error) {
		return s.EventSinkImpl.Create(e)
	})
}

func (s *classicSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return send(s.account, request{of: seriesOf(e), total: int64(e.Count), patch: true}, func() (*corev1.Event, error) {
		return s.EventSinkImpl.Patch(e, data)
	})
}

// newStyleSink is the same of the other API.
type newStyleSink struct {
	events.EventSinkImpl
	*account
}

func newStyleRequest(e *eventsv1.Event) request {
	r := request{of: series{e.Regarding.Name, e.Reason}, total: 1}
	if e.Series != nil {
		r.total, r.raise = int64(e.Series.Count), true
	}
	return r
}

// Create may overtake the first POST of a series: client-go patches before that is
// answered, and posts the whole series when there is nothing to patch.
func (s *newStyleSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return send(s.account, newStyleRequest(e), func() (*eventsv1.Event, error) {
		return s.EventSinkImpl.Create(ctx, e)
	})
}

func (s *newStyleSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	r := newStyleRequest(e)
	r.patch = true
	return send(s.account, r, func() (*eventsv1.Event, error) {
		return s.EventSinkImpl.Patch(ctx, e, data)
	})
}

// goOn records, until it is told to end.
func (r *recorders) goOn() (end func()) {
	done := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() {
		tick := time.NewTicker(recordEvery)
		defer tick.Stop()
		for n := 0; ; n++ {
			r.record(n)
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		working.Wait()
	}
}

func (r *recorders) record(n int) {
	repeated := fmt.Sprint("recorded-", n%recordedSeries)
	r.classicAccount.tell(series{repeated, "Recorded"})
	r.classic.Event(r.pod(repeated), corev1.EventTypeNormal, "Recorded", "it happened again")
	if n%newStyleEvery != 0 {
		return
	}
	twice := fmt.Sprint("new-style-", n/newStyleEvery/2)
	r.newStyleAccount.tell(series{twice, "Recorded"})
	r.newStyle.Eventf(r.pod(twice), nil, corev1.EventTypeNormal, "Recorded", "Recording", "it happened")
}

func (r *recorders) pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, UID: "uid"}}
}

// end returns when client-go is done with all that was recorded, or has given some
// up, which it tells nobody: after a dozen requests without an answer. Then none is
// under way, and none has ended for longer than its longest pause. From then on
// there are no requests.
func (r *recorders) end(t *testing.T) {
	t.Helper()
	const longestPause = 13 * time.Second
	for _, a := range []*account{r.classicAccount, r.newStyleAccount} {
		await.Until(t, "the "+a.source+" has sent all", func() bool { return a.isSent() || a.isQuiet(longestPause) })
		await.Until(t, "the "+a.source+" has sent the last of its repetitions", a.close)
	}
	r.shutdown()
}

// What the load's end waits for, and what the figures of the recorders rest on.
func TestReportsThatClientGoIsNotDoneWithAreSeen(t *testing.T) {
	var (
		of       = series{"a", "Recorded"}
		noAnswer = errors.New("no replica is ready")
		unknown  = apierrors.NewNotFound(corev1.Resource("events"), "a")
		exists   = apierrors.NewAlreadyExists(corev1.Resource("events"), "a")
		timeout  = apierrors.NewTimeoutError("it took too long", 0)
	)
	type sent struct {
		request
		err error
	}
	classic := func(total int64, patch bool, err error) sent { return sent{request{of, total, patch, false}, err} }
	first := func(err error) sent { return sent{request{of, 1, false, false}, err} }
	raise := func(patch bool, err error) sent { return sent{request{of, 2, patch, true}, err} }
	for _, test := range []struct {
		what string
		told int
		sent []sent
		want recorded
	}{
		{"one of two", 2, []sent{classic(1, false, nil)}, recorded{givenUp: 1}},
		{"both", 2, []sent{classic(1, false, nil), classic(2, true, nil)}, recorded{}},
		{"both, and the last one once more", 2, []sent{classic(1, false, nil), classic(2, true, nil), classic(2, true, nil)}, recorded{}},
		{"a former one that is answered later", 3, []sent{classic(2, true, nil), classic(1, false, nil)}, recorded{givenUp: 1}},
		{"no answer to the last one", 2, []sent{classic(1, false, nil), classic(2, true, noAnswer)}, recorded{givenUp: 1}},
		{"one without an answer that the next one makes good", 2, []sent{classic(1, false, noAnswer), classic(2, true, nil)}, recorded{}},
		{"nothing to patch", 2, []sent{classic(1, false, nil), classic(2, true, unknown)}, recorded{givenUp: 1}},
		{"nothing to patch, and posted", 2, []sent{classic(1, false, nil), classic(2, true, unknown), classic(2, false, nil)}, recorded{}},
		{"posted, and there already", 1, []sent{classic(1, false, exists)}, recorded{}},
		{"rejected", 1, []sent{classic(1, false, timeout)}, recorded{rejected: 1}},
		{"posted, and nowhere to post it to", 1, []sent{classic(1, false, unknown)}, recorded{rejected: 1}},
		{"a raise before the first POST", 2, []sent{raise(true, unknown), raise(false, nil), first(exists)}, recorded{}},
		{"a raise while the first POST is under way", 2, []sent{raise(true, unknown), first(nil), raise(false, exists)}, recorded{givenUp: 1, outrun: 1}},
		{"and sent once more", 2, []sent{raise(true, unknown), first(nil), raise(false, exists), raise(true, nil)}, recorded{outrun: 1}},
		{"a series that is finished", 2, []sent{first(nil), raise(true, nil), raise(true, unknown), raise(false, exists)}, recorded{}},
	} {
		a := newAccount("recorder")
		for range test.told {
			a.tell(of)
		}
		for _, s := range test.sent {
			_, _ = send(a, s.request, func() (any, error) { return nil, s.err })
		}
		test.want.told = int64(test.told)
		stored := []corev1.Event{{InvolvedObject: corev1.ObjectReference{Name: of.object}, Reason: of.reason, Count: int32(test.told)}}
		if got := a.compare(t, stored); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.what, got, test.want)
		}
		if sent := test.want.givenUp == 0; a.isSent() != sent {
			t.Errorf("%s: all is sent: %t", test.what, a.isSent())
		}
	}
}

// finishSeries and its like, which client-go does over and over.
func TestRequestsEndWithTheLoad(t *testing.T) {
	a := newAccount("recorder")
	of := series{"a", "Recorded"}
	_, err := send(a, request{of: of, total: 1}, func() (any, error) {
		if a.isQuiet(0) {
			t.Error("it is quiet while a request is under way")
		}
		if a.close() {
			t.Error("all have ended while a request is under way")
		}
		return nil, nil
	})
	if err != nil || !a.close() || !a.isQuiet(0) {
		t.Errorf("one that was under way ended with %v", err)
	}
	_, err = send(a, request{of: of, total: 2}, func() (any, error) {
		t.Error("a request is made after the end")
		return nil, nil
	})
	if _, givenUp := err.(*rest.RequestConstructionError); !givenUp {
		t.Errorf("client-go would try again after %T", err)
	}
}
