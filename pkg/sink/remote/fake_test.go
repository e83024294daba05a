package remote

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeEventd is a Client that counts each name once, as eventd does.
type fakeEventd struct {
	// before may fail a request before it has an effect, and after loses its answer.
	before, after func(ctx context.Context, n int, events []corev1.Event) error
	// refuse is the answer to an Event, the zero value to accept it.
	refuse func(*corev1.Event) metav1.Status

	mu       sync.Mutex
	requests int
	sizes    []int            // numbers of Events of each request
	apis     []occurrence.API // of each request
	counts   map[string]int64
	events   map[string]*corev1.Event // by name
}

func newFakeEventd() *fakeEventd {
	return &fakeEventd{counts: make(map[string]int64), events: make(map[string]*corev1.Event)}
}

// Post implements Client.
func (f *fakeEventd) Post(ctx context.Context, api occurrence.API, namespace string, body []byte) (*batch.Answer, error) {
	events, err := decodeList(api, body)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.requests++
	n := f.requests
	f.sizes, f.apis = append(f.sizes, len(events)), append(f.apis, api)
	f.mu.Unlock()
	if f.before != nil {
		if err := f.before(ctx, n, events); err != nil {
			return nil, err
		}
	}
	answer := f.handle(namespace, events)
	if f.after != nil {
		if err := f.after(ctx, n, events); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

func (f *fakeEventd) handle(namespace string, events []corev1.Event) *batch.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := &batch.Answer{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: batch.Kind}, Code: 202}
	for i := range events {
		e := &events[i]
		status := metav1.Status{}
		switch {
		case e.Name == "" || e.Namespace != namespace:
			status = apierrors.NewBadRequest(fmt.Sprintf("%q in %q", e.Name, e.Namespace)).ErrStatus
		case f.events[e.Name] != nil:
			status = metav1.Status{Status: metav1.StatusFailure, Code: 409}
		case f.refuse != nil:
			status = f.refuse(e)
		}
		if status.Code != 0 {
			answer.Others = append(answer.Others, batch.Item{Index: i, Status: status})
			continue
		}
		f.events[e.Name] = e
		f.counts[e.InvolvedObject.Name] += total(e)
	}
	return answer
}

func total(e *corev1.Event) int64 {
	if e.EventTime.IsZero() {
		return int64(e.Count)
	}
	if e.Series != nil {
		return int64(e.Series.Count)
	}
	return 1
}

func (f *fakeEventd) counted() (sum int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.counts {
		sum += n
	}
	return sum
}

// made is the number of requests so far.
func (f *fakeEventd) made() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func decodeList(api occurrence.API, body []byte) ([]corev1.Event, error) {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(bytes.TrimPrefix(body, []byte(prefix))); err != nil {
		return nil, err
	}
	if envelope.Kind != "EventList" || envelope.APIVersion != api.GroupVersion().String() {
		return nil, fmt.Errorf("%s of %s", envelope.Kind, envelope.APIVersion)
	}
	if api == occurrence.CoreV1 {
		var list corev1.EventList
		err := list.Unmarshal(envelope.Raw)
		return list.Items, err
	}
	var list eventsv1.EventList
	err := list.Unmarshal(envelope.Raw)
	var events []corev1.Event
	for i := range list.Items {
		events = append(events, *identity.ToCoreV1(&list.Items[i]))
	}
	return events, err
}

// subject is a sink with its ledger in front of a fake.
type subject struct {
	*Sink
	ledger *ledger.Ledger
}

func newSubject(t *testing.T, client Client, set ...func(*Options)) *subject {
	t.Helper()
	o := DefaultOptions()
	for _, f := range set {
		f(&o)
	}
	l := ledger.New()
	s, err := New(t.Context(), client, l, o)
	if err != nil {
		t.Fatal(err)
	}
	return &subject{s, l}
}

// record records that something happened to an object.
func (s *subject) record(namespace, object string, change ...func(*occurrence.Occurrence)) {
	now := time.Now()
	o := &occurrence.Occurrence{Weight: 1, Recorded: now, Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: object},
		Reason:         "Tested", Message: "it was tested", Type: corev1.EventTypeNormal,
		FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
	}}
	for _, f := range change {
		f(o)
	}
	s.ledger.Record(o)
	s.Add(o)
}

func warning(o *occurrence.Occurrence) { o.Event.Type = corev1.EventTypeWarning }

func newStyle(o *occurrence.Occurrence) {
	e := o.Event
	o.API, e.EventTime = occurrence.EventsV1, metav1.NewMicroTime(o.Recorded)
	e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.Time{}, metav1.Time{}, 0
	e.Action, e.ReportingController, e.ReportingInstance = "Testing", "example.com/tester", "tester-1"
}

// close closes the sink. It fails if anything is pending then, or if something else is said to have been left.
func (s *subject) close(t *testing.T, ctx context.Context) sink.Pending {
	t.Helper()
	left := s.Close(ctx)
	totals := s.balanced(t)
	if lost := totals.Dropped[occurrence.Shutdown] + totals.Outcomes[occurrence.Uncertain]; totals.Pending() != 0 || left.Occurrences > lost {
		t.Errorf("%+v were left, %d are pending, %d settled as lost", left, totals.Pending(), lost)
	}
	return left
}

// balanced fails if an occurrence is neither settled nor pending, or if the queues have something else than what is
// pending.
func (s *subject) balanced(t *testing.T) ledger.Totals {
	t.Helper()
	synctest.Wait()
	totals, pending := s.ledger.Totals(), s.Pending()
	if totals.Pending() != pending.Occurrences {
		t.Errorf("recorded %d, settled %v, pending %+v", totals.Recorded, totals.Outcomes, pending)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, q := range s.runnable {
		if slices.Contains(s.runnable[:n], q) {
			t.Errorf("the queue of %v would have two requests", q.target)
		}
	}
	items, bytes := 0, int64(0)
	for to, q := range s.queues {
		all := append(slices.Clone(q.forming), q.retrying...)
		if q.call != nil {
			all = append(all, q.call.items...)
		}
		own := int64(0)
		for _, i := range all {
			own += i.bytes
		}
		if own != q.bytes || len(all) == 0 {
			t.Errorf("the queue of %v has %d items of %d bytes, and counts %d bytes", to, len(all), own, q.bytes)
		}
		for _, i := range q.waiting {
			if !slices.Contains(q.forming, i) {
				t.Errorf("the queue of %v would merge into an item that it does not have", to)
			}
		}
		items, bytes = items+len(all), bytes+own
	}
	if items != s.items || bytes != s.bytes {
		t.Errorf("%d items of %d bytes are pending, and %d of %d counted", items, bytes, s.items, s.bytes)
	}
	return totals
}

// call is the request of a namespace that is in flight, nil if there is none.
func (s *subject) call(namespace string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[target{occurrence.CoreV1, namespace}]; q != nil {
		return q.call
	}
	return nil
}

// want compares outcomes of the ledger; those that are not named are 0.
func want(t *testing.T, totals ledger.Totals, outcomes map[occurrence.Outcome]int64) {
	t.Helper()
	for outcome, n := range totals.Outcomes {
		if n != outcomes[outcome] {
			t.Errorf("%s: %d, want %d; dropped %v", outcome, n, outcomes[outcome], totals.Dropped)
		}
	}
}

func status(code int32) metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: code}
}

func statusError(code int32, retryAfter int32) error {
	s := status(code)
	s.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
	return &apierrors.StatusError{ErrStatus: s}
}

// sometimes is true for a part of the calls.
func sometimes(part float64) bool { return rand.Float64() < part }
