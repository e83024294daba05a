package relay_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/test/await"
)

func TestRequestThatNoLeaderHasAnsweredIsRefused(t *testing.T) {
	const soon = 100 * time.Millisecond
	// lost is a leader that may have recorded a request, which is sent to it once.
	lost := func(lose func(*capture, http.ResponseWriter, *http.Request)) func(*testing.T) *replica {
		return func(t *testing.T) *replica {
			c := newCapture(t)
			c.answer = func(w http.ResponseWriter, req *http.Request) { lose(c, w, req) }
			t.Cleanup(func() { c.wantSent(t, 1) })
			return c.forwards(t, options{})
		}
	}
	for name, test := range map[string]struct {
		reason string
		set    func(*testing.T) *replica
	}{
		"there is no token": {"no_token", func(t *testing.T) *replica {
			c := newCapture(t)
			t.Cleanup(func() { c.wantSent(t, 0) })
			return c.forwards(t, options{token: "/nonexistent/token"})
		}},
		// 401 would concern the credentials of the client.
		"the leader does not accept the replica": {"unauthorized", func(t *testing.T) *replica {
			_, other, _ := pair(t, options{}, options{token: tokenFile(t, "of somebody else")})
			return other
		}},
		"the leader refuses connections": {"unreachable", func(t *testing.T) *replica {
			c := newCapture(t)
			_ = c.Listener.Close()
			return c.forwards(t, options{leaderWait: soon})
		}},
		"the leader does not shake hands": {"unreachable", func(t *testing.T) *replica {
			other := newReplica(t, options{leaderWait: soon})
			other.relay.SetLeader(election.Announcement{Address: listenTCP(t, "127.0.0.1:0").Addr().String(), CertificateSHA256: "that of the leader"})
			return other
		}},
		"the leader does not lead": {"not_leading", func(t *testing.T) *replica {
			other := newReplica(t, options{leaderWait: soon})
			listen(t, newReplica(t, options{})).leads(other)
			await.Until(t, "they are connected", func() bool {
				wantUnavailable(t, other.Post(t, classic("a", 1)))
				return other.Metric(t, "eventd_relay_retries_total", "not_leading") > 0
			})
			return other
		}},
		"the stream is reset": {"lost", lost(func(*capture, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
		"the connection is cut": {"lost", lost(func(c *capture, _ http.ResponseWriter, req *http.Request) {
			c.CloseClientConnections()
			<-req.Context().Done()
		})},
		"the answer is broken off": {"lost", lost(func(_ *capture, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})},
	} {
		t.Run(name, func(t *testing.T) {
			other := test.set(t)
			before, begun := other.Metric(t, "eventd_relay_refused_total", test.reason), time.Now()
			logged := 0
			ctx := klog.NewContext(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
			wantUnavailable(t, other.DoUntil(ctx, t, http.MethodPost, coreEvents, classic("a", 1)))
			if want := test.reason != "not_leading"; (logged > 0) != want {
				t.Errorf("%d lines are logged", logged)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("refused after %s", took)
			}
			other.WantMetric(t, before+1, "eventd_relay_refused_total", test.reason)
			other.WantMetric(t, 0, "eventd_relay_requests_total", "201")
		})
	}
}

// A server that has taken a leader's address gets no request, and so no token.
func TestNothingIsSentToAnybodyButTheLeader(t *testing.T) {
	leader := listen(t, http.NotFoundHandler())
	own, another := leader.TLS.Certificates, listen(t, http.NotFoundHandler(), withAnotherCertificate(t)).TLS.Certificates
	for name, config := range map[string]*tls.Config{
		"another certificate": {Certificates: another, NextProtos: []string{"h2"}},
		"no HTTP/2":           {Certificates: own},
		"HTTP/1.1":            {Certificates: own, NextProtos: []string{"http/1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			listener := tls.NewListener(listenTCP(t, "127.0.0.1:0"), config)
			received, served := make(chan int, 100), make(chan struct{})
			go func() {
				defer close(served)
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					n, _ := conn.Read(make([]byte, 1000)) // what comes after the handshake
					received <- n
					_ = conn.Close()
				}
			}()
			other := newReplica(t, options{leaderWait: 200 * time.Millisecond})
			other.relay.SetLeader(election.Announcement{Address: listener.Addr().String(), CertificateSHA256: leader.fingerprint()})
			other.wantRefused(t, other.Post(t, classic("a", 1)), "unreachable")
			if n := <-received; n > 0 {
				t.Errorf("%d bytes were sent", n)
			}
			_ = listener.Close()
			<-served
		})
	}
}

// The last attempt may be given up before it fails.
func TestRefusalSaysWhyAnEarlierAttemptFailed(t *testing.T) {
	certificates := listen(t, http.NotFoundHandler()).TLS.Certificates
	listener := tls.NewListener(listenTCP(t, "127.0.0.1:0"), &tls.Config{Certificates: certificates, NextProtos: []string{"h2"}})
	go func() {
		if conn, err := listener.Accept(); err == nil { // handshakes with others are not answered
			_, _ = conn.Read(nil)
			_ = conn.Close()
		}
	}()
	other := newReplica(t, options{leaderWait: time.Second})
	other.relay.SetLeader(election.Announcement{Address: listener.Addr().String(), CertificateSHA256: "that of the leader"})
	a := other.Post(t, classic("a", 1))
	other.wantRefused(t, a, "unreachable")
	if text := a.Status(t).Message; !strings.HasSuffix(text, ": its certificate is not the one that is announced") {
		t.Errorf("answered %q", text)
	}
}

// Under another name it would be counted again.
func TestClientIsNotToRepeatAnEventWithoutANameWhoseAnswerIsLost(t *testing.T) {
	c := newCapture(t)
	c.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	other := c.forwards(t, options{})
	unnamed := classic("", 1)
	unnamed.GenerateName = "a-"
	encoder := clientscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme), corev1.SchemeGroupVersion)
	encoded := must(runtime.Encode(encoder, unnamed))
	newStyle := strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)
	withoutKind := unnamed.DeepCopy()
	withoutKind.TypeMeta = metav1.TypeMeta{}
	newStyleWithoutKind := strings.Replace(newStyle, `"apiVersion":"events.k8s.io/v1","kind":"Event",`, "", 1)
	const withoutKindYAML = "metadata: {generateName: a-}\ninvolvedObject: {kind: Pod, namespace: ns, name: web-0}\nreason: Started\n"
	const json, yaml = "application/json", "application/yaml"
	for name, test := range map[string]struct {
		path, contentType string
		body              any
	}{
		"core":     {coreEvents, json, unnamed},
		"protobuf": {coreEvents, "application/vnd.kubernetes.protobuf", encoded},
		"events":   {newEvents, json, newStyle},
		// As kopf does.
		"core without kind":   {coreEvents, json, withoutKind},
		"events without kind": {newEvents, json, newStyleWithoutKind},
		"yaml without kind":   {coreEvents, yaml, withoutKindYAML},
		"yaml like JSON":      {coreEvents, yaml, `{metadata: {generateName: a-}, involvedObject: {namespace: ns}}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := other.Do(t, http.MethodPost, test.path, test.body, "Content-Type", test.contentType)
			a.Want(t, 504, metav1.StatusReasonTimeout)
			if got := a.Header.Get("Retry-After"); got != "" {
				t.Errorf("Retry-After %q", got)
			}
		})
	}
	other.WantMetric(t, 7, "eventd_relay_refused_total", "lost")
}

// A process that is stopped keeps its connections, on which it writes nothing.
func TestLeaderThatFallsSilentIsGivenUp(t *testing.T) {
	stopped := make(chan struct{})
	c := newCapture(t, mutedAt(stopped))
	other := c.forwards(t, options{leaderWait: time.Minute})
	if a := other.Post(t, classic("a", 1)); a.Code != 201 {
		t.Fatalf("answered %d: %s", a.Code, a.Body)
	}
	close(stopped)
	begun := time.Now()
	other.wantRefused(t, other.Post(t, classic("b", 1)), "lost")
	if waited := time.Since(begun); waited < 4*time.Second || waited > 8*time.Second { // of a deadline of 60 s
		t.Errorf("answered after %s", waited)
	}
}

// Other requests do not wait for it.
func TestLeaderThatDoesNotAnswerCostsARequestItsDeadline(t *testing.T) {
	c := newCapture(t)
	c.answer = func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("fieldManager") == "slow" {
			<-req.Context().Done()
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	other := c.forwards(t, options{leaderWait: time.Minute})
	post := func(ctx context.Context, timeout string) answer {
		return other.DoUntil(ctx, t, http.MethodPost, coreEvents+"?fieldManager=slow&timeout="+timeout, classic("a", 1))
	}
	ctx, leave := context.WithCancel(t.Context())
	slow := background(func() answer { return post(ctx, "1m") })
	await.Until(t, "the slow request is sent", func() bool { return len(c.requests()) == 1 })
	for range 10 {
		if a := other.Post(t, classic("b", 1)); a.Code != 201 {
			t.Errorf("answered %d: %s", a.Code, a.Body)
		}
	}
	if len(slow) > 0 {
		t.Error("the slow one was answered first")
	}
	leave()
	<-slow
	post(t.Context(), "1s").Want(t, 504, metav1.StatusReasonTimeout)
	if got := c.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestRequestOfAClientThatGoesAwayEndsAtTheLeader(t *testing.T) {
	c := newCapture(t)
	ended := make(chan struct{})
	c.answer = func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		close(ended)
	}
	other := c.forwards(t, options{})
	gone, leave := leaving(t, other)
	await.Until(t, "it is sent", func() bool { return len(c.requests()) == 1 })
	leave()
	<-gone
	<-ended
}
