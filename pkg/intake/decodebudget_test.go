package intake_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// largeBytes is the length of a message whose decoding costs more than a small Event may.
const largeBytes = 100 << 10

// reserveAll reserves all that may be decoded of large bodies.
func (s *server) reserveAll(t *testing.T) (release func()) {
	t.Helper()
	release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40)
	if err != nil {
		t.Fatalf("something is reserved: %v", err)
	}
	return release
}

// While others decode all that may be decoded of large bodies, large ones wait for a
// second and are answered 429. However many wait, small ones find a seat at once.
func TestLargeBodiesWaitForEachOtherAndSmallOnesForNeither(t *testing.T) {
	large := withMessage("large", largeBytes)
	for name, send := range map[string]func(*testing.T, *server) answer{
		"create": func(t *testing.T, s *server) answer { return s.Post(t, large) },
		"update": func(t *testing.T, s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/large", large) },
		"patch":  func(t *testing.T, s *server) answer { return s.Patch(t, "small", `{"message":%q}`, large.Message) },
	} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, written(), inFlight(10_000))
			s.Post(t, classic("small", 1)).Want(t, 201, "")
			release := s.reserveAll(t)
			begun := time.Now()
			large := func() answer { return send(t, s) }
			first := background(large)
			synctest.Wait()
			var others []<-chan answer
			for range 30 {
				others = append(others, background(large))
			}
			synctest.Wait()
			s.Post(t, classic("other", 1)).Want(t, 201, "")
			s.Patch(t, "other", `{"count":2}`).Want(t, 200, "")
			equal(t, "small ones took", time.Since(begun), 0)
			a := <-first
			a.Want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			equal(t, "the first large one waits", time.Since(begun), time.Second)
			equal(t, "Retry-After", a.Header.Get("Retry-After"), "1")
			release()
			codes := map[int]int{}
			for _, a := range others {
				codes[(<-a).Code]++
			}
			if codes[200]+codes[201] == 0 || codes[503]+codes[504] > 0 {
				t.Errorf("when there was room, large ones are answered %v", codes)
			}
		})
	}
}

// What costs much because of the Event that it changes, and not by its own length, does not
// wait: its seat is one of the small ones. Copies are reserved for even if a parameter of the
// type is malformed, since the handler of patches cuts off parameters and does not parse them.
func TestSmallPatchThatCostsMuchIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		messageBytes int // of what is patched
		contentType  string
		patch        string
		waits        time.Duration
	}{
		"of a large Event":             {largeBytes, strategicType, `{"count":2}`, 0},
		"with copies":                  {1, jsonPatchType, `[{"op":"add","path":"/count","value":2}]`, time.Second},
		"with copies, malformed type":  {1, jsonPatchType + ";x", `[{"op":"add","path":"/count","value":2}]`, time.Second},
		"with copies, and a parameter": {1, jsonPatchType + "; charset=utf-8", `[{"op":"add","path":"/count","value":2}]`, time.Second},
	} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, written())
			s.Post(t, withMessage("a", test.messageBytes)).Want(t, 201, "")
			defer s.reserveAll(t)()
			begun := time.Now()
			s.Do(t, http.MethodPatch, coreEvents+"/a", test.patch, "Content-Type", test.contentType).
				Want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
			equal(t, "waited", time.Since(begun), test.waits)
		})
	}
}

// Nothing is reserved while a body arrives, while another request has the name, nor
// while a write is waited for.
func TestNothingIsReservedWhileARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		large := withMessage("a", largeBytes)
		written, o := s.pending(func() answer { return s.Post(t, large) })
		slow, sender := io.Pipe()
		others := []<-chan answer{
			background(func() answer { return s.Do(t, http.MethodPut, coreEvents+"/a", large) }),
			background(func() answer { return s.Patch(t, "a", `{"message":"%sx"}`, large.Message) }),
		}
		arriving := background(func() answer {
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, nil)
			req.Body = slow
			return s.Send(req)
		})
		synctest.Wait()
		s.reserveAll(t)()
		_ = sender.CloseWithError(io.ErrUnexpectedEOF)
		<-arriving
		o.Settled(stored(occurrence.Created, 1))
		(<-written).Want(t, 201, "")
		s.settleAll(t, others)
	})
}

