package intake

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The server ends the read of a usual body that does not arrive in time. A response writer is not used after its
// request: over HTTP/2, it belongs to another one then.
func TestServerEndsTheReadOfAUsualBody(t *testing.T) {
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
			unread := newUnreadResponses(newIntake())
			chain := withUsualBody(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(w, req.Body)
			}))
			ended := make(chan *usual, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				u := new(usual)
				u.call.usual, u.abandonAt = u, time.Now().Add(test.within)
				u.serve(w, req, time.Now().Add(time.Minute), unread, chain)
				ended <- u
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
			u := <-ended
			u.arriving.abandon() // a timer that fires now
			equal(t, "abandoned", u.arriving.abandoned, test.code != http.StatusOK)
		})
	}
}
