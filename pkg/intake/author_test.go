package intake_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/occurrence"
)

// rights allow what is listed, as "verb name", and have no opinion about anything else.
func rights(list ...string) setting {
	return authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if slices.Contains(list, a.GetVerb()+" "+a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

func TestWhoMayOnlyCreateIsKnownOfEachOccurrence(t *testing.T) {
	post := func(t *testing.T, s *server) answer { return s.Post(t, classic("a", 1)) }
	postNew := func(t *testing.T, s *server) answer {
		return s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a"))
	}
	put := func(t *testing.T, s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/a", classic("a", 2)) }
	patch := func(t *testing.T, s *server) answer { return s.Patch(t, "a", `{"count":2}`) }
	type requests = []func(*testing.T, *server) answer
	for _, test := range []struct {
		name   string
		rights []string
		do     requests
		want   []bool // of each occurrence
	}{
		{"a create without more", []string{"create "}, requests{post}, []bool{true}},
		{"a create, and the right to patch", []string{"create ", "patch "}, requests{post}, []bool{false}},
		{"a create through the other API", []string{"create "}, requests{postNew}, []bool{true}},
		{"a create, and the right to patch that name", []string{"create ", "patch a"}, requests{post}, []bool{true}},
		{"an update that creates", []string{"create ", "update "}, requests{put}, []bool{false}},
		{"an update that creates, and the right to update that name", []string{"create ", "update a", "patch "}, requests{put}, []bool{true}},
		{"a patch", []string{"create ", "patch "}, requests{post, patch}, []bool{false, false}},
		{"a patch, and the right to patch that name", []string{"create ", "patch a"}, requests{post, patch}, []bool{true, true}},
		{"an update", []string{"create ", "update "}, requests{post, put}, []bool{true, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, written(), rights(test.rights...))
			for _, do := range test.do {
				if a := do(t, s); a.Code >= 300 {
					t.Fatalf("answered %d: %s", a.Code, a.Body)
				}
			}
			var got []bool
			for _, o := range s.Pipeline.Occurrences() {
				got = append(got, o.CreateOnly)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("create only: %v, want %v", got, test.want)
			}
		})
	}
}

// For another user the same Event of the same name is not a repeated POST.
func TestPostIsJoinedBySameUserOnly(t *testing.T) {
	for _, test := range []struct {
		second string
		code   int
	}{{"jane", 201}, {"joe", 409}} {
		synctest.Test(t, func(t *testing.T) {
			p := kept()
			s := serve(t, p, authenticatedByHeader)
			answers := make([]answer, 2)
			for i, who := range []string{"jane", test.second} {
				go func() { answers[i] = s.postAs(t, who, classic("a", 1)) }()
				synctest.Wait()
			}
			(<-p.Recorded).Settled(stored(occurrence.Created, 7))
			synctest.Wait()
			answers[0].Want(t, 201, "")
			if got := answers[1].Code; got != test.code {
				t.Errorf("the same from %s is answered %d, want %d", test.second, got, test.code)
			}
			p.WantRecorded(t, 1)
		})
	}
}
