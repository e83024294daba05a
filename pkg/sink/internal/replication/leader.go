package replication

import (
	"context"
	"io"
	"time"
)

// leader is the end of a session in the leader.
type leader struct {
	journal  *Journal
	stream   *Stream
	holdings *Holdings
	session  io.ReadWriter
	arriving *arrival // the handover that read reads, nil if there is none
}

// Serve sends what the sink of the journal has pending to a follower, and adds what that hands over to
// the holdings. The context is that of the session.
func Serve(ctx context.Context, j *Journal, h *Holdings, session io.ReadWriteCloser) error {
	j.owner.Mutex.Lock()
	s, err := j.Open()
	j.owner.Mutex.Unlock()
	if err != nil {
		return run(ctx, session, func(context.Context) error { return err })
	}
	l := &leader{journal: j, stream: s, holdings: h, session: session}
	err = run(ctx, session, l.read, l.write, l.watch)
	j.owner.Mutex.Lock()
	s.end()
	j.owner.Mutex.Unlock()
	j.owner.Changed()
	return err
}

// write sends batches, answers and releases.
func (l *leader) write(ctx context.Context) error {
	to := newEncoder(l.session)
	if err := to.encode(fromLeader{Hello: &hello{version, l.journal.instance, l.stream.snapshotBytes}}); err != nil {
		return err
	}
	for {
		frames, err := l.frames()
		for _, f := range frames {
			if err := to.encode(f); err != nil {
				return err
			}
		}
		switch {
		case err != nil:
			return err
		case len(frames) > 0:
			continue
		}
		select {
		case <-l.stream.wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// frames returns what is to be sent now.
func (l *leader) frames() (out []fromLeader, err error) {
	l.journal.owner.Mutex.Lock()
	defer l.journal.owner.Mutex.Unlock()
	s := l.stream
	if s.over {
		return nil, errSessionOver
	}
	if b := s.next(time.Now()); b != nil {
		out = append(out, fromLeader{Batch: b})
	}
	for i := range s.answers {
		out = append(out, fromLeader{Answer: &s.answers[i]})
	}
	for i := range s.releases {
		out = append(out, fromLeader{Release: &s.releases[i]})
	}
	s.answers, s.releases = nil, nil
	if len(out) == 0 && l.journal.closing && s.isDone() {
		return nil, ErrClosed
	}
	return out, nil
}

// watch waits for the failure of the stream.
func (l *leader) watch(ctx context.Context) error {
	select {
	case err := <-l.stream.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// read reads acknowledgements and handovers.
func (l *leader) read(context.Context) error {
	from := newDecoder(l.session)
	defer func() {
		if l.arriving != nil {
			l.arriving.discard()
		}
	}()
	for {
		var f fromFollower
		if err := from.decode(&f); err != nil {
			return err
		}
		var err error
		switch {
		case f.Ack != nil:
			err = l.acknowledged(f.Ack.Position)
		case f.Handover != nil:
			err = l.handedOver(f.Handover)
		}
		if err != nil {
			return err
		}
	}
}

func (l *leader) acknowledged(position uint64) error {
	l.journal.owner.Mutex.Lock()
	err := l.stream.acknowledge(position, time.Now())
	l.journal.owner.Mutex.Unlock()
	if err == nil {
		l.journal.owner.Changed()
	}
	return err
}

// handedOver adds a part of a handover to what arrives, and answers the last part.
func (l *leader) handedOver(part *handover) error {
	if l.arriving == nil {
		l.arriving = l.holdings.receive(part.Mark)
	}
	if err := l.arriving.add(part); err != nil || !part.Last {
		return err
	}
	accepted := l.arriving.keep(part.UpTo)
	l.arriving = nil
	l.journal.owner.Mutex.Lock()
	defer l.journal.owner.Mutex.Unlock()
	s := l.stream
	if s.over {
		return errSessionOver
	}
	s.answers = append(s.answers, answer{part.Mark, accepted})
	if released := l.journal.releases[part.Contributor]; released >= part.Position {
		s.releases = append(s.releases, Mark{part.Contributor, released})
	}
	s.signal()
	return nil
}
