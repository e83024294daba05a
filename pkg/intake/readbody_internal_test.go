package intake

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// The server ends the read of a body that does not arrive in time.
func TestServerEndsTheReadOfABody(t *testing.T) {
	for name, test := range map[string]struct {
		http2  bool
		body   string // of 10 bytes
		within time.Duration
		code   int
	}{
		"HTTP/1.1, it does not arrive": {false, "some", 50 * time.Millisecond, http.StatusGatewayTimeout},
		"HTTP/2, it does not arrive":   {true, "some", 50 * time.Millisecond, http.StatusGatewayTimeout},
		"HTTP/1.1, it arrives":         {false, "everything", time.Minute, http.StatusOK},
		"HTTP/2, it arrives":           {true, "everything", time.Minute, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIntake()
			handler := newUnreadResponses(i).buffered(withTimeoutAnswer(i.withBody(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(w, req.Body)
			})))
			ended := make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				ctx, cancel := context.WithTimeout(req.Context(), test.within/2)
				defer cancel()
				ctx = request.WithReceivedTimestamp(ctx, time.Now().Add(test.within-abandonAfter))
				handler.ServeHTTP(w, req.WithContext(ctx))
				close(ended)
			}))
			server.EnableHTTP2 = test.http2
			server.StartTLS()
			defer server.Close()
			body, rest := io.Pipe()
			defer func() { _ = rest.Close() }()
			req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.MultiReader(strings.NewReader(test.body), body)))
			if req.ContentLength = 10; len(test.body) == 10 {
				_ = rest.Close()
			}
			client := server.Client()
			client.Timeout = 10 * time.Second
			response, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "protocol", response.ProtoMajor == 2, test.http2)
			equal(t, "code", response.StatusCode, test.code)
			got := string(must(io.ReadAll(response.Body)))
			equal(t, "the body arrived", got == "everything", test.code == http.StatusOK)
			<-ended
		})
	}
}

// lateWriter ends the read of a body, and takes its time.
type lateWriter struct {
	*httptest.ResponseRecorder
	body    io.Closer
	returns chan struct{}
}

func (w *lateWriter) SetReadDeadline(time.Time) error {
	_ = w.body.Close()
	<-w.returns
	return nil
}

// A response writer is not used after its request. Over HTTP/2, net/http panics then.
func TestReadDeadlineIsSetBeforeARequestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		w := &lateWriter{httptest.NewRecorder(), body, make(chan struct{})}
		i := newIntake()
		handler := newUnreadResponses(i).buffered(withTimeoutAnswer(i.withBody(http.NotFound)))
		ctx, cancel := context.WithTimeout(request.WithReceivedTimestamp(t.Context(), time.Now()), time.Minute)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
		req.ContentLength = 10
		ended := false
		go func() {
			handler.ServeHTTP(w, req)
			ended = true
		}()
		time.Sleep(2 * abandonAfter)
		synctest.Wait()
		equal(t, "ended", ended, false)
		close(w.returns)
		synctest.Wait()
		equal(t, "ended", ended, true)
		equal(t, "code", w.Code, http.StatusGatewayTimeout)
	})
}
