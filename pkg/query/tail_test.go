package query_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/cputime"
	"github.com/eventd/eventd/test/intaketest"
)

// occurs has an Event observed, or a step of it taken.
var occurs = map[string]func(s *scene, message string){
	"events": func(s *scene, message string) { s.happens("shop", "web", message) },
	"steps": func(s *scene, message string) {
		s.trail.Delivered("archive", &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"},
		}, 0)
	},
}

// writes are those of a response.
type writes struct {
	httptest.ResponseRecorder
	mu  sync.Mutex
	all [][]byte
	at  []time.Time // of each
}

// Write implements http.ResponseWriter.
func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) > 0 {
		w.all = append(w.all, bytes.Clone(p))
		w.at = append(w.at, time.Now())
	}
	return len(p), nil
}

// times returns when each write was.
func (w *writes) times() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// since returns the writes after the first ones.
func (w *writes) since(n int) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[n:]
}

// A tail that has much to read fills its writes. What is left does not wait for the next bookmark.
func TestTailWritesWhatIsLeftWhenItHasReadAll(t *testing.T) {
	const items = 400 // more than a batch
	for include, occurs := range occurs {
		t.Run(include, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				ctx, leave := context.WithCancel(t.Context())
				w := &writes{ResponseRecorder: *httptest.NewRecorder()}
				var open sync.WaitGroup
				open.Go(func() {
					s.ServeHTTP(w, intaketest.NewRequest(ctx, t, http.MethodGet, root+"tail?watch=true&include="+include, nil))
				})
				synctest.Wait()
				occurs(s, "first")
				time.Sleep(time.Second + time.Millisecond) // no turn begins now, so it reads the others together
				before := len(w.since(0))
				for range items {
					occurs(s, "it has failed")
				}
				time.Sleep(time.Second)
				sent := 0
				for i, p := range w.since(before) {
					if sent += bytes.Count(p, []byte(`"ADDED"`)); sent < items && len(p) < 32<<10 {
						t.Errorf("write %d has %d bytes, and %d items are left", i, len(p), items-sent)
					}
				}
				if sent != items {
					t.Errorf("%d items are sent within a second", sent)
				}
				leave()
				open.Wait()
			})
		})
	}
}

// A storm costs each tail a write per turn, whatever happens in it, and 50 tails have their turns at ten times. What they
// write is made once.
func TestTailsWriteInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		ctx, leave := context.WithCancel(t.Context())
		const tails, seconds = 50, 3
		var all [tails]*writes
		var open sync.WaitGroup
		for i := range all {
			all[i] = &writes{ResponseRecorder: *httptest.NewRecorder()}
			open.Go(func() {
				req := intaketest.NewRequest(ctx, t, http.MethodGet, root+"tail?watch=true&include=events,steps", nil)
				req.Header.Set("Authorization", fmt.Sprint("Bearer user-", i%10))
				s.ServeHTTP(all[i], req)
			})
			synctest.Wait() // so many at once would be refused: nobody knows yet whose they are
		}
		time.Sleep(time.Second + time.Millisecond) // nothing happens during a turn: how much of it is read would be chance
		begun := time.Now()
		for time.Since(begun) < seconds*time.Second {
			for _, occurs := range occurs {
				occurs(s, "it has failed")
			}
			time.Sleep(20 * time.Millisecond)
		}
		turns, different := map[time.Time]int{}, map[string]bool{}
		for i, w := range all {
			n := 0
			for write, at := range w.times() {
				if at.Before(begun) {
					continue
				}
				n++
				turns[at]++
				if at.Sub(begun) > 2*time.Second { // they have met
					different[string(w.since(write)[0])] = true
				}
			}
			if n < 4*seconds-1 || n > 4*seconds+1 {
				t.Errorf("tail %d has written %d times in %d s", i, n, seconds)
			}
		}
		if most := slices.Max(slices.Collect(maps.Values(turns))); most > tails/10 {
			t.Errorf("%d of %d tails have written at the same time", most, tails)
		}
		if n := len(different); n > 12 { // one or two batches in each of four turns
			t.Errorf("%d tails have written %d different things in a second", tails, n)
		}
		leave()
		open.Wait()
	})
}

