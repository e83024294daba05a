package intake_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// reporter posts Events as somebody, over one connection.
type reporter struct {
	client *http.Client
	url    string
	token  string
}

func newReporter(t *testing.T, where *listening, token string) *reporter {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &reporter{&http.Client{Transport: transport}, "https://" + where.address() + coreEvents, token}
}

func (r *reporter) post(t *testing.T, name string) (code int, took time.Duration) {
	req := newRequest(t.Context(), t, http.MethodPost, r.url, classic(name, 1), "Authorization", "Bearer "+r.token)
	req.RequestURI = ""
	begun := time.Now()
	response, err := r.client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, 0
	}
	_ = response.Body.Close()
	return response.StatusCode, time.Since(begun)
}

// p99 is of so many requests, one after another with a pause.
func (r *reporter) p99(t *testing.T, what string, count int, pause time.Duration) time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range count {
		time.Sleep(pause) // the rate of this client, and no wait for anything
		code, d := r.post(t, fmt.Sprint(what, i))
		if code != http.StatusCreated {
			t.Errorf("%s: answered %d", what, code)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// One caller has ten times as many requests under way as there are seats, over
// HTTP/2, and another one that sends few has all of them answered, soon. Both, and
// the server, share the CPUs of the test, so this bounds what a queue without turns
// would multiply, and does not measure microseconds; the log has the figures.
func TestFloodOfOneCallerDoesNotDelayAnother(t *testing.T) {
	who := &bearers{}
	s := serve(t, written(), who.set)
	where := listenTLS(t, s)
	quiet, noisy := newReporter(t, where, "quiet"), newReporter(t, where, "noisy")
	quiet.post(t, "warm")
	alone := quiet.p99(t, "alone", 200, 5*time.Millisecond)

	var stop atomic.Bool
	var sent, refused atomic.Int64
	var flood sync.WaitGroup
	for i := range 80 {
		flood.Go(func() {
			for n := 0; !stop.Load(); n++ {
				if code, _ := noisy.post(t, fmt.Sprintf("noisy-%d-%d", i, n)); code == http.StatusTooManyRequests {
					refused.Add(1)
				}
				sent.Add(1)
			}
		})
	}
	flooded := quiet.p99(t, "flooded", 200, 5*time.Millisecond)
	stop.Store(true)
	flood.Wait()
	t.Logf("p99 alone %s, with %d requests of another %s; of these %d were refused", alone, sent.Load(), flooded, refused.Load())
	if flooded > 10*alone+500*time.Millisecond {
		t.Errorf("p99 %s, and %s without the flood", flooded, alone)
	}
}
