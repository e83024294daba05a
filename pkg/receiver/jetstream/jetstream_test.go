package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/await"
)

const subject = "kubernetes.events"

// records returns versions of Events, in which those of one Event take turns with others.
func records(events, versions int, message string) (out []receiver.Record) {
	for v := range versions {
		for e := range events {
			event := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: fmt.Sprintf("pod.%d", e), UID: types.UID(fmt.Sprintf("uid-%d", e)),
					ResourceVersion: fmt.Sprint(1_000_000 + v*events + e),
				},
				Message: message, Reason: "BackOff",
			}
			out = append(out, receiver.Record{
				ID: string(event.UID) + "/" + event.ResourceVersion, Cluster: "prod", Event: event, Observed: time.Unix(1e9, 0),
			})
		}
	}
	return out
}

func newReceiver(t testing.TB, config v1alpha1.JetStream) *Receiver {
	t.Helper()
	if config.Subject == "" {
		config.Subject = subject
	}
	r, err := New(config)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

// send sends a batch, all of which has to be accepted.
func send(t testing.TB, r *Receiver, batch []receiver.Record) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	if rejected, err := r.Send(ctx, batch); rejected != 0 || err != nil {
		t.Fatalf("Send returned %d, %v", rejected, err)
	}
}

// sendError sends a batch, which has to fail so that it is sent again.
func sendError(t testing.TB, r *Receiver, batch []receiver.Record, timeout time.Duration, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	rejected, err := r.Send(ctx, batch)
	if rejected != 0 || err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("Send returned %d, %v, want an error with %q", rejected, err, want)
	}
	if refused := new(receiver.Error); errors.As(err, &refused) && refused.Permanent {
		t.Fatalf("%v is permanent", err)
	}
}

func TestStreamGetsEveryVersionOnceAndInOrder(t *testing.T) {
	s := startServer(t, withJetStream)
	stream := s.stream(t, nil)
	batch, hostile := records(200, 3, "pulled image"), records(1, 300, "hostile \u2028\"}\r\nNats-Msg-Id: 1\n{")
	for i := range hostile {
		hostile[i].Event.UID = "hostile"
		hostile[i].ID = "hostile/" + hostile[i].Event.ResourceVersion
	}
	batch = append(batch, hostile...)
	for range 2 { // the second receiver is a leader that repeats all of it
		send(t, newReceiver(t, v1alpha1.JetStream{URL: s.url()}), batch)
	}
	stored(t, stream, batch)

	m, err := stream.GetMsg(t.Context(), 1)
	must(t, err)
	if m.Header.Get(HeaderCluster) != "prod" || m.Header.Get(HeaderObserved) != "2001-09-09T01:46:40Z" || m.Header.Values(HeaderSummarized) != nil {
		t.Errorf("the headers are %v", m.Header)
	}
}

func TestSummaryHasItsNumber(t *testing.T) {
	s := startServer(t, withJetStream)
	stream := s.stream(t, nil)
	batch := records(1, 1, "pulled image")
	batch[0].Summarized = 7
	send(t, newReceiver(t, v1alpha1.JetStream{URL: s.url()}), batch)
	m, err := stream.GetMsg(t.Context(), 1)
	must(t, err)
	if m.Header.Get(HeaderSummarized) != "7" {
		t.Errorf("the headers are %v", m.Header)
	}
}

func TestServerThatIsKilledWithinABatch(t *testing.T) {
	s := startServer(t, withJetStream)
	stream := s.stream(t, nil)
	r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
	batch := records(1000, 3, "failed")
	nc, seen := s.connect(t).Conn(), 0
	_, err := nc.Subscribe(subject, func(*nats.Msg) {
		if seen++; seen == 1500 {
			_ = s.process.Send(syscall.SIGKILL)
		}
	})
	must(t, err)
	must(t, nc.Flush())
	sendError(t, r, batch, await.Timeout, "") // which one depends on what notices it first
	if n := len(r.acknowledged); n == 0 || n == len(batch) {
		t.Fatalf("%d records were acknowledged", n)
	}
	sendError(t, r, batch, await.Timeout, "connect")
	s.restart(t)
	send(t, r, batch)
	stored(t, stream, batch)
}

