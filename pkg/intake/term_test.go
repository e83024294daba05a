package intake

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A response in a term that has ended leaves nothing for the one in a later term.
func TestResponseOfATermThatHasEndedIsWithheld(t *testing.T) {
	call, w := &call{}, httptest.NewRecorder()
	w.Header().Set("Audit-Id", "a")
	req := requestWith("", "").WithContext(withCall(t.Context(), call))
	for _, ends := range []bool{true, false} {
		written := handleInTerm(w, req, Term{}, func(w http.ResponseWriter, _ *http.Request) {
			call.termEnded.Store(call.termEnded.Load() || ends)
			w.Header().Set("Ends", fmt.Sprint(ends))
			_, _ = fmt.Fprint(w, "ends: ", ends)
		})
		equal(t, "written", written, !ends)
		equal(t, "header", w.Header(), map[bool]http.Header{true: {"Audit-Id": {"a"}}, false: {"Audit-Id": {"a"}, "Ends": {"false"}}}[ends])
	}
	equal(t, "body", w.Body.String(), "ends: false")
}

// Only the watch is read of the options of a list, as metav1.ListOptions has it.
func TestOptionsOfAListAreNotParsed(t *testing.T) {
	for query, verb := range map[string]string{
		"": "list", "?limit=x": "list", "?watch": "watch", "?watch=1": "watch", "?watch=0": "list", "?watch=False": "list",
		"?fieldSelector=metadata.name=a": "list", "?fieldSelector=metadata.name=a&watch=true": "watch",
	} {
		info := must(newResolver().NewRequestInfo(httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/ns/events"+query, nil)))
		equal(t, query, [2]string{info.Verb, info.Name}, [2]string{verb, ""})
	}
}