// Whatever ends a request, what it has reserved is given back.
func TestReservationEndsWithTheRequest(t *testing.T) {
	s := serve(t, written())
	for _, body := range []string{`{`, `{"kind":"Pod","apiVersion":"v1"}`, nested("", ""), nested(`,"uid":"u"`, ""), nested(`,"resourceVersion":"7"`, "")} {
		for range 3 {
			s.Do(t, http.MethodPost, coreEvents, body)
			s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", body)
			s.Do(t, http.MethodPut, coreEvents+"/x", body)
			s.Patch(t, "x", "%s", body)
		}
	}
	s.Post(t, withMessage("y", largeBytes)).Want(t, 201, "")
	s.Patch(t, "y", `{"count":2}`).Want(t, 200, "") // it reserves without waiting
	s.reserveAll(t)
	s.Do(t, http.MethodPut, coreEvents+"/y", classic("y", 3)).Want(t, 200, "")
	for range 2 { // all there is of small ones
		if _, err := s.Intake.ReserveDecoding(t.Context(), intake.SmallCost); err != nil {
			t.Fatalf("something is still reserved: %v", err)
		}
	}
}

// A patch makes nothing that could not have been posted, however many there are.
func TestPatchesDoNotMakeAnEventLargerThanOneThatIsPosted(t *testing.T) {
	s := serve(t, written(), withOptions(func(o *intake.Options) { o.MaxBodyBytes = 8 << 10 }))
	for name, test := range map[string]struct {
		patch string
		most  int // patches that are taken
	}{
		"large":     {`{"metadata":{"annotations":{"%d":"` + strings.Repeat("x", 1000) + `"}}}`, 8},
		"many":      {`{"metadata":{"labels":{"a%d":""}}}`, 99},
		"finalized": {`{"metadata":{"finalizers":["example.com/%d"]}}`, 99},
	} {
		s.Post(t, classic(name, 1)).Want(t, 201, "")
		taken := 0
		a := s.Patch(t, name, test.patch, taken)
		for ; a.Code == 200 && taken < 100; taken++ {
			a = s.Patch(t, name, test.patch, taken+1)
		}
		if taken > test.most {
			t.Errorf("%s: %d patches were taken", name, taken)
		}
		a.Want(t, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge)
		s.Patch(t, name, `{"count":2}`).Want(t, 200, "")
	}
	s.Post(t, classic("exact", 1)).Want(t, 201, "")
	size := s.Patch(t, "exact", `{"message":%q}`, long(7<<10)).Event(t).Size()
	s.Patch(t, "exact", `{"message":%q}`, long(7<<10+8<<10-size)).Want(t, 200, "")
	s.Patch(t, "exact", `{"message":%q}`, long(7<<10+8<<10-size+1)).Want(t, 413, metav1.StatusReasonRequestEntityTooLarge)
}

// The memory of a view is counted, not the length of what it was sent as.
func TestViewsAreCountedByWhatTheyTake(t *testing.T) {
	s := serve(t, written())
	event := classic("a", 1)
	for i := range 60 {
		owner := metav1.OwnerReference{APIVersion: "v", Kind: "k", Name: fmt.Sprint("n", i), UID: "u"}
		event.OwnerReferences = append(event.OwnerReferences, owner)
	}
	s.Post(t, event).Want(t, 201, "")
	if got, want := s.Intake.ViewBytes("ns", "a"), eventsize.Of(event)+eventsize.Of(event)*9/10; got < want || want < 20_000 {
		t.Errorf("counted as %d bytes, at least %d are taken", got, want)
	}
}
