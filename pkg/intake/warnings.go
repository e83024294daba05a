package intake

import (
	"context"
	"net/http"
	"sync"

	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/warning"

	"github.com/eventd/eventd/internal/responsestart"
)

// warnings are those of one request. When the time of a request is over, a handler of k8s.io/apiserver responds, and the
// work that it has started goes on. If that work warned through endpointfilters.WithWarningRecorder, it would write to
// the header of the response at the same time as the handler: Go ends a process for concurrent writes to a map. So
// warnings have a header of their own, which is added when the response begins. Later ones are ignored.
type warnings struct {
	mu sync.Mutex
	// recorder carries the recorder of k8s.io/apiserver, which formats, deduplicates and limits, and writes to header.
	recorder  context.Context
	header    http.Header
	responded bool // the response has begun
}

// withWarnings adds the warnings of a request to its response, as WithWarningRecorder does.
func withWarnings(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws := &warnings{header: make(http.Header)}
		carrier := http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) { ws.recorder = inner.Context() })
		endpointfilters.WithWarningRecorder(carrier).ServeHTTP(headerOnly(ws.header), req)
		defer ws.addTo(w.Header())
		response := &responsestart.Writer{ResponseWriter: w, Begin: func(int) { ws.addTo(w.Header()) }}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), req.WithContext(warning.WithWarningRecorder(req.Context(), ws)))
	})
}

// AddWarning implements warning.Recorder.
func (w *warnings) AddWarning(agent, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.responded {
		warning.AddWarning(w.recorder, agent, text)
	}
}

// addTo adds all warnings to the header of a response that begins.
func (w *warnings) addTo(header http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.responded {
		return
	}
	w.responded = true
	for name, values := range w.header {
		header[name] = append(header[name], values...)
	}
}

// headerOnly is a response that is only a header.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) WriteHeader(int)             {}
func (h headerOnly) Write(b []byte) (int, error) { return len(b), nil }
