package replication

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

const (
	// handoverRetry is the time until a declined handover is sent again. It doubles up to
	// maxHandoverRetry.
	handoverRetry    = time.Second
	maxHandoverRetry = 8 * time.Second
)

var (
	errNoHello       = errors.New("the first frame is no hello")
	errVersion       = errors.New("the leader has another version of the protocol")
	errOtherHandover = errors.New("a part of another handover")
)

// follower is the end of a session in a follower.
type follower struct {
	holdings *Holdings
	session  io.ReadWriter
	wake     chan struct{} // there may be something to send

	mu   sync.Mutex
	over bool
	in   *incoming // nil until the hello
	// ack is to be sent, nil if there is none.
	ack *ack
	// handed are the positions of what was handed over, by contributor. declined is what was
	// not accepted.
	handed   map[counter.Contributor]uint64
	declined map[counter.Contributor]decline
}

// decline is when a handover is sent again, and the delay before that.
type decline struct {
	retryAt time.Time
	delay   time.Duration
}

// Follow holds what the leader at the other end of a session has pending, and hands over the rest.
func (h *Holdings) Follow(ctx context.Context, session io.ReadWriteCloser) error {
	f := &follower{
		holdings: h, session: session, wake: make(chan struct{}, 1),
		handed: make(map[counter.Contributor]uint64), declined: make(map[counter.Contributor]decline),
	}
	defer f.end()
	return run(ctx, session, f.read, f.write)
}

// end closes the stream, though a half of the session may not have returned.
func (f *follower) end() {
	f.mu.Lock()
	f.over = true
	in := f.in
	f.mu.Unlock()
	if in != nil {
		in.close()
	}
	f.holdings.sessionEnded(f)
}

// read reads the stream, and the leader's answers and releases. The session is a connection, so what
// is lost ends the stream (rule Ordered).
func (f *follower) read(context.Context) error {
	from := newDecoder(f.session)
	var first fromLeader
	if err := from.decode(&first); err != nil {
		return err
	}
	in, err := f.begin(first.Hello)
	if err != nil {
		return err
	}
	for {
		var next fromLeader
		if err := from.decode(&next); err != nil {
			return err
		}
		switch {
		case next.Batch != nil:
			if err := in.apply(next.Batch); err != nil {
				return err
			}
			if next.Batch.Complete {
				f.acknowledge(next.Batch.Position)
			}
		case next.Answer != nil:
			f.answered(next.Answer)
		case next.Release != nil:
			f.holdings.Release(next.Release.Contributor, next.Release.Position)
		}
	}
}

// begin opens the stream.
func (f *follower) begin(h *hello) (*incoming, error) {
	switch {
	case h == nil:
		return nil, errNoHello
	case h.Version != version:
		return nil, errVersion
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, errSessionOver
	}
	var err error
	f.in, err = f.holdings.open(h.Contributor, h.Bytes)
	notify.Wake(f.wake)
	return f.in, err
}

func (f *follower) acknowledge(position uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ack = &ack{position}
	notify.Wake(f.wake)
}

func (f *follower) answered(a *answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.over:
		return
	case a.Accepted:
		delete(f.declined, a.Contributor)
		f.holdings.accepted(a.Mark, f)
		return
	}
	delay := min(max(handoverRetry, 2*f.declined[a.Contributor].delay), maxHandoverRetry)
	f.declined[a.Contributor] = decline{time.Now().Add(delay), delay}
	delete(f.handed, a.Contributor)
	notify.Wake(f.wake)
}

// write sends acknowledgements and handovers.
func (f *follower) write(ctx context.Context) error {
	to := newEncoder(f.session)
	for {
		changed := f.holdings.Changed()
		if err := f.sendAck(to); err != nil {
			return err
		}
		h, at := f.nextHandover(time.Now())
		if h != nil {
			if err := f.handOver(to, h); err != nil {
				return err
			}
			continue
		}
		if err := f.wait(ctx, changed, at); err != nil {
			return err
		}
	}
}

// wait waits until there may be something to send, until a time at most if that is not zero.
func (f *follower) wait(ctx context.Context, changed <-chan struct{}, at time.Time) error {
	var retry <-chan time.Time
	if !at.IsZero() {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-f.wake:
	case <-changed:
	case <-retry:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (f *follower) sendAck(to *encoder) error {
	f.mu.Lock()
	next := f.ack
	f.ack = nil
	f.mu.Unlock()
	if next == nil {
		return nil
	}
	return to.encode(fromFollower{Ack: next})
}

// nextHandover returns a holding to hand over: each to each leader (rule Hand), once the stream
// from its contributor has ended (rule Ended). at is the time of the next one that was declined.
func (f *follower) nextHandover(now time.Time) (_ *Holding, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.in == nil {
		return nil, time.Time{}
	}
	for _, h := range f.holdings.Ended() {
		if h.Contributor == f.in.contributor || f.handed[h.Contributor] >= h.Position {
			continue
		}
		if retry := f.declined[h.Contributor].retryAt; retry.After(now) {
			if at.IsZero() || retry.Before(at) {
				at = retry
			}
			continue
		}
		f.handed[h.Contributor] = h.Position
		return &h, time.Time{}
	}
	return nil, at
}

// handOver sends a holding in parts, and acknowledgements between them.
func (f *follower) handOver(to *encoder, h *Holding) error {
	part := handover{Mark: Mark{h.Contributor, h.Position}, UpTo: h.UpTo}
	send := func() error {
		if err := f.sendAck(to); err != nil {
			return err
		}
		err := to.encode(fromFollower{Handover: &part})
		part.Series = nil
		return err
	}
	left := int64(partBytes)
	for _, s := range h.Series {
		for unsent := []PendingSeries{s.Pending()}; len(unsent) > 0; {
			var next []PendingSeries
			next, left = nextPart(&unsent, left)
			part.Series = append(part.Series, next...)
			if left > 0 {
				continue
			}
			if err := send(); err != nil {
				return err
			}
			left = partBytes
		}
	}
	part.Last = true
	return send()
}
