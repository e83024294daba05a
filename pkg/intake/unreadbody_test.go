package intake

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A body that does not arrive delays no response over HTTP/1.1, whether a handler reads it or not, and does not keep
// the connection open. One that has arrived does not close the connection.
func TestResponseDoesNotWaitForTheRestOfABody(t *testing.T) {
	reading := func(w http.ResponseWriter, req *http.Request) {
		begun := make(chan struct{})
		go func() {
			close(begun)
			_, _ = io.Copy(io.Discard, req.Body)
		}()
		<-begun
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	refusing := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		body    string // of 10 bytes
		headers string
		code    string
		closes  bool
	}{
		"nobody reads it":         {refusing, "some", "", "401", true},
		"a handler reads it":      {reading, "some", "", "504", true},
		"it is to be asked for":   {refusing, "", "Expect: 100-continue\r\n", "401", true},
		"it has arrived":          {refusing, "everything", "", "401", false},
		"it has arrived, chunked": {refusing, "4\r\nsome\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n", "401", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			intake := newIntake()
			server := httptest.NewServer(newUnreadResponses(intake).buffered(test.handler))
			defer server.Close()
			conn := must(net.Dial("tcp", server.Listener.Addr().String()))
			defer func() { _ = conn.Close() }()
			equal(t, "error", conn.SetDeadline(time.Now().Add(writeTimeout)), nil)
			length := "Content-Length: 10\r\n"
			if strings.Contains(test.headers, "chunked") {
				length = ""
			}
			responses := bufio.NewReader(conn)
			for again := range 2 {
				_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: h\r\n%s%s\r\n%s", length, test.headers, test.body)
				equal(t, "error", err, nil)
				response, err := http.ReadResponse(responses, nil)
				if err != nil {
					t.Fatalf("request %d: %v", again, err)
				}
				equal(t, "code", response.Status[:3], test.code)
				equal(t, "it closes the connection", response.Close, test.closes)
				_, err = io.Copy(io.Discard, response.Body)
				equal(t, "error", err, nil)
				if test.closes {
					_, err := io.Copy(io.Discard, responses) // until the connection ends
					equal(t, "error", err, nil)
					break
				}
			}
			_ = conn.Close()
			server.Close() // waits for the handlers
			equal(t, "unread bytes", intake.unread.InUse(), 0)
		})
	}
}
