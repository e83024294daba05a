package query_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
)

// operators are words that only an operator may read: names of receivers, routes and rules, causes that tell how
// routes are configured, and what a destination has answered.
var operators = []string{"archive", "lake", "to-archive", "partly_rejected", "rejected", "internal-db-host", "noise-of-acme"}

// delivers has an Event of a Pod of shop delivered and not, filtered and deferred.
func (s *scene) delivers() {
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"},
		Reason:         "Failed", Message: "it has failed",
	}
	s.trail.Delivered("archive", e, 1)
	s.trail.Delivered("lake", e, 0)
	s.trail.NotDelivered("archive", e, "to-archive", delivery.NotRouted, nil)
	s.trail.NotDelivered("lake", e, "", delivery.Rejected, errors.New("internal-db-host=10.0.0.7 user=admin"))
	s.trail.Ended(&occurrence.Occurrence{Event: e, User: "jane", Weight: 1}, occurrence.Settlement{Outcome: occurrence.Filtered, Reason: "noise-of-acme"})
	s.trail.DryRun(&occurrence.Occurrence{Event: e, User: "jane"}, 1, "noise-of-acme", "would_drop")
}

// What belongs to the operator needs the right to list Events in all namespaces. The others see that something was
// delivered, or not.
func TestReaderOfANamespaceSeesNothingOfTheOperator(t *testing.T) {
	for _, path := range []string{"why?namespace=shop&name=web", "drops?namespace=shop", "tail?watch=true&include=steps&namespace=shop"} {
		for name, operator := range map[string]func(*scene){
			"operator": func(*scene) {},
			"reader":   func(s *scene) { s.deny("") },
			"unknown":  func(s *scene) { s.fail("") },
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				s := newScene(t)
				operator(s)
				text := s.readSteps(t, path)
				for _, word := range operators {
					isOfDelivery := word != "noise-of-acme"
					if strings.HasPrefix(path, "drops") && isOfDelivery {
						continue
					}
					if got := strings.Contains(text, word); got != (name == "operator") {
						t.Errorf("it has %q: %v, in %s", word, got, text)
					}
				}
				for _, action := range []string{v1alpha1.ActionDelivered, v1alpha1.ActionUnrouted, v1alpha1.ActionFiltered, v1alpha1.ActionWouldBe} {
					if !strings.Contains(text, `"action":"`+action+`"`) && !strings.HasPrefix(path, "drops") {
						t.Errorf("%s is missing in %s", action, text)
					}
				}
			})
		}
	}
}

// readSteps returns the answer to a query after delivers, up to the last step.
func (s *scene) readSteps(t *testing.T, path string) string {
	if !strings.HasPrefix(path, "tail") {
		s.delivers()
		return string(s.Do(t, http.MethodGet, root+path, nil).Body)
	}
	// An operator follows too, and what is encoded for him is for nobody else.
	root, client := s.listen(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	var text strings.Builder
	w := open(ctx, t, client, root+path)
	w.begun()
	s.mu.Lock()
	denied, failing := s.denied[""], s.failing[""]
	s.denied[""], s.failing[""] = false, false
	s.mu.Unlock()
	other := open(ctx, t, client, root+path)
	other.begun()
	s.mu.Lock()
	s.denied[""], s.failing[""] = denied, failing
	s.mu.Unlock()
	s.delivers()
	for other.item().Step.Action != v1alpha1.ActionWouldBe {
	}
	for {
		item := w.item()
		data, err := json.Marshal(item)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(data)
		if item.Step.Action == v1alpha1.ActionWouldBe {
			return text.String()
		}
	}
}

// A receiver that is not to have an Event says nothing about one that another receiver has.
func TestReaderSeesNoReceiverThatIsNotMeant(t *testing.T) {
	for name, test := range map[string]struct {
		delivered bool
		want      string
	}{"to another": {true, v1alpha1.ActionDelivered}, "to none": {false, v1alpha1.ActionUnrouted}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.deny("")
			e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}}
			s.trail.NotDelivered("archive", e, "to-archive", delivery.NotRouted, nil)
			if test.delivered {
				s.trail.Delivered("lake", e, 0)
			}
			why := get[v1alpha1.Explanation](t, s, "why?namespace=shop&name=web")
			if len(why.Steps) != 1 || why.Steps[0].Action != test.want {
				t.Errorf("got %+v, want %s alone", why.Steps, test.want)
			}
		})
	}
}

// Deliveries to several receivers are one step for those who may not know that there are several.
func TestDeliveriesAreOneStepForAReader(t *testing.T) {
	s := newScene(t)
	s.deny("")
	for range 3 {
		s.delivers()
	}
	for _, limit := range []string{"", "&limit=5"} {
		why := get[v1alpha1.Explanation](t, s, "why?namespace=shop&name=web"+limit)
		counts := map[string][]int64{}
		for _, step := range why.Steps {
			counts[step.Action] = append(counts[step.Action], step.Occurrences)
		}
		for _, action := range []string{v1alpha1.ActionDelivered, v1alpha1.ActionUnrouted} {
			if c := counts[action]; len(c) != 1 || c[0] != 3 {
				t.Errorf("%s%s: %v", action, limit, c)
			}
		}
		if why.Truncated {
			t.Errorf("truncated%s: %d steps", limit, len(why.Steps))
		}
	}
}

// A watch in which an operator sees more ends when the right to see it is taken away.
func TestWatchOfAnOperatorEndsWithTheRightToListAllEvents(t *testing.T) {
	s := newScene(t)
	root, client := s.listen(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	w := open(ctx, t, client, root+"tail?watch=true&include=steps&namespace=shop")
	w.begun()
	s.deny("")
	if status := w.end(); status == nil || status.Code != http.StatusForbidden && status.Code != http.StatusServiceUnavailable {
		t.Errorf("it ends with %+v", status)
	}
}
