package app

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// trial is a fake server, gate, relay, election and pipeline. It records their steps.
type trial struct {
	alone         bool          // it is not elected
	grace, delay  time.Duration // the grace period is 30 s by default
	drainFor      time.Duration // duration of a drain
	answerFor     time.Duration // duration of a request that the gate has accepted
	idleAfter     time.Duration // time from the beginning until no request is in flight
	acquiredAfter time.Duration // time from the release until another replica leads
	followerAfter time.Duration // time from the last answer until a follower holds what is pending
	losesLease    bool          // after a second; the apiserver does not answer the release

	mu       sync.Mutex
	start    time.Time
	steps    []string
	idle     chan struct{}
	gated    chan struct{}
	acquired chan struct{}
	followed time.Duration // when following the Lease ended
	leading  bool
}

func (s *trial) note(step string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, time.Since(s.start).String()+" "+step)
}

func (s *trial) startServing(context.Context) (func() <-chan struct{}, error) {
	return func() <-chan struct{} {
		s.note("stop serving")
		return s.idle
	}, nil
}

var errUndelivered = errors.New("3 occurrences were not written")

func (s *trial) drain(ctx context.Context) error {
	s.note("drain")
	select {
	case <-time.After(s.drainFor):
		s.note("drained")
		return nil
	case <-ctx.Done():
		s.note("aborted")
		return errUndelivered
	}
}

// Run and Ready are the gate.
func (s *trial) Run(ctx context.Context) error {
	close(s.gated)
	if !s.leading {
		s.note("open the gate of a process that does not adopt")
	}
	<-ctx.Done()
	s.note("close the gate")
	time.Sleep(min(s.answerFor, handoverTimeout))
	return nil
}

func (s *trial) Ready(context.Context) error {
	<-s.gated
	return nil
}

// Replicate, SetLeading and AwaitFollower are the replication.
func (s *trial) Replicate(ctx context.Context) error {
	<-ctx.Done()
	s.note("end sessions")
	return nil
}

func (s *trial) SetLeading(leading bool) { s.leading = leading }

