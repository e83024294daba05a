package intake_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// holding is a pipeline that is blocked by each Event of a user until it is released.
type holding struct {
	release chan struct{}
	// given, if not nil, is called with the number of Events of other users so far.
	given func(int)

	mu           sync.Mutex
	held, others int // Events so far
}

func (h *holding) set(o *intake.Options, s *intake.ServerOptions) {
	s.Authenticator = byToken
	o.Record = func(o *occurrence.Occurrence) {
		held := o.User == "holder"
		h.mu.Lock()
		if held {
			h.held++
		} else {
			h.others++
		}
		n := h.others
		h.mu.Unlock()
		if held {
			<-h.release
		} else if h.given != nil {
			h.given(n)
		}
		o.Settled(stored(occurrence.Created, 1))
	}
}

func (h *holding) counts() (held, others int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held, h.others
}

// hold sends more batches of that user than there are seats, of one Event each.
func (s *server) hold(t *testing.T) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range 4*runtime.GOMAXPROCS(0) + 8 {
		all.Go(func() {
			event := classic(fmt.Sprint("held-", i), 1)
			s.Do(t, http.MethodPost, coreBatch, listOf("v1", string(mustJSON(t, event))), "Authorization", "Bearer holder")
		})
	}
	return &all
}

// Batches have the seats of large bodies. However many of them are recorded, an Event alone has a seat at once.
func TestBatchesTakeNoSeatOfSingleEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{release: make(chan struct{})}
		s := serve(t, written(), h.set)
		all := s.hold(t)
		synctest.Wait()
		single := background(func() answer { return s.Post(t, classic("single", 1)) })
		synctest.Wait()
		equal(t, "answered", len(single), 1)
		close(h.release)
		all.Wait()
		(<-single).Want(t, 201, "")
	})
}

// A batch has its seat for 64 Events. Then it waits its turn, and no longer than its request may take.
func TestBatchWaitsItsTurnWithinItself(t *testing.T) {
	const items, part = 130, 64
	for name, test := range map[string]struct {
		held time.Duration // how long the others hold all seats, 0 if that is until the batch is answered
		last int32         // code of the Events after the first part
		took time.Duration
	}{
		"its turn comes": {time.Second, 201, time.Second},
		"it comes late":  {0, 504, time.Minute - 100*time.Millisecond},
	} {
		bubble(t, name, func(t *testing.T) {
			h := &holding{release: make(chan struct{})}
			s := serve(t, written(), h.set)
			recorded := make(chan struct{})
			h.given = func(n int) {
				if n == part {
					recorded <- struct{}{}
					recorded <- struct{}{}
				}
			}
			begun := time.Now()
			answered := background(func() answer {
				return s.Do(t, http.MethodPost, coreBatch, manyEvents(items), "Authorization", "Bearer a")
			})
			<-recorded
			all := s.hold(t) // they take all seats but that of the batch, and wait for that
			synctest.Wait()
			<-recorded
			synctest.Wait()
			held, others := h.counts()
			equal(t, "recorded of the batch", others, part)
			if held == 0 {
				t.Error("no other one has a seat")
			}
			if test.held > 0 {
				time.AfterFunc(test.held, func() { close(h.release) })
			}
			got := codes(statuses(t, <-answered, items))
			equal(t, "took", time.Since(begun), test.took)
			if test.held == 0 {
				close(h.release)
			}
			for i, code := range got {
				if want := map[bool]int32{true: 201, false: test.last}[i < part]; code != want {
					t.Fatalf("Event %d is answered %d, not %d", i, code, want)
				}
			}
			all.Wait()
		})
	}
}

