package intake

import (
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
	issuer  string
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
		body = []byte(`{"issuer":"` + p.issuer + `","jwks_uri":"https://elsewhere"}`)
	}
	p.mu.Unlock()
	if fails != nil {
		return fails(req)
	}
	return answering(http.StatusOK, strings.NewReader(string(body))), nil
}

func answering(code int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Location": {"https://elsewhere"}}, Body: io.NopCloser(body)}
}

// publishing returns an issuer of these keys, and what publishes them.
func publishing(t *testing.T, keys ...testKey) (*Issuer, *published) {
	t.Helper()
	p := &published{issuer: testIssuer, begun: time.Now()}
	p.publish(keys...)
	i, err := NewIssuer(&rest.Config{Host: "https://apiserver/prefix", Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	return i, p
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
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.Run(ctx)
	}()
	return func() {
		cancel()
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("it runs on")
		}
	}
}

func verifies(i *Issuer, token string) bool {
	_, ok := i.subject(token)
	return ok
}

func TestTokenVerifiesOnceTheKeysAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := testKeys()["ES256"]
		i, _ := publishing(t, key)
		if verifies(nil, key.token("ns", "a")) || verifies(i, key.token("ns", "a")) {
			t.Error("verifies without keys")
		}
		defer running(t, i)()
		<-i.Tried()
		if !verifies(i, key.token("ns", "a")) {
			t.Error("does not verify")
		}
	})
}

// A new key is read because a token names it. Tokens that name keys which do not exist
// have the keys read once in issuerPause, and otherwise they are read once in
// issuerRefresh.
func TestKeysAreReadAgainWhenTheyRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := testKeys()["ES256"], newTestKey("second", "ES256")
		i, p := publishing(t, first)
		defer running(t, i)()
		<-i.Tried()
		time.Sleep(time.Minute)
		if got := len(p.times()); got != 1 {
			t.Fatalf("read %d times within a minute", got)
		}
		p.publish(second)
		if verifies(i, second.token("ns", "a")) {
			t.Error("verifies with a key that was not read")
		}
		synctest.Wait()
		if !verifies(i, second.token("ns", "a")) || verifies(i, first.token("ns", "a")) {
			t.Error("the keys were not read again for a token with another one")
		}
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
		if got := len(p.times()) - before; got != 1 {
			t.Errorf("read %d times in %s", got, issuerRefresh)
		}
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
		"forbidden":    func(*http.Request) (*http.Response, error) { return answering(403, strings.NewReader("no")), nil },
		"not there":    func(*http.Request) (*http.Response, error) { return answering(404, strings.NewReader("no")), nil },
		"elsewhere":    func(*http.Request) (*http.Response, error) { return answering(302, strings.NewReader("{}")), nil },
		"no apiserver": func(*http.Request) (*http.Response, error) { return nil, errors.New("no connection") },
		"garbage":      func(*http.Request) (*http.Response, error) { return answering(200, strings.NewReader("<html>")), nil },
		"no keys": func(*http.Request) (*http.Response, error) {
			return answering(200, strings.NewReader(`{"issuer":"a","keys":[]}`)), nil
		},
		"1 GiB": func(*http.Request) (*http.Response, error) { return answering(200, large), nil },
		"no answer": func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"an answer without end": func(req *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			context.AfterFunc(req.Context(), func() { w.CloseWithError(req.Context().Err()) })
			return answering(200, body), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := testKeys()["ES256"]
				i, p := publishing(t, key)
				p.set(func() { p.fails = fails })
				stop := running(t, i)
				<-i.Tried()
				if took := time.Since(p.begun); took > issuerTimeout {
					t.Errorf("the first attempt took %s", took)
				}
				if verifies(i, key.token("ns", "a")) {
					t.Error("verifies without keys")
				}
				p.set(func() { p.fails = nil })
				time.Sleep(issuerPause)
				synctest.Wait()
				if !verifies(i, key.token("ns", "a")) {
					t.Error("the keys were not read when the endpoint answered")
				}
				p.set(func() { p.fails, p.fetched = fails, nil })
				time.Sleep(12 * time.Hour)
				token := key.token("ns", "a")
				if !verifies(i, token) {
					t.Error("the last keys are not in use any more")
				}
				if got := len(p.times()); got < 60 || got > 90 {
					t.Errorf("tried %d times in 12 hours", got)
				}
				stop()
			})
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
		i, p := publishing(t, testKeys()["ES256"])
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
		if verifies(i, testKeys()["ES256"].token("ns", "a")) {
			t.Error("verifies without keys")
		}
		if got := calls.Load(); got != 1 {
			t.Errorf("%d calls are under way", got)
		}
		stop()
		close(never)
	})
}
