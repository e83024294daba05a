package intake_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

var refusedFor = dropped(occurrence.RetriesExhausted, nil)

func TestRaiseIsRecordedWhileThePostOfItsNameWaits(t *testing.T) {
	for method, raise := range map[string]struct {
		do     func(*server) answer
		code   int
		weight int64
		count  int32
	}{
		"patch": {func(s *server) answer { return s.Patch(t, "a", `{"count":3}`) }, 200, 3, 3},
		"put":   {func(s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/a", classic("a", 3)) }, 200, 3, 3},
		"post":  {func(s *server) answer { return s.Post(t, classic("a", 3)) }, 201, 3, 3},
		// It raises nothing, and the sink would count another weight.
		"patch of the message": {func(s *server) answer { return s.Patch(t, "a", `{"message":"other"}`) }, 200, 0, 1},
	} {
		t.Run(method, func(t *testing.T) {
			s := serve(t, kept())
			posted, post := s.posting(t, "a", 1)
			raised, o := s.pending(func() answer { return raise.do(s) })
			if o.Client != "a" || o.Weight != raise.weight || o.Total != int64(raise.count) || identity.Of(o.Identified()) != identity.Of(post.Event) {
				t.Errorf("reported %d up to %d of %q", o.Weight, o.Total, o.Client)
			}
			post.Settled(refusedFor)
			(<-posted).Want(t, 503, metav1.StatusReasonServiceUnavailable)
			o.Settled(stored(occurrence.Created, 7))
			a := <-raised
			a.Want(t, raise.code, "")
			if got := a.Event(t); got.Count != raise.count || got.ResourceVersion != "7" || got.UID != "stored-uid" {
				t.Errorf("answered %+v", got)
			}
		})
	}
}

// The pending reports of a name end in any order and with any outcome. The stored count
// is that of the highest written report, and the next report continues from there.
func TestNothingIsLostOrCountedTwiceHoweverReportsOfANameEnd(t *testing.T) {
	ends := map[string]func(*occurrence.Occurrence){
		"written":   func(o *occurrence.Occurrence) { o.Settled(stored(occurrence.Merged, 1)) },
		"deferred":  func(o *occurrence.Occurrence) { o.Deferred() },
		"dropped":   func(o *occurrence.Occurrence) { o.Settled(refusedFor) },
		"uncertain": func(o *occurrence.Occurrence) { o.Settled(uncertain) },
	}
	s := serve(t, kept())
	names := 0
	for first := range ends {
		for second := range ends {
			for third := range ends {
				for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
					names++
					endReports(t, s, fmt.Sprint("n", names), []string{first, second, third}, order, ends)
				}
			}
		}
	}
}

func endReports(t *testing.T, s *server, name string, how []string, order []int, ends map[string]func(*occurrence.Occurrence)) {
	t.Helper()
	totals := []int32{1, 3, 5}
	answers, recorded := make([]<-chan answer, 3), make([]*occurrence.Occurrence, 3)
	answers[0], recorded[0] = s.posting(t, name, totals[0])
	answers[1], recorded[1] = s.patching(t, name, totals[1])
	answers[2], recorded[2] = s.patching(t, name, totals[2])
	var covered, sum, want int64
	for _, i := range order {
		if o := recorded[i]; how[i] == "written" || how[i] == "deferred" {
			sum += max(0, min(o.Weight, o.Total-covered)) // as the sink does (docs/counting.md, rule 2)
			covered = max(covered, o.Total)
			want = max(want, int64(totals[i]))
		}
		ends[how[i]](recorded[i])
		<-answers[i]
	}
	what := fmt.Sprintf("%v in the order %v", how, order)
	equal(t, what+": counted", sum, want)
	next, o := s.pending(func() answer {
		a := s.Patch(t, name, `{"count":6}`)
		if a.Code == 404 {
			a = s.Post(t, classic(name, 6))
		}
		return a
	})
	equal(t, what+": weight of the next report", o.Weight, 6-want)
	o.Settled(stored(occurrence.Merged, 9))
	<-next
}

// raises sends an Event, and PATCHes of its count, each as a user. They are not waited for.
func (s *server) raises(t *testing.T, who, name string, messageBytes, patches int) (answers []<-chan answer) {
	t.Helper()
	answers = append(answers, background(func() answer { return s.postAs(t, who, withMessage(name, messageBytes)) }))
	synctest.Wait()
	for count := range patches {
		answers = append(answers, background(func() answer {
			return s.patchAs(t, who, name, fmt.Sprintf(`{"count":%d}`, count+2))
		}))
		synctest.Wait()
	}
	return answers
}

// settleAll settles what is recorded until all requests have their answers.
func (s *server) settleAll(t *testing.T, answers []<-chan answer) {
	t.Helper()
	for _, answered := range answers {
		synctest.Wait()
		for len(answered) == 0 {
			(<-s.Pipeline.Recorded).Settled(stored(occurrence.Merged, 1))
			synctest.Wait()
		}
		if a := <-answered; a.Code >= 300 {
			t.Errorf("answered %d: %s", a.Code, a.Body)
		}
	}
}

// The memory of pending reports is limited. Above the limit a request waits.
func TestReportsOfANameThatWaitAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		most  int
	}{"their number": {1 << 30, 16}, "their bytes": {1, 1}} {
		bubble(t, name, func(t *testing.T) {
			s := serve(t, kept(), authenticatedByHeader, withOptions(func(o *intake.Options) { o.MaxViewBytes = c.bytes }))
			answers := s.raises(t, "jane", "a", 1, 20)
			s.Pipeline.WantRecorded(t, c.most)
			answers = append(answers, s.raises(t, "jane", "b", 1, 0)...) // another name is not held up
			s.Pipeline.WantRecorded(t, c.most+1)
			s.settleAll(t, answers)
		})
	}
}

