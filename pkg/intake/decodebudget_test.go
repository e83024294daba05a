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
		"create": func(t *testing.T, s *server) answer { return s.post(t, large) },
		"update": func(t *testing.T, s *server) answer { return s.do(t, http.MethodPut, coreEvents+"/large", large) },
		"patch":  func(t *testing.T, s *server) answer { return s.patch(t, "small", `{"message":%q}`, largeMessage) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, written())
				s.post(t, classic("small", 1)).want(t, 201, "")
				release, err := s.intake.ReserveDecoding(t.Context(), 1<<40) // all there is
				if err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				waiting := background(func() answer { return send(t, s) })
				synctest.Wait()
				s.post(t, classic("other", 1)).want(t, 201, "")
				s.patch(t, "other", `{"count":2}`).want(t, 200, "")
				if took := time.Since(begun); took != 0 {
					t.Errorf("small ones took %s", took)
				}
				a := <-waiting
				a.want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
				if took := time.Since(begun); took != time.Second || a.header.Get("Retry-After") != "1" {
					t.Errorf("answered after %s, Retry-After %q", took, a.header.Get("Retry-After"))
				}
				waiting = background(func() answer { return send(t, s) })
				synctest.Wait()
				release()
				if a := <-waiting; a.code/100 != 2 {
					t.Errorf("answered %d when there was room: %s", a.code, a.body)
				}
			})
		})
	}
}

// However many large bodies wait, small ones find a seat.
func TestLargeBodiesThatWaitTakeNoSeatsOfSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		release, err := s.intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		large := classic("large", 1)
		large.Message = largeMessage
		var waiting []<-chan answer
		for range 100 {
			waiting = append(waiting, background(func() answer { return s.post(t, large) }))
		}
		synctest.Wait()
		begun := time.Now()
		s.post(t, classic("small", 1)).want(t, 201, "")
		s.patch(t, "small", `{"count":2}`).want(t, 200, "")
		if took := time.Since(begun); took != 0 {
			t.Errorf("small ones took %s", took)
		}
		release()
		for _, a := range waiting {
			if a := <-a; a.code != 201 && a.code != 409 {
				t.Errorf("a large one is answered %d: %s", a.code, a.body)
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
		s.post(t, large).want(t, 201, "")
		release, err := s.intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		begun := time.Now()
		s.patch(t, "large", `{"count":2}`).want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		if took := time.Since(begun); took != 0 {
			t.Errorf("answered after %s", took)
		}
	})
}

// The handler of patches cuts off parameters and does not parse them.
func TestMalformedParameterOfATypeDoesNotMakeAPatchCheap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		s.post(t, classic("small", 1)).want(t, 201, "")
		release, err := s.intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		for _, contentType := range []string{jsonPatchType, jsonPatchType + ";x", jsonPatchType + "; charset=utf-8"} {
			a := s.do(t, http.MethodPatch, coreEvents+"/small", `[{"op":"add","path":"/count","value":2}]`, "Content-Type", contentType)
			if a.code != http.StatusTooManyRequests {
				t.Errorf("%s: answered %d without a reservation of what copies may take", contentType, a.code)
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
		waiting := background(func() answer { return s.do(t, http.MethodPost, coreEvents, large("a")) })
		o := <-s.pipeline.recorded
		second := background(func() answer { return s.do(t, http.MethodPut, coreEvents+"/a", large("a")) })
		third := background(func() answer { return s.patch(t, "a", `{"message":%q}`, largeMessage) })
		slow, sender := io.Pipe()
		fourth := background(func() answer {
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, nil)
			req.Body = slow
			return s.send(req)
		})
		synctest.Wait()
		release, err := s.intake.ReserveDecoding(t.Context(), 1<<40)
		if err != nil {
			t.Fatalf("something is reserved: %v", err)
		}
		release()
		o.Settled(stored(occurrence.Created, 1))
		(<-waiting).want(t, 201, "")
		_ = sender.CloseWithError(io.ErrUnexpectedEOF)
		<-fourth
		for range 2 {
			synctest.Wait()
			select {
			case o := <-s.pipeline.recorded:
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
			s.do(t, http.MethodPost, coreEvents, body)
			s.do(t, http.MethodPost, coreEvents+"?dryRun=All", body)
			s.do(t, http.MethodPut, coreEvents+"/x", body)
			s.patch(t, "x", "%s", body)
		}
	}
	for _, cost := range []int64{1 << 40, intake.SmallCost} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 16 { // of small ones: nearly all there is
			if _, err := s.intake.ReserveDecoding(t.Context(), cost); err != nil {
				t.Fatalf("something is still reserved: %v", err)
			}
			if cost > intake.SmallCost {
				break
			}
		}
		if _, err := s.intake.ReserveDecoding(ctx, cost); err == nil {
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
		s.post(t, classic(name, 1)).want(t, 201, "")
		refused := false
		last := 0
		for i := range 100 {
			last = i
			a := s.patch(t, name, "%s", patch(i))
			if refused = a.code != 200; refused {
				a.want(t, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge)
				break
			}
		}
		if !refused || name == "large" && last > 8 {
			t.Errorf("%s: %d patches were taken", name, last)
		}
		s.patch(t, name, `{"count":2}`).want(t, 200, "")
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
	s.post(t, event).want(t, 201, "")
	if got, want := s.intake.ViewBytes("ns", "a"), eventsize.Of(event)+eventsize.Of(event)*9/10; got < want || want < 20_000 {
		t.Errorf("counted as %d bytes, at least %d are taken", got, want)
	}
}
