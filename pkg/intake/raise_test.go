package intake_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

var refusedFor = occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.RetriesExhausted}

func TestRaiseIsRecordedWhileThePostOfItsNameWaits(t *testing.T) {
	for method, raise := range map[string]struct {
		do   func(*server) answer
		code int
	}{
		"patch": {func(s *server) answer { return s.Patch(t, "a", `{"count":3}`) }, 200},
		"put":   {func(s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/a", classic("a", 3)) }, 200},
		"post":  {func(s *server) answer { return s.Post(t, classic("a", 3)) }, 201},
	} {
		t.Run(method, func(t *testing.T) {
			s := serve(t, kept())
			posted := background(func() answer { return s.Post(t, classic("a", 1)) })
			post := <-s.Pipeline.Recorded
			raised := background(func() answer { return raise.do(s) })
			o := <-s.Pipeline.Recorded
			if o.Client != "a" || o.Weight != 3 || o.Total != 3 || identity.Of(o.Identified()) != identity.Of(post.Event) {
				t.Errorf("reported %d up to %d of %q", o.Weight, o.Total, o.Client)
			}
			post.Settled(refusedFor)
			(<-posted).Want(t, 503, metav1.StatusReasonServiceUnavailable)
			o.Settled(stored(occurrence.Created, 7))
			a := <-raised
			a.Want(t, raise.code, "")
			if got := a.Event(t); got.Count != 3 || got.ResourceVersion != "7" || got.UID != "stored-uid" {
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
		"uncertain": func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Uncertain}) },
	}
	s := serve(t, kept())
	cases := 0
	for first := range ends {
		for second := range ends {
			for third := range ends {
				for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
					cases++
					endReports(t, s, fmt.Sprint("n", cases), []string{first, second, third}, order, ends)
				}
			}
		}
	}
}

func endReports(t *testing.T, s *server, name string, how []string, order []int, ends map[string]func(*occurrence.Occurrence)) {
	t.Helper()
	var covered, sum, want int64
	write := func(o *occurrence.Occurrence) { // as the sink does (docs/counting.md, rule 2)
		sum += max(0, min(o.Weight, o.Total-covered))
		covered = max(covered, o.Total)
	}
	totals := []int32{1, 3, 5}
	answers := make([]<-chan answer, len(totals))
	recorded := make([]*occurrence.Occurrence, len(totals))
	for i, total := range totals {
		if i == 0 {
			answers[i] = background(func() answer { return s.Post(t, classic(name, total)) })
		} else {
			answers[i] = background(func() answer { return s.Patch(t, name, `{"count":%d}`, total) })
		}
		recorded[i] = <-s.Pipeline.Recorded
	}
	for _, i := range order {
		if how[i] == "written" || how[i] == "deferred" {
			write(recorded[i])
			want = max(want, int64(totals[i]))
		}
		ends[how[i]](recorded[i])
		<-answers[i]
	}
	if sum != want {
		t.Errorf("%v in the order %v: %d are counted, of %d", how, order, sum, want)
	}
	next := background(func() answer {
		a := s.Patch(t, name, `{"count":6}`)
		if a.Code == 404 {
			a = s.Post(t, classic(name, 6))
		}
		return a
	})
	o := <-s.Pipeline.Recorded
	if o.Weight != 6-want {
		t.Errorf("%v in the order %v: the next report is of %d, after %d", how, order, o.Weight, want)
	}
	o.Settled(stored(occurrence.Merged, 9))
	<-next
}

// The memory of pending reports is limited. Above the limit a request waits.
func TestReportsOfANameThatWaitAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		bytes int64
		most  int
	}{"their number": {1 << 30, 16}, "their bytes": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, kept(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxViewBytes = c.bytes })
				answers := []<-chan answer{background(func() answer { return s.Post(t, classic("a", 1)) })}
				synctest.Wait()
				for i := range 20 {
					answers = append(answers, background(func() answer { return s.Patch(t, "a", `{"count":%d}`, i+2) }))
					synctest.Wait()
				}
				s.Pipeline.WantRecorded(t, c.most)
				// Another name is not held up.
				other := background(func() answer { return s.Post(t, classic("b", 1)) })
				synctest.Wait()
				s.Pipeline.WantRecorded(t, c.most+1)
				for range 22 {
					synctest.Wait()
					select {
					case o := <-s.Pipeline.Recorded:
						o.Settled(stored(occurrence.Merged, 1))
					default:
					}
				}
				for _, answered := range append(answers, other) {
					if a := <-answered; a.Code >= 300 {
						t.Errorf("answered %d", a.Code)
					}
				}
			})
		})
	}
}

