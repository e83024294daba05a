package intake

import (
	"context"
	"net/http"
	"sync"

	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/warning"
)

// warnings are those of one request. A handler of k8s.io/apiserver that is out of time responds while what it has
// begun still runs, and may warn. endpointfilters.WithWarningRecorder would write that to the header of the response,
// which is not safe: the runtime ends a process in which a map is written twice at once. So warnings are in a header
// of their own until the response begins. What comes later is ignored.
type warnings struct {
	mu       sync.Mutex
	recorder context.Context // has that of k8s.io/apiserver, for its format and limits
	own      http.Header
	begun    bool // the response
}

// withWarnings has warnings in the header of the response.
func withWarnings(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		own := &warnings{own: make(http.Header)}
		recorded := http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) { own.recorder = inner.Context() })
		endpointfilters.WithWarningRecorder(recorded).ServeHTTP(headerOnly(own.own), req)
		defer own.addTo(w.Header())
		response := &warningResponse{ResponseWriter: w, warnings: own}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req.WithContext(warning.WithWarningRecorder(req.Context(), own)))
	})
}

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(agent, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun {
		warning.AddWarning(w.recorder, agent, text)
	}
}

// addTo adds all warnings to the header of a response that begins.
func (w *warnings) addTo(header http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return
	}
	w.begun = true
	for name, values := range w.own {
		header[name] = append(header[name], values...)
	}
}

// warningResponse adds the warnings before the response.
type warningResponse struct {
	http.ResponseWriter
	warnings *warnings
}

func (r *warningResponse) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *warningResponse) WriteHeader(code int) {
	r.warnings.addTo(r.Header())
	r.ResponseWriter.WriteHeader(code)
}

func (r *warningResponse) Write(b []byte) (int, error) {
	r.warnings.addTo(r.Header())
	return r.ResponseWriter.Write(b)
}

// headerOnly is a response that is only a header.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) WriteHeader(int)             {}
func (h headerOnly) Write(b []byte) (int, error) { return len(b), nil }
