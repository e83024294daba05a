package trail

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/occurrence"
)

// P5: whoever floods loses its own steps. All else is known, and is said to be.
func TestAFloodLosesItsOwnSteps(t *testing.T) {
	for name, flood := range map[string]func(to *Trail, i int){
		"of another namespace": func(to *Trail, i int) {
			drop(to, event("flood", fmt.Sprint("pod-", i), "Flood", "flood"), "victim", occurrence.Invalid)
		},
		"of another tenant in the namespace": func(to *Trail, i int) {
			drop(to, event("shop", fmt.Sprint("pod-", i), "Flood", "flood"), "attacker", occurrence.Invalid)
		},
		"of another tenant about the object": func(to *Trail, i int) {
			drop(to, event("shop", "web-0", fmt.Sprint("Flood-", i), "flood"), "attacker", occurrence.Invalid)
		},
		"of one tenant in many namespaces": func(to *Trail, i int) {
			drop(to, event(fmt.Sprint("flood-", i%2000), fmt.Sprint("pod-", i), "Flood", "flood"), "attacker", occurrence.Invalid)
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := newTrail(t, Options{MaxBytes: MinMaxBytes})
			victim := event("shop", "web-0", "BackOff", "restarting")
			drop(to, victim, "victim", occurrence.Refused)
			for i := range 20_000 {
				flood(to, i)
			}
			steps, _, _ := to.Why(Query{Object: Object{Name: "web-0"}, Namespaces: []string{"shop"}, Limit: 5000})
			i := slices.IndexFunc(steps, func(s Step) bool { return s.User == "victim" && s.Cause == "refused" })
			if i < 0 {
				t.Errorf("the steps of the victim are gone: %d steps", len(steps))
			}
			drops, _ := to.Drops(Query{Namespaces: []string{"shop"}, Limit: 5000})
			if !slices.ContainsFunc(drops, func(s Step) bool { return s.User == "victim" }) {
				t.Errorf("the drop of the victim is gone")
			}
			if to.bytes > to.limits.steps {
				t.Errorf("%d bytes of steps, the limit is %d", to.bytes, to.limits.steps)
			}
			if len(to.namespaces) > maxNamespaces+to.traces.Len()+1 || len(to.byName) > to.traces.Len() {
				t.Errorf("%d namespaces and %d names of %d objects", len(to.namespaces), len(to.byName), to.traces.Len())
			}
		})
	}
}

// An answer about what was evicted says since when all is known; one about another namespace, that it is complete.
func TestAnswersSaySinceWhenAllIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{MaxBytes: MinMaxBytes})
		record(to, event("quiet", "web-0", "A", ""), "jane", 1)
		var evicted time.Time
		for i := range 2000 {
			time.Sleep(time.Second)
			drop(to, event("flood", fmt.Sprint("pod-", i), "A", ""), "jane", occurrence.Invalid)
			if len(why(to, "pod-0")) == 0 && evicted.IsZero() {
				evicted = time.Now()
			}
		}
		newest := time.Now()
		if evicted.IsZero() {
			t.Fatal("nothing was evicted")
		}
		known := func(namespaces ...string) time.Time {
			_, a, forgotten := to.Why(Query{Namespaces: namespaces, Object: Object{Name: "pod-0"}})
			_, b := to.Drops(Query{Namespaces: namespaces})
			if !a.Equal(b) || forgotten {
				t.Errorf("%v: steps are known since %v, and drops since %v", namespaces, a, b)
			}
			return a
		}
		if since := known("quiet"); !since.Equal(to.began) {
			t.Errorf("of another namespace, all is known since %v", since)
		}
		left := to.traces.Len()
		for _, namespaces := range [][]string{{"flood"}, nil, {"quiet", "flood"}} {
			if since, want := known(namespaces...), newest.Add(-time.Duration(left-1)*time.Second); !since.Equal(want) {
				t.Errorf("of %v, all is known since %v, want %v", namespaces, since, want)
			}
		}
	})
}

// A leader does not claim to know what happened while another one led.
func TestATermBeginsWithoutWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		time.Sleep(time.Hour)
		to.BeginTerm()
		began := time.Now()
		time.Sleep(time.Minute)
		_, steps, _ := to.Why(Query{Object: Object{Name: "web-0"}})
		_, drops := to.Drops(Query{})
		top := to.Top(TopQuery{Window: MaxWindow})
		if !steps.Equal(began) || !drops.Equal(began) || !top.Since.Equal(began) {
			t.Errorf("steps are known since %v, drops since %v, the noisiest since %v: the term began at %v", steps, drops, top.Since, began)
		}
	})
}

// An object has a bounded number of steps. The oldest leave, and the answer says so.
func TestStepsOfAnObjectAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{})
		for i := range 100 {
			time.Sleep(time.Second)
			drop(to, event("shop", "web-0", "A", fmt.Sprint("message ", i)), "jane", occurrence.Invalid)
		}
		steps, _, forgotten := to.Why(Query{Object: Object{Name: "web-0"}})
		if len(steps) != maxSteps || !forgotten || steps[maxSteps-1].Message != "message 99" {
			t.Errorf("%d steps, forgotten %v, the last is %+v", len(steps), forgotten, steps[len(steps)-1])
		}
		r := to.byName["web-0"]
		if len(r.series) != maxSteps/2 || r.bytes != r.charged || to.bytes != r.bytes {
			t.Errorf("%d series of %d bytes, %d are charged", len(r.series), r.bytes, to.bytes)
		}
		drops, since := to.Drops(Query{Limit: 1000})
		if len(drops) != maxSteps/2 || !since.Equal(drops[maxSteps/2-1].Time.Add(-time.Second)) {
			t.Errorf("%d drops, since %v; the oldest is of %v", len(drops), since, drops[len(drops)-1].Time)
		}
	})
}