// A client that resumes from an item gets all that was read with it, for it may have lost its connection in between.
func TestItemsHaveTheCursorBeforeTheirBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		for i := range 41 {
			s.happens("shop", "web", fmt.Sprint(i+1))
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		a := s.DoUntil(ctx, t, http.MethodGet, root+"tail?watch=true&resourceVersion=1", nil)
		items := 0
		for line := range bytes.Lines(a.Body) {
			var frame struct {
				Type   string
				Object v1alpha1.TailItem
			}
			if err := json.Unmarshal(line, &frame); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if frame.Type != "ADDED" {
				continue
			}
			const batch = 6
			want := fmt.Sprint(1 + items/batch*batch)
			items++
			if item := frame.Object; item.Event.ResourceVersion != fmt.Sprint(items+1) || item.ResourceVersion != want {
				t.Errorf("item %d is of %s, and has the cursor %s, not %s", items, item.Event.ResourceVersion, item.ResourceVersion, want)
			}
		}
		if items != 40 {
			t.Errorf("%d items are sent", items)
		}
	})
}

// A tail whose expression is costly becomes slow, before those of all clients take a processor: it evaluates in 1/50
// of the time.
func TestTailRestsAfterItsExpression(t *testing.T) {
	const text = `!event.message.matches("(a{1,9}){1,9}b")`
	expression, err := rules.CompileExpression(text, "match")
	if err != nil {
		t.Fatal(err)
	}
	costly := strings.Repeat("a", 200) // as much as a step keeps of a message
	evaluate := func(items int) time.Duration {
		fastest := time.Hour
		for range 3 {
			began := cputime.Spent(t) // by the clock, it takes longer on a busy machine
			for range items {
				expression.Matches(&corev1.Event{Message: costly})
			}
			fastest = min(fastest, cputime.Spent(t)-began)
		}
		return fastest
	}
	items, alone := 1, time.Duration(0)
	for alone < 30*time.Millisecond { // 49 times that is much more than a turn of the tail
		items *= 2
		alone = evaluate(items)
	}
	for include, occurs := range occurs {
		t.Run(include, func(t *testing.T) {
			s := newScene(t)
			root, client := s.listen(t)
			ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
			defer cancel()
			w := open(ctx, t, client, root+"tail?watch=true&include="+include+"&match="+url.QueryEscape(text))
			s.awaitWatches(t, 1)
			next := func() (message string) { // "" of a bookmark
				f, ok := w.next()
				var item v1alpha1.TailItem
				if err := json.Unmarshal(f.Object, &item); !ok || err != nil {
					t.Fatalf("the tail has ended: %v", err)
				}
				switch {
				case item.Event != nil:
					return item.Event.Message
				case item.Step != nil:
					return item.Step.Message
				}
				return ""
			}
			for begun := false; !begun; begun = next() == "first" {
				occurs(s, "first")
			}
			began := time.Now()
			for range items {
				occurs(s, costly)
			}
			for n := 0; n < items; {
				if next() == costly {
					n++
				}
			}
			occurs(s, "last")
			for over := false; !over; {
				over = next() == "last"
			}
			took := time.Since(began)
			// Half of it: the collector of garbage is counted, too.
			if alone := min(alone, evaluate(items)); took < 25*alone {
				t.Errorf("it has evaluated for about %s, and reads again after %s", alone, took)
			}
		})
	}
}

// A tail that has ended has no steps kept: to keep one takes memory, and somebody has to read it.
func TestTailThatHasEndedHasNoStepsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		allocations := func() float64 {
			return testing.AllocsPerRun(100, func() { occurs["steps"](s, "it has failed") })
		}
		before := allocations()
		for range 3 {
			ctx, leave := context.WithTimeout(t.Context(), time.Second)
			s.DoUntil(ctx, t, http.MethodGet, root+"tail?watch=true&include=events,steps", nil)
			leave()
		}
		if after := allocations(); after != before {
			t.Errorf("%v allocations for each step, %v before", after, before)
		}
	})
}
