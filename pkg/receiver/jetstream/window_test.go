package jetstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/receivertest"
)

// fakeStream holds what is published until the test answers.
type fakeStream struct {
	natsjs.JetStream
	published []string
	bytes     int
	futures   map[string]*fakeFuture
}

type fakeFuture struct {
	natsjs.PubAckFuture
	ok  chan *natsjs.PubAck
	err chan error
}

func (f *fakeFuture) Ok() <-chan *natsjs.PubAck { return f.ok }
func (f *fakeFuture) Err() <-chan error         { return f.err }

func (s *fakeStream) PublishMsgAsync(m *nats.Msg, _ ...natsjs.PublishOpt) (natsjs.PubAckFuture, error) {
	id := m.Header.Get(natsjs.MsgIDHeader)
	s.published = append(s.published, id)
	s.bytes += len(m.Data)
	s.futures[id] = &fakeFuture{ok: make(chan *natsjs.PubAck, 1), err: make(chan error, 1)}
	return s.futures[id], nil
}

func (s *fakeStream) acknowledge(ids ...string) {
	for _, id := range ids {
		s.futures[id].ok <- new(natsjs.PubAck)
	}
	synctest.Wait()
}

// begin sends a batch to a fake stream.
func begin(ctx context.Context, r *Receiver, batch []receiver.Record) (*fakeStream, chan error) {
	s := &fakeStream{futures: make(map[string]*fakeFuture)}
	r.conn = &connection{js: s, failed: make(chan struct{})}
	result := make(chan error, 1)
	go func() {
		_, err := r.Send(ctx, batch)
		result <- err
	}()
	synctest.Wait()
	return s, result
}

// A stream that refuses a version must not have the next one already.
func TestVersionWaitsForTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Receiver{config: v1alpha1.JetStream{Subject: subject}}
		batch := records(2, 2, "")
		id := func(n int) string { return batch[n].ID }
		s, result := begin(t.Context(), r, batch)
		published := func(want ...int) {
			t.Helper()
			if !slices.EqualFunc(s.published, want, func(got string, n int) bool { return got == id(n) }) {
				t.Fatalf("published %v, want those of %v", s.published, want)
			}
		}
		published(0, 1)
		s.acknowledge(id(0))
		published(0, 1, 2)
		s.futures[id(1)].err <- errors.New("storage full")
		s.acknowledge(id(2))
		if err := <-result; !hasProgressed(err) {
			t.Fatalf("Send returned %v, want progress", err)
		}
		published(0, 1, 2)

		// What was acknowledged is not sent again, whatever failed before it.
		for range 2 {
			s, result = begin(t.Context(), r, batch)
			published(1)
			s.futures[id(1)].err <- errors.New("storage full")
			if err := <-result; err == nil || hasProgressed(err) {
				t.Fatalf("Send returned %v, want no progress", err)
			}
		}
		s, result = begin(t.Context(), r, batch)
		published(1)
		s.acknowledge(id(1))
		published(1, 3)
		if len(result) > 0 {
			t.Fatal("Send returned before the last acknowledgement")
		}
		s.acknowledge(id(3))
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if r.acknowledged != nil {
			t.Errorf("%v are remembered after a success", r.acknowledged)
		}
	})
}

// An attempt that fails before it reaches what an earlier one has had acknowledged forgets nothing.
func TestAcknowledgementsOutliveAShorterAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Receiver{config: v1alpha1.JetStream{Subject: subject}}
		batch := records(maxInFlight+2, 1, "") // the one before the last needs the place of the first
		last := batch[maxInFlight+1].ID
		r.acknowledged = map[string]struct{}{last: {}, "of another batch": {}}
		s, result := begin(t.Context(), r, batch)
		s.futures[batch[0].ID].err <- errors.New("storage full")
		for _, record := range batch[1:maxInFlight] {
			s.acknowledge(record.ID)
		}
		if err := <-result; err == nil {
			t.Fatal("Send succeeded")
		}
		if _, ok := r.acknowledged[last]; !ok || len(r.acknowledged) != maxInFlight {
			t.Errorf("%d are remembered, the last one: %v", len(r.acknowledged), ok)
		}
	})
}

func hasProgressed(err error) bool {
	failure, ok := errors.AsType[*receiver.Error](err)
	return ok && failure.Progressed
}

// The connection fails while nobody waits: the stream has what it acknowledged before.
func TestWhatWasAcknowledgedBeforeAFailureIsNotSentAgain(t *testing.T) {
	for range 20 { // a select takes any case that is ready
		conn := &connection{failed: make(chan struct{})}
		conn.fail(errors.New("broken pipe"))
		future := &fakeFuture{ok: make(chan *natsjs.PubAck, 1), err: make(chan error, 1)}
		future.ok <- new(natsjs.PubAck)
		w := newWindow(conn, subject, nil, nil)
		w.inFlight = []publication{{id: "uid/1", uid: "uid", ack: future}}
		if err := w.drain(t.Context(), true); err != nil || len(w.acknowledged) != 1 {
			t.Fatalf("%v are acknowledged, %v", w.acknowledged, err)
		}
	}
}

func TestMessagesInFlightAreBounded(t *testing.T) {
	for name, of := range map[string]struct {
		n       int
		message string
		bounded func(s *fakeStream) bool
	}{
		"number": {300, "", func(s *fakeStream) bool { return len(s.published) == maxInFlight }},
		"bytes": {20, strings.Repeat("x", 1<<19), func(s *fakeStream) bool {
			return s.bytes <= maxBytesInFlight && s.bytes > maxBytesInFlight/2
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Receiver{config: v1alpha1.JetStream{Subject: subject}}
				batch := records(of.n, 1, of.message)
				s, result := begin(t.Context(), r, batch)
				if !of.bounded(s) {
					t.Errorf("%d messages and %d bytes are in flight", len(s.published), s.bytes)
				}
				for i := range batch {
					s.acknowledge(batch[i].ID)
				}
				if err := <-result; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A batch may wait for an acknowledgement for longer than what was left of the lease.
func TestNothingIsPublishedAfterTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term, lose := receivertest.Term(t)
		batch := records(1, 2, "")
		s, result := begin(term, &Receiver{config: v1alpha1.JetStream{Subject: subject}}, batch)
		lose()
		s.acknowledge(batch[0].ID)
		if err := <-result; !errors.Is(err, election.ErrLeaseLost) || !slices.Equal(s.published, []string{batch[0].ID}) {
			t.Errorf("published %v: %v", s.published, err)
		}
	})
}
