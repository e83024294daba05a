package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
)

// script is a server of watches: the n-th watch is answered by its n-th part.
type script struct {
	mu      sync.Mutex
	parts   []http.HandlerFunc
	cursors []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	s.cursors = append(s.cursors, req.URL.Query().Get(v1alpha1.ParamResourceVersion))
	if len(s.parts) == 0 {
		s.mu.Unlock()
		<-req.Context().Done()
		return
	}
	part := s.parts[0]
	s.parts = s.parts[1:]
	s.mu.Unlock()
	if req.URL.Query().Get(v1alpha1.ParamWatch) != "true" {
		part = servertest.Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "not a watch").ServeHTTP
	}
	part(w, req)
}

func items(versions ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, v := range versions {
			servertest.Frame(w, "ADDED", v1alpha1.TailItem{ResourceVersion: v})
		}
	}
}

// broken ends the connection after some items.
func broken(versions ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		w.(http.Flusher).Flush() // it was open
		items(versions...)(w, req)
		panic(http.ErrAbortHandler)
	}
}

// withoutObserve is a watch as a Pair has it while one role is missing.
func withoutObserve(w http.ResponseWriter, req *http.Request) {
	servertest.Frame(w, "BOOKMARK", v1alpha1.TailItem{Missing: "observe"})
	items("8")(w, req)
}

func expired(w http.ResponseWriter, _ *http.Request) {
	servertest.Frame(w, "ERROR", servertest.Failure(http.StatusGone, metav1.StatusReasonExpired, "too old"))
}

var (
	unauthorized = servertest.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized").ServeHTTP
	unavailable  = servertest.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no leader").ServeHTTP
)

