package query_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Pods of the same name are in two namespaces. A caller who may see one of them learns nothing of the other.
func TestAnswersOfTheTrailHaveTheNamespacesOfTheQueryAlone(t *testing.T) {
	s := newScene(t)
	s.deny("club")
	for range 3 {
		s.happens("club", "web", "secret")
		s.drops("club", "web", "Secret", "secret.example.com")
	}
	s.happens("shop", "web", "it has failed")
	s.drops("shop", "web", "Failed", "shop.example.com")

	why := get[v1alpha1.Explanation](t, s, "why?namespace=shop&name=web")
	if len(why.Steps) != 2 || len(why.Events) != 1 { // recorded and dropped
		t.Errorf("why has %d steps and %d Events", len(why.Steps), len(why.Events))
	}
	for _, step := range why.Steps {
		if step.Namespace != "shop" {
			t.Errorf("why has the step %+v", step)
		}
	}
	for _, event := range why.Events {
		if event.Namespace != "shop" {
			t.Errorf("why has the Event %+v", event)
		}
	}
	drops := get[v1alpha1.DropList](t, s, "drops?namespace=shop")
	if len(drops.Items) != 1 || drops.Items[0].Namespace != "shop" {
		t.Errorf("drops are %+v", drops.Items)
	}
	for _, by := range []string{"object", "reason", "namespace", "reporter"} {
		top := get[v1alpha1.Top](t, s, "top?namespace=shop&by="+by)
		if top.Occurrences != 1 || len(top.Items) != 1 || top.Items[0].Occurrences != 1 {
			t.Errorf("top by %s has %d occurrences: %+v", by, top.Occurrences, top.Items)
		}
	}
}

// An apiserver that does not answer a review has not allowed the query.
func TestQueryWhoseReviewFailsIsNotAnswered(t *testing.T) {
	for resource, path := range queries {
		t.Run(resource, func(t *testing.T) {
			s := newScene(t)
			s.happens("shop", "web", "secret")
			s.fail(map[bool]string{true: "", false: "shop"}[resource == "status"])
			s.Do(t, http.MethodGet, root+path, nil).Want(t, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		})
	}
}
