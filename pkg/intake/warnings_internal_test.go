package intake

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/warning"
)

// What a handler has begun may warn while the response is written, or later. That must not write to its header, which
// the runtime ends a process for.
func TestWarningsOfWhatOutlivesItsHandlerAreIgnored(t *testing.T) {
	var late context.Context
	ended := make(chan struct{})
	w := httptest.NewRecorder()
	withWarnings(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		late = req.Context()
		warning.AddWarning(late, "", "in time")
		w.WriteHeader(http.StatusGatewayTimeout)
		go func() {
			defer close(ended)
			warning.AddWarning(late, "", "late")
		}()
		w.Header().Set("X-Other", "written meanwhile")
	})).ServeHTTP(w, httptest.NewRequest(http.MethodPatch, "/", nil))
	<-ended
	equal(t, "warnings", w.Header()["Warning"], []string{`299 - "in time"`})
	equal(t, "code", w.Code, http.StatusGatewayTimeout)
}