// follow follows until so many frames have come. It returns what was called.
func follow(t *testing.T, s *script, frames int, query map[string][]string) (calls []string, err error) {
	t.Helper()
	cluster := servertest.NewAPIServer(t)
	cluster.Lead(servertest.NewEventd(t, s))
	c := newClient(t, cluster.REST(), nil)
	enough := errors.New("enough")
	err = c.Follow(t.Context(), client.Follow{
		Resource: "tail", Query: query,
		Handle: func(frame metav1.WatchEvent) error {
			calls = append(calls, frame.Type)
			if frames--; frames == 0 {
				return enough
			}
			return nil
		},
		Waiting:      func(error) { calls = append(calls, "waiting") },
		Disconnected: func(error) { calls = append(calls, "disconnected") },
		Lost:         func() { calls = append(calls, "lost") },
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return calls, err
}

func TestFollowContinuesFromTheCursor(t *testing.T) {
	for _, test := range []struct {
		name    string
		parts   []http.HandlerFunc
		frames  int
		query   map[string][]string
		calls   []string
		cursors []string
	}{
		{"ended in order", []http.HandlerFunc{items("5", "7"), items("8")}, 3, nil,
			[]string{"ADDED", "ADDED", "ADDED"}, []string{"", "7"}},
		{"broken", []http.HandlerFunc{broken("5"), items("8")}, 2, nil,
			[]string{"ADDED", "disconnected", "ADDED"}, []string{"", "5"}},
		{"unavailable for a while, which is said once",
			[]http.HandlerFunc{broken("5"), unavailable, items("8")}, 2, nil,
			[]string{"ADDED", "disconnected", "ADDED"}, []string{"", "5", "5"}},
		{"without a leader at first, which is said once", []http.HandlerFunc{unavailable, unavailable, items("5")}, 1, nil,
			[]string{"waiting", "ADDED"}, []string{"", "", ""}},
		{"a token that has expired", []http.HandlerFunc{items("5"), unauthorized, items("8")}, 2, nil,
			[]string{"ADDED", "ADDED"}, []string{"", "5", "5"}},
		{"expired", []http.HandlerFunc{items("5"), expired, items("9")}, 2, nil,
			[]string{"ADDED", "lost", "ADDED"}, []string{"", "5", ""}},
		{"expired at the start", []http.HandlerFunc{servertest.Refuse(http.StatusGone, metav1.StatusReasonExpired, "too old").ServeHTTP, items("9")}, 1,
			map[string][]string{v1alpha1.ParamResourceVersion: {"3"}}, []string{"lost", "ADDED"}, []string{"3", ""}},
		{"broken before there is a cursor", []http.HandlerFunc{broken(), items("9")}, 1, nil,
			[]string{"disconnected", "lost", "ADDED"}, []string{"", ""}},
		{"broken before there is a cursor, and a role is missing since, which says it", []http.HandlerFunc{broken(), withoutObserve, items("9")}, 3, nil,
			[]string{"disconnected", "BOOKMARK", "ADDED", "ADDED"}, []string{"", "", "8"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &script{parts: test.parts}
			calls, err := follow(t, s, test.frames, test.query)
			if err != nil || !slices.Equal(calls, test.calls) || !slices.Equal(s.cursors, test.cursors) {
				t.Errorf("got %q, cursors %q, %v; want %q, %q", calls, s.cursors, err, test.calls, test.cursors)
			}
		})
	}
}

func TestFollowEndsWithARefusal(t *testing.T) {
	forbidden := servertest.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "no").ServeHTTP
	for name, parts := range map[string][]http.HandlerFunc{
		"at the start":                    {forbidden},
		"later":                           {items("5"), forbidden},
		"twice unauthorized":              {items("5"), unauthorized, unauthorized},
		"gone at the start and no cursor": {servertest.Refuse(http.StatusGone, metav1.StatusReasonExpired, "no").ServeHTTP},
	} {
		if _, err := follow(t, &script{parts: parts}, 2, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFollowWaitsSomeSecondsForALeader(t *testing.T) {
	const patience = 500 * time.Millisecond
	refuse := http.HandlerFunc(unavailable)
	for name, test := range map[string]struct {
		handler http.Handler
		lead    bool
		want    string
	}{
		"eventd has none":     {refuse, true, "no leader"},
		"the Lease has ended": {refuse, false, "no eventd leads at the moment: the Lease kube-system/eventd has no holder; --lease-namespace and"},
		"the leader hangs":    {hanging, true, "eventd is silent"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, eventd := servertest.NewAPIServer(t), servertest.NewEventd(t, test.handler)
			cluster.Lead(eventd)
			if !test.lead {
				cluster.Release("eventd")
			}
			c := newClient(t, cluster.REST(), nil)
			c.SetPatience(patience/3, patience)
			began, waited := time.Now(), []string{}
			err := c.Follow(t.Context(), client.Follow{Resource: "tail", Waiting: func(err error) { waited = append(waited, err.Error()) }})
			if err == nil || !strings.Contains(err.Error(), test.want) || len(waited) != 1 || !strings.Contains(waited[0], test.want) || time.Since(began) < patience {
				t.Errorf("after %s %v; waited for %q", time.Since(began), err, waited)
			}
		})
	}
}

var hanging = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })

// A leader that hangs keeps its connections. The watch goes on with who the Lease names now.
func TestFollowLeavesALeaderThatIsSilent(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	first, second := &script{parts: []http.HandlerFunc{func(w http.ResponseWriter, req *http.Request) {
		items("5")(w, req)
		<-req.Context().Done()
	}}}, &script{parts: []http.HandlerFunc{items("6")}}
	cluster.Lead(servertest.NewEventd(t, first))
	c := newClient(t, cluster.REST(), nil)
	c.SetPatience(500*time.Millisecond, time.Minute)
	enough, why := errors.New("enough"), ""
	err := c.Follow(t.Context(), client.Follow{
		Resource: "tail",
		Handle: func(frame metav1.WatchEvent) error {
			if strings.Contains(string(frame.Object.Raw), `"6"`) {
				return enough
			}
			cluster.Lead(servertest.NewEventd(t, second))
			return nil
		},
		Disconnected: func(err error) { why = err.Error() },
	})
	if !errors.Is(err, enough) || !slices.Equal(second.cursors, []string{"5"}) || !strings.Contains(why, "silent") {
		t.Errorf("%v, after %q; the second leader is asked for %q", err, why, second.cursors)
	}
}

func TestFollowGoesOnWithTheNextLeader(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	first, second := &script{parts: []http.HandlerFunc{func(w http.ResponseWriter, req *http.Request) {
		items("5")(w, req)
		<-req.Context().Done()
	}}}, &script{parts: []http.HandlerFunc{items("6")}}
	old, next := servertest.NewEventd(t, first), servertest.NewEventd(t, second)
	cluster.Lead(old)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := newClient(t, cluster.REST(), nil)
	err := c.Follow(ctx, client.Follow{Resource: "tail", Handle: func(frame metav1.WatchEvent) error {
		if len(next.Requests()) > 0 {
			cancel()
			return nil
		}
		cluster.Lead(next)
		go old.CloseClientConnections()
		return nil
	}})
	if err != nil || !slices.Equal(second.cursors, []string{"5"}) {
		t.Errorf("got %v, cursors %q", err, second.cursors)
	}
}

func TestCloseEndsAWatch(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	cluster.Lead(servertest.NewEventd(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		items("5")(w, req)
		<-req.Context().Done()
	})))
	for _, connect := range []string{client.ConnectDirect, client.ConnectForward} {
		options := client.DefaultOptions()
		options.Connect = connect
		c, err := client.New(cluster.REST(), options)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := c.Watch(t.Context(), "tail", nil)
		if err != nil {
			t.Fatal(err)
		}
		if frame, err := stream.Next(); err != nil || frame.Type != "ADDED" {
			t.Fatalf("%s: got %v, %v", connect, frame, err)
		}
		c.Close()
		if _, err := stream.Next(); err == nil {
			t.Errorf("%s: the watch goes on", connect)
		}
		_ = stream.Close()
	}
}

// otherAuthority returns a certificate that has signed nothing.
func otherAuthority(t *testing.T) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(fmt.Errorf("parsing what was made: %w", err))
	}
	return certificate
}

// A leader that was cut off keeps its connection, and another one leads.
func TestAQueryAfterOneWithoutAnAnswerGoesToTheNextLeader(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	silent := servertest.NewEventd(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	next := servertest.NewEventd(t, answer)
	cluster.Lead(silent)
	c := newClient(t, cluster.REST(), nil)
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return c.Get(ctx, "status", nil, &v1alpha1.PipelineStatus{})
	}
	if err := ask(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	cluster.Lead(next)
	await.Within(t, 20*time.Second, "an answer of the next leader", func() bool { return ask() == nil })
}