// However a batch ends, its Events are no longer in flight.
func TestEventsOfABatchThatHasEndedAreNotInFlight(t *testing.T) {
	const several = 10 // with more Events than one tenant may have in flight
	refused := listOf("v1", strings.Repeat("{},", batch.MaxItems-1)+"{}")
	doubtful := authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "patch" {
			return authorizer.DecisionNoOpinion, "", fmt.Errorf("no answer")
		}
		return authorizer.DecisionAllow, "", nil
	})
	waits := strings.Replace(refused, "{}", string(mustJSON(t, classic("a", 1))), 1)
	for name, test := range map[string]struct {
		body     string
		pipeline func() *fakePipeline
		settings []setting
		code     int
	}{
		"all are refused":        {body: refused, pipeline: written, code: 200},
		"one is written":         {body: waits, pipeline: written, code: 200},
		"the rights are unknown": {body: refused, pipeline: written, settings: []setting{doubtful}, code: 503},
		"it takes too long":      {body: waits, pipeline: kept, code: 200},
	} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, test.pipeline(), test.settings...)
			for i := range several {
				if a := s.Do(t, http.MethodPost, coreBatch, test.body); a.Code != test.code {
					t.Fatalf("batch %d is answered %d: %.500s", i, a.Code, a.Body)
				}
			}
		})
	}
}

// A batch is answered shortly before its deadline. Events whose outcome is known have their answer, though the batch
// waits for another one.
func TestBatchIsAnsweredBeforeItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 20
		p, ok := written(), written().Settle
		p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
			if o.Client == "slow" {
				return occurrence.Settlement{}, false
			}
			return ok(o)
		}
		s := serve(t, p)
		list := manyEvents(items)
		list.Items[1].Name = "slow"
		begun := time.Now()
		for i, status := range s.batch(t, coreBatch, list, items) {
			want := metav1.Status{Status: metav1.StatusSuccess, Code: 201}
			if i == 1 {
				want = metav1.Status{Status: metav1.StatusFailure, Code: 504, Reason: metav1.StatusReasonTimeout}
			}
			status.Message, status.Details = "", nil
			equal(t, fmt.Sprint("Event ", i), status, want)
		}
		equal(t, "took", time.Since(begun), time.Minute-100*time.Millisecond)
	})
}

// What becomes of the Events of a batch is answered as if each were alone.
func TestOutcomesInABatchAreAnsweredAsAlone(t *testing.T) {
	for name, s := range map[string]occurrence.Settlement{
		"created":   stored(occurrence.Created, 5),
		"merged":    stored(occurrence.Merged, 5),
		"replayed":  stored(occurrence.Replayed, 5),
		"dropped":   dropped(occurrence.QueueFull, nil),
		"uncertain": uncertain,
	} {
		t.Run(name, func(t *testing.T) {
			a := serve(t, settled(s)).Post(t, classic("a", 1))
			got := serve(t, settled(s)).batch(t, coreBatch, listOf("v1", string(mustJSON(t, classic("a", 1)))), 1)[0]
			equal(t, "code", int(got.Code), a.Code)
			if a.Code >= 400 {
				want := a.Status(t)
				want.TypeMeta = metav1.TypeMeta{}
				equal(t, "status", got, want)
			}
		})
	}
}

// An Event of a batch is decoded within the budget of all small bodies: it waits for it as one alone.
func TestEventsOfABatchAreDecodedWithinTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		reserve := func(size int64) func() {
			release, err := s.Intake.ReserveDecoding(t.Context(), size)
			if err != nil {
				return nil
			}
			return release
		}
		little := reserve(512) // bytes: less than any Event takes
		var rest []func()
		for size := int64(intake.SmallCost); size > 0; {
			if release := reserve(size); release != nil {
				rest = append(rest, release)
			} else {
				size /= 2
			}
		}
		send := func() int32 {
			return s.batch(t, coreBatch, listOf("v1", string(mustJSON(t, classic("a", 1)))), 1)[0].Code
		}
		begun := time.Now()
		equal(t, "alone", s.Post(t, classic("a", 1)).Code, 429)
		took := time.Since(begun)
		equal(t, "in a batch", send(), 429)
		equal(t, "took", time.Since(begun), 2*took)
		little()
		equal(t, "with little", send(), 429)
		s.Pipeline.WantRecorded(t, 0)
		for _, release := range rest {
			release()
		}
		equal(t, "with enough", send(), 201)
	})
}
