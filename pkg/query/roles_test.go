package query_test

import (
	"encoding/json"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// kubectl eventd tells by these what only another role could answer.
func TestWhatAProcessDoesNotServeIsToldFromWhatTheCallerMayNotSee(t *testing.T) {
	s := newScene(t, func(o *query.Options) { o.History, o.Role = nil, "intake" })
	if why := get[v1alpha1.Explanation](t, s, "why?name=web&namespace=shop"); why.Role != "intake" {
		t.Errorf("why is of the role %q", why.Role)
	}
	if top := get[v1alpha1.Top](t, s, "top?namespace=shop"); top.Role != "intake" || !top.OnlyReported {
		t.Errorf("top is %+v", top)
	}
	s.deny("shop")
	s.deny("")
	for path, test := range map[string]struct {
		code   int
		reason metav1.StatusReason
		group  string
	}{
		"tail?watch=true":                                       {http.StatusNotFound, metav1.StatusReasonNotFound, v1alpha1.GroupName},
		"tail?watch=true&include=steps,events":                  {http.StatusNotFound, metav1.StatusReasonNotFound, v1alpha1.GroupName},
		"tail?watch=true&match=x":                               {http.StatusNotFound, metav1.StatusReasonNotFound, v1alpha1.GroupName},
		"tail?watch=true&include=steps&match=x&namespace=third": {http.StatusBadRequest, metav1.StatusReasonBadRequest, ""},
		"timeline?namespace=third":                              {http.StatusForbidden, metav1.StatusReasonForbidden, v1alpha1.GroupName},
		"top?namespace=shop":                                    {http.StatusForbidden, metav1.StatusReasonForbidden, ""},
	} {
		var status metav1.Status
		a := s.Do(t, http.MethodGet, root+path, nil)
		if err := json.Unmarshal(a.Body, &status); err != nil {
			t.Fatal(err)
		}
		if a.Code != test.code || status.Reason != test.reason || status.Details != nil && status.Details.Group != test.group {
			t.Errorf("%s: answered %d, %+v", path, a.Code, status)
		}
	}
}
