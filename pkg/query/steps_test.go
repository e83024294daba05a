package query_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
)

// drops has an occurrence of an Event of a Pod dropped, of the core API, or in club of another group.
func (s *scene) drops(namespace, pod, reason, reporter string) {
	apiVersion := "v1"
	if namespace == "club" {
		apiVersion = "club.example.com/v1"
	}
	s.trail.Ended(&occurrence.Occurrence{Weight: 1, User: "jane", Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: "Pod", Namespace: namespace, Name: pod, UID: "uid", FieldPath: "spec.containers{" + pod + "}"},
		Type:           "Warning", Reason: reason, Message: "it has failed", ReportingController: reporter,
	}}, occurrence.Settlement{Outcome: occurrence.Dropped, Reason: "queue_full"})
}

// An expression sees of a step the Event that it is about. What the step does not know is empty.
func TestTailFiltersStepsByTheirEvents(t *testing.T) {
	s := newScene(t)
	root, client := s.listen(t)
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	for _, expression := range []string{
		`event.metadata.namespace == "shop" && event.involvedObject.kind == "Pod" && event.involvedObject.name == "last"`,
		`event.type == "Warning" && event.reason == "Last" && event.message.startsWith("it") && event.involvedObject.uid == "uid" && event.involvedObject.apiVersion == "v1"`,
		`event.involvedObject.fieldPath == "spec.containers{last}"`,
		// As kubectl eventd asks for a group.
		`!event.involvedObject.apiVersion.contains("/")`,
		`!(event.involvedObject.apiVersion == "" || event.involvedObject.apiVersion.startsWith("club.example.com/"))`,
		`event.reportingComponent == "last.example.com" && event.count == 1 && event.lastTimestamp > timestamp("2001-01-01T00:00:00Z")`,
		`event.reason == "Last" && event.reportingInstance == "" && event.metadata.labels.size() == 0 && event.related.name == "" && event.action == ""`,
	} {
		w := open(ctx, t, client, root+"tail?watch=true&include=steps&match="+url.QueryEscape(expression))
		s.awaitWatches(t, 1)
		// The first is sent only when the watch has its place in the trail.
		for begun := false; !begun; {
			s.drops("club", "first", "First", "first.example.com")
			s.drops("shop", "last", "Last", "last.example.com")
			f, ok := w.next()
			if !ok {
				t.Fatalf("%s: the tail has ended", expression)
			}
			var item v1alpha1.TailItem
			if err := json.Unmarshal(f.Object, &item); err != nil {
				t.Fatal(err)
			}
			if begun = item.Step != nil; begun && item.Step.Regarding.Name != "last" {
				t.Errorf("%s: a step of %s is sent", expression, item.Step.Regarding.Name)
			}
		}
		_ = w.body.Body.Close()
		s.awaitWatches(t, 0)
	}
}

// A client sees whether there is more than it has asked for.
func TestAnswersSayWhetherOlderItemsAreLeftOut(t *testing.T) {
	s := newScene(t)
	for range 2 {
		s.drops("shop", "web", "First", "web.example.com")
		s.drops("shop", "web", "Second", "web.example.com")
	}
	whole := get[v1alpha1.Explanation](t, s, "why?name=web")
	if whole.Truncated || whole.Forgotten || len(whole.Steps) < 2 {
		t.Errorf("%d steps, truncated: %v, forgotten: %v", len(whole.Steps), whole.Truncated, whole.Forgotten)
	}
	part := get[v1alpha1.Explanation](t, s, "why?name=web&limit=1")
	if !part.Truncated || part.Forgotten || len(part.Steps) != 1 || part.Steps[0].Reason != "Second" {
		t.Errorf("not the last step: %+v", part)
	}
	if all := get[v1alpha1.DropList](t, s, "drops?limit=2"); all.Truncated || len(all.Items) != 2 {
		t.Errorf("%d drops, truncated: %v", len(all.Items), all.Truncated)
	}
	if newest := get[v1alpha1.DropList](t, s, "drops?limit=1"); !newest.Truncated || len(newest.Items) != 1 || newest.Items[0].Reason != "Second" {
		t.Errorf("not the newest drop: %+v", newest)
	}
}

// Steps come in bursts that are larger than what is kept for those who follow.
func TestATailSaysHowManyStepsItHasLost(t *testing.T) {
	for _, test := range []struct {
		about string
		most  int64 // of one bookmark
	}{{"", math.MaxInt64}, {"&namespace=shop", 1}} { // how many there are elsewhere is not shown
		t.Run(test.about, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const bursts, each = 3, 5000
				s := newScene(t)
				go func() {
					for range bursts {
						time.Sleep(10 * time.Second)
						for range each {
							s.trail.Delivered("archive", &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}}, 0)
						}
					}
				}()
				a := s.Do(t, http.MethodGet, root+"tail?watch=true&include=steps"+test.about, nil)
				var lost, sent, losses int64
				for line := range bytes.Lines(a.Body) {
					var frame struct{ Object v1alpha1.TailItem }
					if err := json.Unmarshal(line, &frame); err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					if n := frame.Object.Lost; n > 0 {
						lost += n
						losses++
						if n > test.most {
							t.Errorf("a bookmark says that %d are lost", n)
						}
					}
					if frame.Object.Step != nil {
						sent++
					}
				}
				if all := test.about == ""; losses < 1 || losses > bursts || all && lost+sent != bursts*each || !all && sent > 0 {
					t.Errorf("%d are lost, by %d bookmarks, and %d sent", lost, losses, sent)
				}
			})
		})
	}
}