func TestWhatIsAwayIsRetried(t *testing.T) {
	batch := records(3, 1, "started")
	t.Run("server", func(t *testing.T) {
		s := newServer(t, withJetStream)
		r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
		sendError(t, r, batch, await.Timeout, "no servers available")
		s.start(t)
		stream := s.stream(t, nil)
		send(t, r, batch)
		s.restart(t) // while nothing is sent
		stored(t, stream, batch)
		must(t, await.Success(t.Context(), await.Timeout, func() error { _, err := r.Send(t.Context(), batch); return err }))
		stored(t, stream, batch)
	})
	t.Run("stream", func(t *testing.T) {
		s := startServer(t, withJetStream)
		r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
		sendError(t, r, batch, await.Timeout, "no stream has the subject")
		// By itself, the client would repeat a message, and behind those that came after it.
		if n := r.conn.nc.Stats().OutMsgs; int(n) != len(batch) {
			t.Errorf("%d messages were sent for %d records", n, len(batch))
		}
		stream := s.stream(t, nil)
		send(t, r, batch)
		stored(t, stream, batch)
	})
	t.Run("JetStream", func(t *testing.T) {
		s := startServer(t, "")
		r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
		sendError(t, r, batch, await.Timeout, "JetStream is disabled")
		s.config = withJetStream
		s.restart(t)
		stream := s.stream(t, nil)
		must(t, await.Success(t.Context(), await.Timeout, func() error { _, err := r.Send(t.Context(), batch); return err }))
		stored(t, stream, batch)
	})
	t.Run("storage", func(t *testing.T) {
		s := startServer(t, withJetStream)
		stream := s.stream(t, func(c *natsjs.StreamConfig) { c.MaxMsgs, c.Discard = 2, natsjs.DiscardNew })
		r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
		sendError(t, r, batch, await.Timeout, "maximum messages exceeded")
		s.stream(t, nil)
		send(t, r, batch)
		stored(t, stream, batch)
	})
	t.Run("acknowledgements", func(t *testing.T) { // somebody else has the subject
		s := startServer(t, "")
		nc := s.connect(t).Conn()
		_, err := nc.Subscribe(subject, func(*nats.Msg) {})
		must(t, err)
		must(t, nc.Flush())
		r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
		sendError(t, r, batch, 5*time.Second, "is it a stream") // it has to connect before
	})
}

func TestServerThatStopsIsBoundedByTheContext(t *testing.T) {
	s := startServer(t, withJetStream+"max_payload: 16MB\n")
	stream := s.stream(t, nil)
	r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
	small := records(1, 1, "small")
	batch := records(1, 2, strings.Repeat("x", 6<<20))[1:] // more than the buffers of a socket
	send(t, r, small)

	must(t, s.process.Send(syscall.SIGSTOP))
	for _, of := range []*Receiver{r, r, newReceiver(t, v1alpha1.JetStream{URL: s.url()})} {
		begin := time.Now()
		sendError(t, of, batch, 300*time.Millisecond, "deadline exceeded")
		if took := time.Since(begin); took > await.Timeout/2 { // a busy machine may be late
			t.Errorf("Send returned after %s", took)
		}
		if of.conn != nil {
			t.Error("the connection is kept, and with it what it may still deliver")
		}
	}
	must(t, s.process.Send(syscall.SIGCONT))
	send(t, r, batch)
	stored(t, stream, append(small, batch...))
}

func TestLargeMessageIsRejectedAlone(t *testing.T) {
	for name, of := range map[string]struct {
		config string
		change func(*natsjs.StreamConfig)
	}{
		"by the server": {"max_payload: 64KB\n", nil},
		"by the stream": {"", func(c *natsjs.StreamConfig) { c.MaxMsgSize = 64 << 10 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, withJetStream+of.config)
			stream := s.stream(t, of.change)
			batch := records(3, 2, "small")
			large := *batch[1].Event
			large.Message = strings.Repeat("x", 1<<17)
			batch[1].Event = &large
			r := newReceiver(t, v1alpha1.JetStream{URL: s.url()})
			if rejected, err := r.Send(t.Context(), batch); rejected != 1 || err != nil {
				t.Fatalf("Send returned %d, %v", rejected, err)
			}
			stored(t, stream, append(batch[:1:1], batch[2:]...))
		})
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	valid := v1alpha1.JetStream{URL: "tls://nats-0:4222, nats://nats-1", Subject: "a.b-c_d"}
	if _, err := New(valid); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"", "nats-0:4222", "http://nats", "nats://", "nats://a,", "nats://a:secret@[", "ws://nats"} {
		_, err := New(v1alpha1.JetStream{URL: url, Subject: "a"})
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("URL %q: %v", url, err)
		}
	}
	for _, subject := range []string{"", ".", "a.", "a..b", "a.*", ">", "a b", "a\r\nPUB", "$JS.API.STREAM.DELETE.a"} {
		if _, err := New(v1alpha1.JetStream{URL: valid.URL, Subject: subject}); err == nil {
			t.Errorf("subject %q was accepted", subject)
		}
	}
}