// P4: the memory is what is charged, or less, however it is filled.
func TestMemoryIsBounded(t *testing.T) {
	long := strings.Repeat("long ", 1000)
	for name, fill := range map[string]func(to *Trail, i int){
		"objects": func(to *Trail, i int) { record(to, event("shop", fmt.Sprint("pod-", i), "A", "message"), "jane", 1) },
		"texts": func(to *Trail, i int) {
			e := event("shop", fmt.Sprint(i, long), fmt.Sprint(i, long), fmt.Sprint(i, long))
			e.InvolvedObject.UID, e.ReportingController = types.UID(fmt.Sprint(i, long)), fmt.Sprint(i, long)
			to.Ended(&occurrence.Occurrence{Event: e, User: long, Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Refused, Err: errors.New(fmt.Sprint(i, long))})
		},
		"namespaces": func(to *Trail, i int) {
			record(to, event(fmt.Sprint("ns-", i), "web-0", fmt.Sprint("A", i), "message"), "jane", 1)
		},
		"series": func(to *Trail, i int) {
			record(to, event("shop", fmt.Sprint("pod-", i/50), fmt.Sprint("A", i), fmt.Sprint("message", i)), "jane", 1)
		},
		"observed": func(to *Trail, i int) { to.Observed(observed(fmt.Sprint("uid-", i), fmt.Sprint("ns-", i%500), 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			to := newTrail(t, Options{MaxBytes: DefaultMaxBytes})
			for i := range 30_000 {
				fill(to, i)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			bytes := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d bytes, %d objects, %d of steps are charged", bytes, to.traces.Len(), to.bytes)
			if bytes > DefaultMaxBytes {
				t.Errorf("%d bytes", bytes)
			}
			runtime.KeepAlive(to)
		})
	}
}

// Whatever a client has sent is data, and is bounded.
func TestTextsOfClientsAreBoundedAndValid(t *testing.T) {
	to := newTrail(t, Options{})
	for _, text := range []string{strings.Repeat("\xff", 2000), strings.Repeat("€", 1000), "\x00<script>\u202e", strings.Repeat("\x80", 300)} {
		e := event(text, text, text, text)
		e.InvolvedObject.Kind, e.InvolvedObject.UID, e.Type, e.ReportingController = text, types.UID(text), text, text
		record(to, e, text, 1)
		to.NotDelivered(text, e, text, delivery.Rejected, errors.New(text))
		steps, _, _ := to.Why(Query{Object: Object{Name: text, UID: types.UID(text)}})
		if len(steps) != 3 {
			t.Errorf("%d steps of %q", len(steps), text)
		}
		for _, s := range steps {
			encoded, err := json.Marshal(s)
			if err != nil || !utf8.Valid(encoded) || len(encoded) > 16<<10 || len(s.Message) > 3*maxMessage || len(s.Detail) > 3*maxDetail {
				t.Errorf("%d bytes, %v", len(encoded), err)
			}
		}
		if top := to.Top(TopQuery{}); len(top.Items) == 0 {
			t.Error("nothing is ranked")
		}
	}
	to.Ended(&occurrence.Occurrence{Weight: 1}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Malformed})
	if drops, _ := to.Drops(Query{Namespaces: []string{""}}); len(drops) != 1 {
		t.Errorf("%d drops of what no Event could be built of", len(drops))
	}
}

// Of too many namespaces, it is not known when each has lost something. Whoever asks for one of them is not told that
// all is known, nor when something new has happened there.
func TestANamespaceThatIsForgottenIsNotKnownFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := newTrail(t, Options{MaxBytes: MinMaxBytes})
		name := func(i int) string { return fmt.Sprintf("shop-%05d", i) } // of equal size: the oldest is evicted
		n := 0
		for n == 0 || to.namespaces[name(0)] != nil {
			if n++; n > 10_000 {
				t.Fatal("no namespace is forgotten")
			}
			time.Sleep(time.Second)
			drop(to, event(name(n-1), "web-0", "A", ""), "jane", occurrence.Invalid)
		}
		lost := to.began
		for i := 0; to.namespaces[name(i)] == nil; i++ {
			lost = lost.Add(time.Second)
		}
		for range 2 {
			_, steps, _ := to.Why(Query{Namespaces: []string{name(0)}})
			if _, drops := to.Drops(Query{Namespaces: []string{name(0)}}); !steps.Equal(lost) || !drops.Equal(lost) {
				t.Errorf("steps are known since %v, drops since %v, want %v", steps, drops, lost)
			}
			drop(to, event(name(0), "web-0", "A", ""), "jane", occurrence.Invalid) // it is one of those that are known again
		}
	})
}
