package intake_test

import (
	"context"
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

// largeMessage is that of an Event whose decoding costs more than a small one may.
var largeMessage = strings.Repeat("x", 100<<10)

// While others decode all that may be decoded of large bodies, a large one waits for a
// second and is answered 429; small ones are not kept waiting by it.
func TestLargeBodiesWaitForEachOtherAndSmallOnesForNeither(t *testing.T) {
	large := classic("large", 1)
	large.Message = largeMessage
	for name, send := range map[string]func(*testing.T, *server) answer{
		"create": func(t *testing.T, s *server) answer { return s.Post(t, large) },
		"update": func(t *testing.T, s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/large", large) },
		"patch":  func(t *testing.T, s *server) answer { return s.Patch(t, "small", `{"message":%q}`, largeMessage) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, written())
				s.Post(t, classic("small", 1)).Want(t, 201, "")
				release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40) // all there is
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				waiting := background(func() answer { return send(t, s) })
				synctest.Wait()
				s.Post(t, classic("other", 1)).Want(t, 201, "")
				s.Patch(t, "other", `{"count":2}`).Want(t, 200, "")
				if took := time.Since(begun); took != 0 {
					t.Errorf("small ones took %s", took)
				}
				a := <-waiting
				a.Want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
				if took := time.Since(begun); took != time.Second || a.Header.Get("Retry-After") != "1" {
					t.Errorf("answered after %s, Retry-After %q", took, a.Header.Get("Retry-After"))
				}
				waiting = background(func() answer { return send(t, s) })
				synctest.Wait()
				release()
				if a := <-waiting; a.Code/100 != 2 {
					t.Errorf("answered %d when there was room: %s", a.Code, a.Body)
				}
			})
		})
	}
}

// However many large bodies wait, small ones find a seat.
func TestLargeBodiesThatWaitTakeNoSeatsOfSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		large := classic("large", 1)
		large.Message = largeMessage
		var waiting []<-chan answer
		for range 100 {
			waiting = append(waiting, background(func() answer { return s.Post(t, large) }))
		}
		synctest.Wait()
		begun := time.Now()
		s.Post(t, classic("small", 1)).Want(t, 201, "")
		s.Patch(t, "small", `{"count":2}`).Want(t, 200, "")
		if took := time.Since(begun); took != 0 {
			t.Errorf("small ones took %s", took)
		}
		release()
		for _, a := range waiting {
			if a := <-a; a.Code != 201 && a.Code != 409 {
				t.Errorf("a large one is answered %d: %s", a.Code, a.Body)
			}
		}
	})
}

// What costs much because of the Event that it changes, and not by its own length,
// does not wait: its seat is one of the small ones.
func TestSmallPatchOfALargeEventDoesNotWaitForLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		large := classic("large", 1)
		large.Message = largeMessage
		s.Post(t, large).Want(t, 201, "")
		release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		begun := time.Now()
		s.Patch(t, "large", `{"count":2}`).Want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		if took := time.Since(begun); took != 0 {
			t.Errorf("answered after %s", took)
		}
	})
}

// The handler of patches cuts off parameters and does not parse them.
func TestMalformedParameterOfATypeDoesNotMakeAPatchCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		s.Post(t, classic("small", 1)).Want(t, 201, "")
		release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for _, contentType := range []string{jsonPatchType, jsonPatchType + ";x", jsonPatchType + "; charset=utf-8"} {
			a := s.Do(t, http.MethodPatch, coreEvents+"/small", `[{"op":"add","path":"/count","value":2}]`, "Content-Type", contentType)
			if a.Code != http.StatusTooManyRequests {
				t.Errorf("%s: answered %d without a reservation of what copies may take", contentType, a.Code)
			}
		}
	})
}

// Nothing is reserved while a body arrives, while another request has the name, nor
// while a write is waited for.
func TestNothingIsReservedWhileARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		large := func(name string) string {
			return strings.Replace(nested("", `,"message":"`+largeMessage+`"`), `"name":"x"`, fmt.Sprintf(`"name":%q`, name), 1)
		}
		waiting := background(func() answer { return s.Do(t, http.MethodPost, coreEvents, large("a")) })
		o := <-s.Pipeline.Recorded
		second := background(func() answer { return s.Do(t, http.MethodPut, coreEvents+"/a", large("a")) })
		third := background(func() answer { return s.Patch(t, "a", `{"message":%q}`, largeMessage) })
		slow, sender := io.Pipe()
		fourth := background(func() answer {
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, nil)
			req.Body = slow
			return s.Send(req)
		})
		synctest.Wait()
		release, err := s.Intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatalf("something is reserved: %v", err)
		}
		release()
		o.Settled(stored(occurrence.Created, 1))
		(<-waiting).Want(t, 201, "")
		_ = sender.CloseWithError(io.ErrUnexpectedEOF)
		<-fourth
		for range 2 {
			synctest.Wait()
			select {
			case o := <-s.Pipeline.Recorded:
				o.Settled(stored(occurrence.Merged, 2))
			default: // it changes nothing
			}
		}
		<-second
		<-third
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
	for _, cost := range []int64{1 << 40, intake.SmallCost} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 16 { // of small ones: nearly all there is
			if _, err := s.Intake.ReserveDecoding(t.Context(), cost); err != nil {
				t.Fatalf("something is still reserved: %v", err)
			}
			if cost > intake.SmallCost {
				break
			}
		}
		if _, err := s.Intake.ReserveDecoding(ctx, cost); err == nil {
			t.Error("there is more than there should be")
		}
	}
}

// A patch makes nothing that could not have been posted, however many there are.
func TestPatchesDoNotMakeAnEventLargerThanOneThatIsPosted(t *testing.T) {
	s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxBodyBytes = 8 << 10 })
	for name, patch := range map[string]func(i int) string{
		"large": func(i int) string {
			return fmt.Sprintf(`{"metadata":{"annotations":{"%d":%q}}}`, i, strings.Repeat("x", 1000))
		},
		"many":      func(i int) string { return fmt.Sprintf(`{"metadata":{"labels":{"a%d":""}}}`, i) },
		"finalized": func(i int) string { return fmt.Sprintf(`{"metadata":{"finalizers":["example.com/%d"]}}`, i) },
	} {
		s.Post(t, classic(name, 1)).Want(t, 201, "")
		refused := false
		last := 0
		for i := range 100 {
			last = i
			a := s.Patch(t, name, "%s", patch(i))
			if refused = a.Code != 200; refused {
				a.Want(t, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge)
				break
			}
		}
		if !refused || name == "large" && last > 8 {
			t.Errorf("%s: %d patches were taken", name, last)
		}
		s.Patch(t, name, `{"count":2}`).Want(t, 200, "")
	}
}

// The memory of a view is counted, not the length of what it was sent as.
func TestViewsAreCountedByWhatTheyTake(t *testing.T) {
	s := serve(t, written())
	event := classic("a", 1)
	for i := range 60 {
		event.OwnerReferences = append(event.OwnerReferences, metav1.OwnerReference{APIVersion: "v", Kind: "k", Name: "n", UID: "u"})
		event.OwnerReferences[i].Name += fmt.Sprint(i)
	}
	s.Post(t, event).Want(t, 201, "")
	if got, want := s.Intake.ViewBytes("ns", "a"), eventsize.Of(event)+eventsize.Of(event)*9/10; got < want || want < 20_000 {
		t.Errorf("counted as %d bytes, at least %d are taken", got, want)
	}
}