// A tenant at its limit of pending bytes has one report of a name at a time. Another
// tenant is not affected, not even for names in the same namespace.
func TestReportsOfATenantThatWaitTakeNoPlaceOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 10 // of a message; a view has it twice
		large := func(name string) *corev1.Event {
			event := classic(name, 1)
			event.Message = strings.Repeat("x", size)
			return event
		}
		p := kept()
		p.Recorded = make(chan *occurrence.Occurrence, 1000)
		s := serve(t, p, authenticatedByHeader, func(o *intake.Options, _ *intake.ServerOptions) { o.MaxViewBytes = 100 * 2 * size })
		var answers []<-chan answer
		// fill raises names of a user until one of them has to wait, and returns how
		// many reports of each were recorded.
		fill := func(who string, names int) (recorded []int) {
			for i := range names {
				name := fmt.Sprint(who, i)
				before := len(p.Occurrences())
				answers = append(answers, background(func() answer { return s.postAs(t, who, large(name)) }))
				synctest.Wait()
				for count := range 20 {
					answers = append(answers, background(func() answer { return s.patchAs(t, who, name, fmt.Sprintf(`{"count":%d}`, count+2)) }))
					synctest.Wait()
				}
				recorded = append(recorded, len(p.Occurrences())-before)
			}
			return recorded
		}
		if got := fill("floods", 10); got[0] != 16 || got[9] != 1 {
			t.Fatalf("of each name of the one that floods %d are recorded, want 16 of the first, and 1 of the last", got)
		}
		if got := fill("quiet", 1); got[0] != 16 {
			t.Errorf("of another tenant's name %d are recorded, want 16", got[0])
		}
		for range len(answers) + 1 {
			synctest.Wait()
			for len(p.Recorded) > 0 {
				(<-p.Recorded).Settled(stored(occurrence.Merged, 1))
			}
		}
		for _, answered := range answers {
			if a := <-answered; a.Code >= 300 {
				t.Fatalf("answered %d: %s", a.Code, a.Body)
			}
		}
		// Everything is released.
		if got := fill("floods-again", 1); got[0] != 16 {
			t.Errorf("when all has ended %d are recorded, want 16", got[0])
		}
		synctest.Wait()
		for range 40 {
			synctest.Wait()
			for len(p.Recorded) > 0 {
				(<-p.Recorded).Settled(stored(occurrence.Merged, 1))
			}
		}
	})
}

func TestRepeatedRaiseJoinsThePendingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		answers := []<-chan answer{background(func() answer { return s.Post(t, classic("a", 1)) })}
		post := <-s.Pipeline.Recorded
		for range 2 {
			answers = append(answers, background(func() answer { return s.Patch(t, "a", `{"count":3}`) }))
			synctest.Wait()
		}
		raise := <-s.Pipeline.Recorded
		post.Settled(stored(occurrence.Created, 1))
		raise.Settled(refusedFor)
		(<-answers[0]).Want(t, 201, "")
		for _, answered := range answers[1:] {
			(<-answered).Want(t, 503, metav1.StatusReasonServiceUnavailable)
		}
		s.Pipeline.WantWeights(t, 1, 3)
	})
}

// A change that raises nothing has weight 0, or the sink would count it.
func TestChangeThatRaisesNothingWhileThePostWaitsReportsNothing(t *testing.T) {
	s := serve(t, kept())
	posted := background(func() answer { return s.Post(t, classic("a", 2)) })
	post := <-s.Pipeline.Recorded
	changed := background(func() answer { return s.Patch(t, "a", `{"message":"other"}`) })
	o := <-s.Pipeline.Recorded
	if o.Weight != 0 || o.Total != 2 || o.Event.Message != "other" {
		t.Errorf("reported %d up to %d: %s", o.Weight, o.Total, o.Event.Message)
	}
	post.Settled(stored(occurrence.Created, 1))
	o.Settled(stored(occurrence.Merged, 2))
	(<-posted).Want(t, 201, "")
	(<-changed).Want(t, 200, "")
}

// Preconditions are checked against the last response of the client, although a raise
// that it has sent since is pending.
func TestUIDOfAPostThatIsStoredHoldsWhileARaiseWaits(t *testing.T) {
	s := serve(t, kept())
	posted := background(func() answer { return s.Post(t, classic("a", 1)) })
	post := <-s.Pipeline.Recorded
	raised := background(func() answer { return s.Patch(t, "a", `{"count":2}`) })
	raise := <-s.Pipeline.Recorded
	post.Settled(stored(occurrence.Created, 1))
	event := (<-posted).Event(t)
	event.ResourceVersion, event.Count = "", 3
	put := background(func() answer { return s.Do(t, http.MethodPut, coreEvents+"/a", event) })
	until(t, "it is recorded, or refused", func() bool { return len(s.Pipeline.Occurrences()) == 3 || len(put) > 0 })
	raise.Settled(stored(occurrence.Merged, 2))
	(<-raised).Want(t, 200, "")
	if len(put) == 0 {
		(<-s.Pipeline.Recorded).Settled(stored(occurrence.Merged, 3))
	}
	(<-put).Want(t, 200, "")
}
