package query_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/test/intaketest"
)

// pipe is a response without a buffer: what is written waits until it is read from the other end, or for its deadline.
type pipe struct {
	http.ResponseWriter
	net.Conn
}

func (p pipe) Write(b []byte) (int, error) { return p.Conn.Write(b) }

func (pipe) Flush() {}

// A watch that ends does not wait for a client that reads nothing.
func TestWriteThatIsBlockedEndsWithItsWatch(t *testing.T) {
	const path = root + "top?watch=true"
	for name, leading := range map[string]bool{"answered here": true, "relayed": false} {
		for cause, want := range map[string]time.Duration{"the process shuts down": 0, "the leader changes": 0, "none": 10 * time.Second} {
			t.Run(name+", "+cause, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newScene(t, func(o *query.Options) {
						o.Leading = func() bool { return leading }
						o.Relay = func(context.Context, *http.Request) (*http.Response, error) {
							return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("frame"))}, nil
						}
					})
					own, client := net.Pipe()
					defer func() { _, _ = own.Close(), client.Close() }()
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						s.ServeHTTP(pipe{httptest.NewRecorder(), own}, intaketest.NewRequest(t.Context(), t, http.MethodGet, path, nil))
					}()
					synctest.Wait()
					began := time.Now()
					switch cause {
					case "the process shuts down":
						close(s.stopping)
					case "the leader changes":
						s.api.LeaderChanged()
					}
					<-ended
					if took := time.Since(began); took != want {
						t.Errorf("it ends after %s, not %s", took, want)
					}
				})
			})
		}
	}
}

// timed is a pipe that tells when each write begins.
type timed struct {
	pipe
	begun chan time.Time
}

// Write implements http.ResponseWriter.
func (w timed) Write(b []byte) (int, error) {
	w.begun <- time.Now()
	return w.pipe.Write(b)
}

// A client may take nearly the whole timeout for each write: the time of those before does not count.
func TestEachWriteHasATimeoutOfItsOwn(t *testing.T) {
	for _, path := range []string{"top?watch=true", "tail?watch=true"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				own, client := net.Pipe()
				defer func() { _, _ = own.Close(), client.Close() }()
				w := timed{pipe{httptest.NewRecorder(), own}, make(chan time.Time, 100)}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.ServeHTTP(w, intaketest.NewRequest(t.Context(), t, http.MethodGet, root+path, nil))
				}()
				next := func() (begun time.Time) {
					select {
					case begun = <-w.begun:
					case <-ended:
						t.Fatal("it has ended")
					}
					return begun
				}
				buffer := make([]byte, 1<<20)
				for range 5 {
					next()
					time.Sleep(10*time.Second - time.Millisecond)
					if _, err := client.Read(buffer); err != nil {
						t.Fatal(err)
					}
				}
				begun := next() // and nobody reads
				<-ended
				if took := time.Since(begun); took != 10*time.Second {
					t.Errorf("the last write has ended after %s", took)
				}
			})
		})
	}
}
