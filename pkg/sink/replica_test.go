package sink

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// replica is a sink that follows others, and that others follow.
type replica struct {
	*bench
	held *Holdings
	line *line
	ends []*session // all of both ends
	// leader is the one that it follows, over the session; nil if it follows none.
	leader  *replica
	session *session
}

// line is the connection of a replica to the fake apiserver.
type line struct {
	Client
	down atomic.Bool // requests do not arrive
	mute atomic.Bool // answers do not
}

func (l *line) send(send func() (*corev1.Event, error)) (*corev1.Event, error) {
	if l.down.Load() {
		return nil, errUnreachable
	}
	event, err := send()
	if l.mute.Load() {
		return nil, errLost
	}
	return event, err
}

func (l *line) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return l.send(func() (*corev1.Event, error) { return l.Client.Create(ctx, api, event) })
}

func (l *line) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return l.send(func() (*corev1.Event, error) { return l.Client.Patch(ctx, api, namespace, name, patch) })
}

// replicas runs some sinks in front of one fake apiserver. The first one leads.
func replicas(t *testing.T, n int, f *fake, change func(*Options), test func(t *testing.T, all []*replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.start()
		var all []*replica
		for range n {
			o := unlimited()
			o.Acknowledge = AcknowledgeReplicated
			var err error
			if o.Holdings, err = NewHoldings(HoldingsOptions{MaxBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			if change != nil {
				change(&o)
			}
			r := &replica{held: o.Holdings, line: &line{Client: f.client()}}
			r.bench = start(f.context(t), t, r.line, o)
			all = append(all, r)
		}
		defer f.release()
		defer func() {
			for _, r := range all {
				r.closeWithin(time.Second)
				if u := r.unacknowledged; u.order.Len()+len(u.bySequence)+u.unheld.Len()+u.unwritten.Len() > 0 {
					t.Errorf("%d and %d wait for a follower, %d and %d deferred", u.order.Len(), len(u.bySequence), u.unheld.Len(), u.unwritten.Len())
				}
			}
			pass(time.Hour) // for what has been abandoned
		}()
		all[0].SetLeading(true)
		test(t, all)
	})
}

// session is one between a leader and a follower.
type session struct {
	cancel context.CancelFunc
	ended  sync.WaitGroup
	err    [2]error // of the leader and of the follower
}

// follow starts a session with a leader.
func (r *replica) follow(leader *replica) *session {
	here, there := net.Pipe()
	defer synctest.Wait()
	return r.followOver(leader, here, there)
}

func (r *replica) followOver(leader *replica, here, there io.ReadWriteCloser) *session {
	var s session
	ctx, cancel := context.WithCancel(r.t.Context())
	s.cancel = cancel
	s.ended.Go(func() { s.err[0] = leader.Serve(ctx, there) })
	s.ended.Go(func() { s.err[1] = r.held.Follow(ctx, here) })
	r.ends, leader.ends = append(r.ends, &s), append(leader.ends, &s)
	return &s
}

func (s *session) end() {
	s.cancel()
	s.ended.Wait()
	synctest.Wait()
}

// crash ends all sessions of a replica and its requests. What is pending does not settle for a
// reader of its ledger: nobody reads it.
func (r *replica) crash() {
	r.line.down.Store(true)
	for _, s := range r.ends {
		s.end()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	cancel()
	r.Close(ctx)
}

// leads lets a replica lead, adopt and write.
func (r *replica) leads() {
	r.SetLeading(true)
	pass(time.Minute)
}

// answers are the answers to callers that wait.
type answers struct{ accepted, settled atomic.Int32 }

func (a *answers) wait(o *occurrence.Occurrence) {
	o.Deferred = func() { a.accepted.Add(1) }
	o.Settled = func(occurrence.Settlement) { a.settled.Add(1) }
}

// calls are numbers of answers.
type calls struct{ accepted, settled int32 }

func (a *answers) calls() calls { return calls{a.accepted.Load(), a.settled.Load()} }

func (r *replica) wantTotals(recorded, adopted int64, want ends) {
	r.t.Helper()
	if got := r.ledger.Totals(); got.Recorded != recorded || got.Adopted != adopted {
		r.t.Errorf("recorded %d, adopted %d, want %d and %d", got.Recorded, got.Adopted, recorded, adopted)
	}
	r.wantEnds(want)
}

// wantHeld compares the weight of what a replica holds.
func (r *replica) wantHeld(want int64) {
	r.t.Helper()
	occurrences, bytes := r.held.held.Usage()
	if occurrences != want || (bytes == 0) != (want == 0) {
		r.t.Errorf("%d occurrences are held with %d bytes, want %d", occurrences, bytes, want)
	}
}

// wantError compares the error with which the leader has ended a session.
func (s *session) wantError(t *testing.T, leader error) {
	t.Helper()
	if s.ended.Wait(); !errors.Is(s.err[0], leader) {
		t.Errorf("the session has ended with %v, want %v", s.err[0], leader)
	}
}
