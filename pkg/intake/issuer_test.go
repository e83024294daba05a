package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// published is a transport to an apiserver that publishes an issuer.
type published struct {
	mu      sync.Mutex
	keys    []byte
	fails   func(*http.Request) (*http.Response, error) // nil if it answers
	fetched []time.Duration                             // when the keys were, since the beginning
	begun   time.Time
}

func (p *published) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *published) times() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Duration(nil), p.fetched...)
}

func (p *published) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != "apiserver" {
		panic("the token of this process is sent to " + req.URL.Host)
	}
	p.mu.Lock()
	fails := p.fails
	body := p.keys
	if req.URL.Path == "/prefix"+openIDConfigPath {
		p.fetched = append(p.fetched, time.Since(p.begun))
		body = []byte(`{"issuer":"` + testIssuer + `","jwks_uri":"https://elsewhere"}`)
	}
	p.mu.Unlock()
	if fails != nil {
		return fails(req)
	}
	return response(http.StatusOK, bytes.NewReader(body)), nil
}

func response(code int, body io.Reader) *http.Response {
	header := http.Header{"Location": {"https://elsewhere"}}
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: header, Body: io.NopCloser(body)}
}

// answering has one response to all requests.
func answering(code int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return response(code, strings.NewReader(body)), nil }
}

// publishing returns an issuer of these keys, and what publishes them.
func publishing(keys ...testKey) (*Issuer, *published) {
	p := &published{begun: time.Now()}
	p.publish(keys...)
	return must(NewIssuer(&rest.Config{Host: "https://apiserver/prefix", Transport: p})), p
}

func (p *published) publish(keys ...testKey) {
	var set []jsonWebKey
	for _, key := range keys {
		set = append(set, key.jwk())
	}
	p.set(func() { p.keys = keySet(set...) })
}

// running runs an issuer in a bubble until stop is called.
func running(t *testing.T, i *Issuer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done atomic.Bool
	go func() {
		i.Run(ctx)
		done.Store(true)
	}()
	return func() {
		cancel()
		synctest.Wait()
		equal(t, "it has stopped", done.Load(), true)
	}
}

func verifies(i *Issuer, token string) bool {
	_, ok := i.subject(token)
	return ok
}

// A new key is read because a token names it. Tokens that name keys which do not exist
// have the keys read once in issuerPause, and otherwise they are read once in
// issuerRefresh.
func TestKeysAreReadAgainWhenTheyRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := testKeys()["ES256"], newTestKey("second", "ES256")
		token, ofSecond := first.token("ns", "a"), second.token("ns", "a")
		i, p := publishing(first)
		equal(t, "verifies without an issuer", verifies(nil, token), false)
		equal(t, "verifies before the keys are read", verifies(i, token), false)
		defer running(t, i)()
		<-i.Tried()
		equal(t, "verifies", verifies(i, token), true)
		time.Sleep(time.Minute)
		equal(t, "reads within a minute", len(p.times()), 1)
		p.publish(second)
		equal(t, "verifies with a key that was not read", verifies(i, ofSecond), false)
		synctest.Wait()
		equal(t, "verifies with the other key", verifies(i, ofSecond), true)
		equal(t, "verifies with the former key", verifies(i, token), false)
		unknown := newTestKey("unknown", "ES256").token("ns", "a")
		for range 1000 {
			verifies(i, unknown)
			time.Sleep(100 * time.Millisecond)
		}
		if got := len(p.times()); got < 9 || got > 13 {
			t.Errorf("read %d times because of unknown keys for 100 s", got)
		}
		time.Sleep(issuerPause * 3 / 2)
		before := len(p.times())
		time.Sleep(issuerRefresh)
		equal(t, "reads in the time of a refresh", len(p.times())-before, 1)
	})
}

type endless struct{ read atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.read.Add(int64(len(b))) > 1<<30 {
		return 0, io.EOF
	}
	return len(b), nil
}

// Whatever the endpoint does, the last keys stay in use, it is tried ever less often,
// and Run ends with its context.
func TestEndpointThatDoesNotAnswerCostsNoKeys(t *testing.T) {
	large := &endless{}
	for name, fails := range map[string]func(*http.Request) (*http.Response, error){
		"forbidden":    answering(403, "no"),
		"not there":    answering(404, "no"),
		"elsewhere":    answering(302, "{}"),
		"garbage":      answering(200, "<html>"),
		"no keys":      answering(200, `{"issuer":"a","keys":[]}`),
		"no apiserver": func(*http.Request) (*http.Response, error) { return nil, errors.New("no connection") },
		"1 GiB":        func(*http.Request) (*http.Response, error) { return response(200, large), nil },
		"no answer": func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"an answer without end": func(req *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
			return response(200, body), nil
		},
	} {
		bubble(t, name, func(t *testing.T) {
			key := testKeys()["ES256"]
			i, p := publishing(key)
			token := key.token("ns", "a")
			p.set(func() { p.fails = fails })
			stop := running(t, i)
			<-i.Tried()
			if took := time.Since(p.begun); took > issuerTimeout {
				t.Errorf("the first attempt took %s", took)
			}
			equal(t, "verifies without keys", verifies(i, token), false)
			p.set(func() { p.fails = nil })
			time.Sleep(issuerPause)
			synctest.Wait()
			equal(t, "verifies when the endpoint has answered", verifies(i, token), true)
			p.set(func() { p.fails, p.fetched = fails, nil })
			time.Sleep(12 * time.Hour)
			equal(t, "verifies with the last keys", verifies(i, key.token("ns", "a")), true)
			if got := len(p.times()); got < 60 || got > 90 {
				t.Errorf("tried %d times in 12 hours", got)
			}
			p.set(func() { p.fails = nil })
			time.Sleep(2 * issuerRefresh)
			p.set(func() { p.fails, p.fetched = fails, nil })
			time.Sleep(issuerRefresh + 3*issuerPause)
			equal(t, "tried soon after the first failure", len(p.times()) > 1, true)
			stop()
		})
	}
	if read := large.read.Load(); read > 100*(maxIssuerBytes+1<<20) {
		t.Errorf("read %d bytes of 1 GiB", read)
	}
}

// A transport that ignores its context holds up neither requests nor a stop, and costs
// one goroutine.
func TestTransportThatNeverReturnsIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		var calls atomic.Int64
		i, p := publishing(testKeys()["ES256"])
		p.set(func() {
			p.fails = func(*http.Request) (*http.Response, error) {
				calls.Add(1)
				<-never
				return nil, errors.New("at last")
			}
		})
		stop := running(t, i)
		<-i.Tried()
		time.Sleep(time.Hour)
		equal(t, "verifies without keys", verifies(i, testKeys()["ES256"].token("ns", "a")), false)
		equal(t, "calls under way", calls.Load(), 1)
		stop()
		close(never)
	})
}
