package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// The leader has acted, maybe: to send it again is the client's decision.
func TestRequestWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	for name, lose := range map[string]func(*capture) http.HandlerFunc{
		"stream reset": func(*capture) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		},
		"connection cut": func(c *capture) http.HandlerFunc {
			return func(_ http.ResponseWriter, req *http.Request) {
				c.CloseClientConnections()
				<-req.Context().Done()
			}
		},
		"answer broken off": func(*capture) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("{"))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapture(t)
			c.answer = lose(c)
			other := standby(t)
			c.leads(other)
			a := other.post(t, classic("a", 1))
			a.want(t, 503, metav1.StatusReasonServiceUnavailable)
			if got := a.header.Get("Retry-After"); got != "1" {
				t.Errorf("Retry-After %q", got)
			}
			if got := len(c.requests()); got != 1 {
				t.Errorf("sent %d times", got)
			}
			if got := other.metric(t, "eventd_relay_refused_total", "lost"); got != 1 {
				t.Errorf("%v lost", got)
			}
			if got := other.metric(t, "eventd_relay_requests_total", "201"); got != 0 {
				t.Errorf("%v answered", got)
			}
		})
	}
}

// Under another name it would be counted again.
func TestClientIsNotToRepeatAnEventWithoutANameWhoseAnswerIsLost(t *testing.T) {
	c := newCapture(t)
	c.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	other := standby(t)
	c.leads(other)
	unnamed := classic("", 1)
	unnamed.GenerateName = "a-"
	encoded, err := runtime.Encode(clientscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme), corev1.SchemeGroupVersion), unnamed)
	if err != nil {
		t.Fatal(err)
	}
	newStyle := strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)
	withoutKind := unnamed.DeepCopy()
	withoutKind.TypeMeta = metav1.TypeMeta{}
	newStyleWithoutKind := strings.Replace(newStyle, `"apiVersion":"events.k8s.io/v1","kind":"Event",`, "", 1)
	const withoutKindYAML = "metadata: {generateName: a-}\ninvolvedObject: {kind: Pod, namespace: ns, name: web-0}\nreason: Started\n"
	for name, a := range map[string]answer{
		"core":     other.post(t, unnamed),
		"protobuf": other.do(t, http.MethodPost, coreEvents, encoded, "Content-Type", "application/vnd.kubernetes.protobuf"),
		"events":   other.do(t, http.MethodPost, newEvents, newStyle),
		// As kopf does.
		"core without kind":   other.post(t, withoutKind),
		"events without kind": other.do(t, http.MethodPost, newEvents, newStyleWithoutKind),
		"yaml without kind":   other.do(t, http.MethodPost, coreEvents, withoutKindYAML, "Content-Type", "application/yaml"),
		"yaml like JSON":      other.do(t, http.MethodPost, coreEvents, `{metadata: {generateName: a-}, involvedObject: {namespace: ns}}`, "Content-Type", "application/yaml"),
	} {
		t.Run(name, func(t *testing.T) {
			a.want(t, 504, metav1.StatusReasonTimeout)
			if got := a.header.Get("Retry-After"); got != "" {
				t.Errorf("Retry-After %q", got)
			}
		})
	}
	if got := other.metric(t, "eventd_relay_refused_total", "lost"); got != 7 {
		t.Errorf("%v lost", got)
	}
}

// Neither the request nor others wait for longer than they said they would.
func TestLeaderThatDoesNotAnswerCostsARequestItsDeadline(t *testing.T) {
	c := newCapture(t)
	c.answer = func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("fieldManager") == "slow" {
			<-req.Context().Done()
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	other := standby(t)
	c.leads(other)
	slow := background(func() answer {
		return other.do(t, http.MethodPost, coreEvents+"?fieldManager=slow&timeout=1s", classic("a", 1))
	})
	until(t, "the slow request is sent", func() bool { return len(c.requests()) == 1 })
	for range 10 {
		if a := other.post(t, classic("b", 1)); a.code != 201 {
			t.Errorf("answered %d: %s", a.code, a.body)
		}
	}
	select {
	case a := <-slow:
		t.Errorf("the slow one was answered first: %d", a.code)
	default:
	}
	(<-slow).want(t, 504, metav1.StatusReasonTimeout)
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
	other := standby(t)
	c.leads(other)
	ctx, cancel := context.WithCancel(t.Context())
	gone := background(func() answer { return other.doUntil(ctx, t, http.MethodPost, coreEvents, classic("a", 1)) })
	until(t, "it is sent", func() bool { return len(c.requests()) == 1 })
	cancel()
	<-gone
	<-ended
}
