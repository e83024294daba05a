package ha

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/stored"
)

// reports are those of one recorder: what it has recorded, and what client-go has
// sent of that. Each report has the total of a series, and so includes those before.
type reports struct {
	source string

	mu        sync.Mutex
	told      counts    // recorded
	done      counts    // the highest totals that client-go has finished
	rejected  int       // reports that it dropped because of the answer
	outrun    int       // raises that arrived after the first POST, though sent before its answer
	sending   int       // requests in flight
	lastEnded time.Time // of the requests
	closed    bool      // no more requests are made
}

func newReports(source string) *reports {
	return &reports{source: source, told: counts{}, done: counts{}, lastEnded: time.Now()}
}

// request is one of a recorder, with the total of a series.
type request struct {
	of    series
	total int64
	patch bool
	// raise is a new-style one that is not the first of its series. client-go posts it
	// when there is nothing to patch, and if there is something after all, it patches
	// again ten seconds later.
	raise bool
}

// isLast reports whether client-go has finished a report after such an answer. It
// retries only without an answer, and posts what did not exist to be patched.
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

// record adds an occurrence.
func (a *reports) record(of series) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[of]++
}

// send makes a request and adds its outcome.
func send[E any](a *reports, r request, do func() (E, error)) (answered E, err error) {
	if !a.begin() {
		// client-go does not retry after this error.
		return answered, &rest.RequestConstructionError{Err: errors.New("the load has ended")}
	}
	answered, err = do()
	a.note(r, err)
	return answered, err
}

func (a *reports) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.sending++
	return true
}

func (a *reports) note(r request, err error) {
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

// isSent reports whether client-go has finished all.
func (a *reports) isSent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unsent() == 0
}

// unsent is how many occurrences client-go has not finished. The caller holds mu.
func (a *reports) unsent() (n int64) {
	for of, told := range a.told {
		n += max(0, told-a.done[of])
	}
	return n
}

// isQuiet reports whether no request has been in flight for some time.
func (a *reports) isQuiet(long time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sending == 0 && time.Since(a.lastEnded) >= long
}

// close refuses further requests, and reports whether all have ended.
func (a *reports) close() (ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	return a.sending == 0
}

// recorded compares the counts of a recorder's Events with what it has recorded.
type recorded struct {
	told int64
	stored.Difference
	givenUp          int64 // at the end: a later report includes the earlier ones
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

// compare compares stored Events with the reports.
func (a *reports) compare(t *testing.T, events []corev1.Event) recorded {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	d := stored.Diff(a.told, events, seriesOf)
	if details := stored.Details(a.told, events, seriesOf); details != "" {
		t.Log(details)
	}
	return recorded{a.told.Sum(), d, a.unsent(), a.rejected, a.outrun}
}

// The end of the load and the figures of the recorders need this.
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
		a := newReports("recorder")
		for range test.told {
			a.record(of)
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

// client-go repeats some requests forever, such as those of finishSeries.
func TestRequestsEndWithTheLoad(t *testing.T) {
	a := newReports("recorder")
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