func (s *trial) AwaitFollower(ctx context.Context) error {
	if s.followerAfter == 0 {
		return nil
	}
	s.note("await a follower")
	select {
	case <-time.After(s.followerAfter):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forwards is a relay that is ready.
type forwards struct{ *trial }

func (forwards) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (forwards) Ready(context.Context) error { return nil }

func (f forwards) AwaitLeader(ctx context.Context) error {
	select {
	case <-f.acquired:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// won is an election that this process wins once.
type won struct{ *trial }

func (w won) Run(ctx context.Context, lead func(context.Context) error) error {
	if w.losesLease {
		term, lose := context.WithCancelCause(ctx)
		time.AfterFunc(time.Second, func() { lose(election.ErrLeaseLost) })
		err := lead(term)
		time.Sleep(1500 * time.Millisecond)
		return errors.Join(err, election.ErrLeaseLost)
	}
	err := lead(ctx)
	w.note("release")
	time.AfterFunc(w.acquiredAfter, func() { close(w.acquired) })
	return err
}

func (w won) Follow(ctx context.Context) error {
	<-ctx.Done()
	w.followed = time.Since(w.start)
	return nil
}

// run runs the components, stops them at once unless they end by themselves, and compares
// the steps.
func (s *trial) run(t *testing.T, want string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.start, s.idle = time.Now(), make(chan struct{})
		s.gated, s.acquired = make(chan struct{}), make(chan struct{})
		time.AfterFunc(s.idleAfter, func() { close(s.idle) })
		options := lifecycle.DefaultOptions()
		options.StopGracePeriod = cmp.Or(s.grace, 30*time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		parts := &stream{
			shutdown:     newShutdown(ctx, options.StopGracePeriod, s.delay),
			startServing: s.startServing, drain: s.drain,
		}
		if !s.alone {
			parts.gate, parts.relay, parts.replication, options.Elector = s, forwards{s}, s, won{s}
			parts.report, parts.beginTerm = func(ctx context.Context) { <-ctx.Done() }, func() {}
		}
		options.Components = parts.components()
		manager, err := lifecycle.New(options)
		if err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- manager.Run(ctx) }()
		synctest.Wait()
		if !s.losesLease {
			cancel(errors.New("terminated"))
		}
		err = <-result
		parts.finish(ctx)
		s.note("end")
		if s.leading {
			t.Error("it adopts after its end")
		}
		if got := strings.Join(s.steps, ", "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		aborted := strings.Contains(want, "aborted")
		if (err != nil) != aborted || errors.Is(err, errUndelivered) != aborted ||
			errors.Is(err, election.ErrLeaseLost) != s.losesLease {
			t.Errorf("the error is %v", err)
		}
		cancel(nil)
	})
}

func TestProcessAloneFinishesRequestsAndDrains(t *testing.T) {
	for name, test := range map[string]struct {
		*trial
		want string
	}{
		"requests first": {
			&trial{idleAfter: 3 * time.Second, drainFor: 2 * time.Second},
			"0s stop serving, 3s drain, 5s drained, 5s end",
		},
		"after half the time, though a request hangs": {
			&trial{idleAfter: time.Hour, drainFor: time.Second},
			"0s stop serving, 15s drain, 16s drained, 30s end",
		},
		"after the delay": {
			&trial{delay: 5 * time.Second},
			"5s stop serving, 5s drain, 5s drained, 5s end",
		},
		"with a short grace period": {
			&trial{grace: time.Second, idleAfter: time.Hour, drainFor: 300 * time.Millisecond},
			"0s stop serving, 500ms drain, 800ms drained, 1s end",
		},
		"and has time to answer after an aborted drain": {
			&trial{idleAfter: 29100 * time.Millisecond, drainFor: time.Hour},
			"0s stop serving, 15s drain, 29s aborted, 29.1s end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.alone = true
			test.run(t, test.want)
		})
	}
}

func TestLeaderHasTimeToAnswerAfterAnAbortedDrain(t *testing.T) {
	s := trial{idleAfter: 29100 * time.Millisecond, drainFor: time.Hour}
	s.run(t, "0s close the gate, 0s release, 500ms drain, 29s aborted, 29s end sessions, 29s stop serving, 29.1s end")
}

func TestLeaderHandsOverThenDrainsAndServesUntilTheDelayIsOver(t *testing.T) {
	for drainFor, want := range map[time.Duration]string{
		2 * time.Second: "0s close the gate, 50ms release, 550ms drain, 2.55s drained, 2.55s end sessions, 5s stop serving, 5s end",
		8 * time.Second: "0s close the gate, 50ms release, 550ms drain, 8.55s drained, 8.55s end sessions, 8.55s stop serving, 8.55s end",
	} {
		s := trial{delay: 5 * time.Second, answerFor: 50 * time.Millisecond, drainFor: drainFor}
		s.run(t, want)
	}
}

// The Lease is not released before another replica holds what is pending, for a limited time.
func TestHandoverWaitsForAFollower(t *testing.T) {
	for name, test := range map[string]struct {
		*trial
		want string
	}{
		"that is in time":      {&trial{followerAfter: 30 * time.Millisecond}, "30ms release, 530ms"},
		"that takes long":      {&trial{followerAfter: time.Hour}, "1s release, 1.5s"},
		"with a second to end": {&trial{followerAfter: time.Hour, grace: time.Second}, "100ms release, 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			released, drained, _ := strings.Cut(test.want, ", ")
			const steps = "0s close the gate, 0s await a follower, R, T drain, T drained, T end sessions, T stop serving, T end"
			test.run(t, strings.NewReplacer("R", released, "T", drained).Replace(steps))
		})
	}
}

// Pending writes wait for the start of the successor, for a limited time.
func TestDrainWaitsForTheSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		*trial
		drainsAt string
	}{
		"that leads at once":   {&trial{}, "500ms"},
		"that leads soon":      {&trial{acquiredAfter: 100 * time.Millisecond}, "600ms"},
		"that takes long":      {&trial{acquiredAfter: 800 * time.Millisecond}, "1s"},
		"that does not exist":  {&trial{acquiredAfter: time.Hour}, "1s"},
		"with a second to end": {&trial{grace: time.Second}, "100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			const steps = "0s close the gate, 0s release, T drain, T drained, T end sessions, T stop serving, T end"
			test.run(t, strings.ReplaceAll(steps, "T", test.drainsAt))
		})
	}
}

// The request is answered while another replica leads.
func TestRequestThatHangsDoesNotHoldUpTheHandover(t *testing.T) {
	s := trial{answerFor: 10 * time.Second, idleAfter: 10 * time.Second}
	s.run(t, "0s close the gate, 150ms release, 650ms drain, 650ms drained, 650ms end sessions, 650ms stop serving, 10s end")
}

// A request in flight may have to be forwarded to the next leader.
func TestLeaseIsFollowedWhileRequestsAreInFlight(t *testing.T) {
	s := trial{idleAfter: 25 * time.Second}
	s.run(t, "0s close the gate, 0s release, 500ms drain, 500ms drained, 500ms end sessions, 500ms stop serving, 25s end")
	if s.followed != 25*time.Second {
		t.Errorf("the Lease was followed for %s", s.followed)
	}
}

func TestGracePeriodOfAProcessThatExitsBeginsWithTheLoss(t *testing.T) {
	s := trial{losesLease: true, grace: 10 * time.Second, drainFor: time.Hour}
	s.run(t, "1s close the gate, 2.5s drain, 10s aborted, 10s end sessions, 10s stop serving, 10s end")
}