// A tenant at its limit of pending bytes has one report of a name at a time. Another
// tenant is not affected, not even for names in the same namespace.
func TestReportsOfATenantThatWaitTakeNoPlaceOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 10 // of a message; a view has it twice
		p := kept()
		p.Recorded = make(chan *occurrence.Occurrence, 1000)
		s := serve(t, p, authenticatedByHeader, withOptions(func(o *intake.Options) { o.MaxViewBytes = 100 * 2 * size }), inFlight(2000))
		var answers []<-chan answer
		// fill raises a name of a user until a request has to wait, and returns how many
		// reports were recorded.
		fill := func(who string, name int) int {
			before := len(p.Occurrences())
			answers = append(answers, s.raises(t, who, fmt.Sprint(who, name), size, 20)...)
			return len(p.Occurrences()) - before
		}
		equal(t, "reports of the flood's first name", fill("floods", 0), 16)
		for name := 1; name < 9; name++ {
			fill("floods", name)
		}
		equal(t, "reports of the flood's last name", fill("floods", 9), 1)
		equal(t, "reports of another tenant", fill("quiet", 0), 16)
		s.settleAll(t, answers)
		answers = nil
		equal(t, "reports when all has ended", fill("floods-again", 0), 16)
		s.settleAll(t, answers)
	})
}

func TestRepeatedRaiseJoinsThePendingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		posted, post := s.posting(t, "a", 1)
		raised, raise := s.patching(t, "a", 3)
		repeated := background(func() answer { return s.Patch(t, "a", `{"count":3}`) })
		synctest.Wait()
		post.Settled(stored(occurrence.Created, 1))
		raise.Settled(refusedFor)
		(<-posted).Want(t, 201, "")
		(<-raised).Want(t, 503, metav1.StatusReasonServiceUnavailable)
		(<-repeated).Want(t, 503, metav1.StatusReasonServiceUnavailable)
		s.Pipeline.WantWeights(t, 1, 3)
	})
}

// Preconditions are checked against the last response of the client, although a raise
// that it has sent since is pending.
func TestUIDOfAPostThatIsStoredHoldsWhileARaiseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		posted, post := s.posting(t, "a", 1)
		raised, raise := s.patching(t, "a", 2)
		post.Settled(stored(occurrence.Created, 1))
		event := (<-posted).Event(t)
		event.ResourceVersion, event.Count = "", 3
		put := background(func() answer { return s.Do(t, http.MethodPut, coreEvents+"/a", event) })
		synctest.Wait()
		raise.Settled(stored(occurrence.Merged, 2))
		(<-raised).Want(t, 200, "")
		s.settleAll(t, []<-chan answer{put})
	})
}
