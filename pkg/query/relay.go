package query

import (
	"context"
	"io"
	"net/http"

	"github.com/eventd/eventd/pkg/intake"
)

// maxRelayedBytes limits the leader's answer to a query: more than two lists of maxAnswerBytes, and the rest of it.
const maxRelayedBytes = 2*maxAnswerBytes + 256<<10

// relayed returns what has the leader answer. The leader reviews the rights of the caller again.
func (a *API) relayed(to intake.Query, q *query, changed <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		life, end := a.life(req.Context(), changed)
		defer end()
		var response *http.Response
		var err error
		q.wait(req.Context(), func() { response, err = a.options.Relay(life, to.Request) })
		if err != nil {
			writeError(w, intake.Unavailable(1, "the leader did not answer the query: "+err.Error()))
			return
		}
		defer func() { _ = response.Body.Close() }()
		for _, name := range []string{"Content-Type", "Retry-After", "X-Content-Type-Options", "X-Accel-Buffering", "Content-Encoding"} {
			if value := response.Header.Get(name); value != "" {
				w.Header().Set(name, value)
			}
		}
		if q.Watch {
			copyStream(life, w, response)
			return
		}
		body, err := io.ReadAll(io.LimitReader(response.Body, maxRelayedBytes))
		if err != nil {
			writeError(w, intake.Unavailable(1, "the leader did not answer the query: "+err.Error()))
			return
		}
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(body)
	}
}

// copyStream sends what the leader sends, as it comes.
func copyStream(life context.Context, w http.ResponseWriter, response *http.Response) {
	w.WriteHeader(response.StatusCode)
	s := newStream(w, false, false)
	defer context.AfterFunc(life, s.close)()
	buffer := make([]byte, maxBuffered)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 && s.write(buffer[:n]) != nil || err != nil {
			return
		}
	}
}
