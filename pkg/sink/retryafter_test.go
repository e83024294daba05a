package sink

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/occurrence"
)

// Priority and fairness, and what stands in front of an apiserver, say Retry-After
// in the header alone.
func TestRetryAfterIsReadFromTheHeader(t *testing.T) {
	for name, body := range map[string]string{
		"text/plain":       "later",
		"application/json": `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","code":%d,"details":{"retryAfterSeconds":7}}`,
	} {
		for _, code := range []int{429, 503} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", name)
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(code)
					if name == "application/json" {
						fmt.Fprintf(w, body, code)
					} else {
						fmt.Fprint(w, body)
					}
				}))
				defer s.Close()
				_, err := clientFor(t, &rest.Config{Host: s.URL}).Create(t.Context(), occurrence.CoreV1, testEvent(false))
				if a := classify(verbCreate, nil, err); a.after != 7*time.Second {
					t.Errorf("%v: ask again after %v", err, a.after)
				}
			})
		}
	}
}
