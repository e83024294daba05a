package faultproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

func TestPauseIsAnAPIServerThatIsStopped(t *testing.T) {
	for proto, next := range protocols {
		t.Run(proto, func(t *testing.T) {
			backend := newFake(t)
			p := New(t, backend.config, 1)
			p.SetRules(Rule{Match: Match{NamePrefix: "hanging"}, Probability: 1, Fault: BeforeWrite(Hang)})
			c := clientOf(t, p, next...)
			backend.holdWrites(t)
			passing := c.start(t.Context(), "ns", "passing")
			backend.waitArrived(t, 1)
			hanging := c.start(t.Context(), "ns", "hanging")
			await.Until(t, "it hangs", func() bool { r := p.Record(); return len(r) == 2 && r[1].Fault != "" })
			idle := dial(t, p)

			p.Pause()
			p.Pause() // does nothing
			if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("an idle connection got %v", err)
			}
			for _, answer := range []<-chan got{passing, hanging} {
				if g := receive(t, answer); g.err == nil || errors.Is(g.err, syscall.ECONNREFUSED) {
					t.Errorf("a request that was under way got %d, %v", g.code, g.err)
				}
			}
			r := p.Record()
			if !r[0].Ended || r[0].Err == nil || r[0].Answer != 0 || !r[1].Ended || r[1].Forwarded || r[1].Answer != 0 {
				t.Errorf("recorded is %+v", r)
			}
			await.Until(t, "a client that has noticed is refused", func() bool {
				return errors.Is(c.create(t.Context(), "ns", "refused").err, syscall.ECONNREFUSED)
			})
			backend.wantWrites(t, 1)
		})
	}
}

func TestResumeGoesOnUnderTheSameAddress(t *testing.T) {
	backend, p, c := setUp(t)
	for range 20 {
		// The client may find out only now that its old connection is gone.
		await.Until(t, "the client gets an answer", func() bool { return c.create(t.Context(), "ns", "a").code == http.StatusCreated })
		p.Pause()
		for range 2 { // the second does nothing
			if err := p.Resume(); err != nil {
				t.Fatal(err)
			}
		}
	}
	backend.wantWrites(t, 20)
	if e := p.Record()[19]; e.Number != 20 {
		t.Errorf("the last entry is %+v, want number 20: a pause changes no fate", e)
	}
}

func TestPauseForgetsLateWritesThatWait(t *testing.T) {
	backend, p, c := setUp(t, always(LateWrite(Fixed(time.Hour), Status(504))))
	c.create(t.Context(), "ns", "a")
	p.Pause()
	if e := onlyEntry(t, p); e.Forwarded || e.Answer != 504 {
		t.Errorf("recorded is %+v", e)
	}
	backend.wantWrites(t, 0)
}

// After Pause there are no requests to the backend, and all of its answers are known.
func TestPauseWaitsForStruckWritesThatAreWithTheBackend(t *testing.T) {
	backend, p, c := setUp(t, always(AfterWrite(ResetStream)))
	release := backend.holdWrites(t)
	answer := c.start(t.Context(), "ns", "a")
	backend.waitArrived(t, 1)
	paused := make(chan struct{})
	go func() { p.Pause(); close(paused) }()
	receive(t, answer) // the connections are reset
	select {
	case <-paused:
		t.Error("Pause does not wait")
	default:
	}
	release()
	<-paused
	if r := p.Record(); !r[0].Ended || !r[0].Succeeded() {
		t.Errorf("recorded is %+v", r)
	}
}

func TestFreezeSwallowsEverythingUntilResume(t *testing.T) {
	for proto, next := range protocols {
		t.Run(proto, func(t *testing.T) {
			backend := newFake(t)
			p := New(t, backend.config, 1)
			c := clientOf(t, p, next...)
			wantCreated(t, c.create(t.Context(), "ns", "before"))
			p.Freeze()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if g := c.create(ctx, "ns", "impatient"); !errors.Is(g.err, context.DeadlineExceeded) {
				t.Errorf("the client got %d, %v", g.code, g.err)
			}
			backend.wantWrites(t, 1)
			patient := c.start(t.Context(), "ns", "patient")
			if err := p.Resume(); err != nil {
				t.Fatal(err)
			}
			wantCreated(t, receive(t, patient))
		})
	}
}

// The answer that is on its way is held, too.
func TestFreezeHoldsAnswers(t *testing.T) {
	backend, p, c := setUp(t)
	release := backend.holdWrites(t)
	answer := c.start(t.Context(), "ns", "a")
	backend.waitArrived(t, 1)
	p.Freeze()
	release()
	await.Until(t, "the backend has answered", func() bool { return p.Record()[0].Ended })
	select {
	case g := <-answer:
		t.Errorf("the client got %+v", g)
	default:
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	wantCreated(t, receive(t, answer))
}

func TestFrozenConnectionIsFoundDeadByPings(t *testing.T) {
	p := New(t, newFake(t).config, 1)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.Config().CAData)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 50 * time.Millisecond, PingTimeout: 50 * time.Millisecond},
	}
	defer transport.CloseIdleConnections()
	c := &client{&http.Client{Transport: transport}, p.Config().Host}
	wantCreated(t, c.create(t.Context(), "ns", "a"))
	p.Freeze()
	if g := receive(t, c.start(t.Context(), "ns", "b")); g.err == nil {
		t.Errorf("the client got %d", g.code)
	}
}

func TestPauseOfAFrozenProxyResetsWhatIsHeld(t *testing.T) {
	_, p, c := setUp(t)
	wantCreated(t, c.create(t.Context(), "ns", "a"))
	p.Freeze()
	held := c.start(t.Context(), "ns", "b")
	p.Pause()
	if g := receive(t, held); g.err == nil {
		t.Errorf("the client got %d", g.code)
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the client gets an answer", func() bool { return c.create(t.Context(), "ns", "c").code == http.StatusCreated })
}
