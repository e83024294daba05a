package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// trial is a fake server, gate and pipeline. It records their steps.
type trial struct {
	mu    sync.Mutex
	start time.Time
	steps []string

	idle chan struct{}
	// drainFor is the duration of a drain, answerFor that of an accepted request.
	drainFor, answerFor time.Duration
	gated               chan struct{}
	followed            time.Duration // when following the Lease ended
	// acquiredAfter is the time from the release until another replica leads.
	acquiredAfter time.Duration
	acquired      chan struct{}
}

func newTrial() *trial {
	return &trial{
		start: time.Now(), idle: make(chan struct{}), gated: make(chan struct{}), acquired: make(chan struct{}),
		acquiredAfter: 100 * time.Millisecond,
	}
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

func (s *trial) drain(ctx context.Context) error {
	s.note("drain")
	select {
	case <-time.After(s.drainFor):
		s.note("drained")
		return nil
	case <-ctx.Done():
		s.note("aborted")
		return errors.New("3 occurrences were not written")
	}
}

// Run and Ready are the gate.
func (s *trial) Run(ctx context.Context) error {
	close(s.gated)
	<-ctx.Done()
	s.note("close the gate")
	time.Sleep(min(s.answerFor, handoverTimeout))
	return nil
}

func (s *trial) Ready(context.Context) error {
	<-s.gated
	return nil
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

// releasing is an election that this process wins once.
type releasing struct{ *trial }

func (r releasing) Run(ctx context.Context, lead func(context.Context) error) error {
	err := lead(ctx)
	r.note("release")
	time.AfterFunc(r.acquiredAfter, func() { close(r.acquired) })
	return err
}

func (r releasing) Follow(ctx context.Context) error {
	<-ctx.Done()
	r.followed = time.Since(r.start)
	return nil
}

// losing is an election that this process wins and loses after a second. The apiserver
// does not answer the release.
type losing struct{ releasing }

func (l losing) Run(ctx context.Context, lead func(context.Context) error) error {
	term, lose := context.WithCancelCause(ctx)
	time.AfterFunc(time.Second, func() { lose(election.ErrLeaseLost) })
	err := lead(term)
	time.Sleep(1500 * time.Millisecond)
	return errors.Join(err, election.ErrLeaseLost)
}

// end runs the components and stops them at once.
func (s *trial) end(t *testing.T, elected bool, grace, delay time.Duration, drain func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	parts := &stream{shutdown: newShutdown(ctx, grace, delay), startServing: s.startServing, drain: drain}
	options := lifecycle.DefaultOptions()
	options.StopGracePeriod = grace
	if elected {
		parts.gate, parts.relay, options.Elector = s, forwards{s}, releasing{s}
	}
	options.Components = parts.components()
	manager, err := lifecycle.New(options)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- manager.Run(ctx) }()
	synctest.Wait()
	cancel(errors.New("terminated"))
	err = <-result
	parts.finish(ctx)
	return err
}

func (s *trial) want(t *testing.T, want ...string) {
	t.Helper()
	s.note("end")
	if !slices.Equal(s.steps, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(s.steps, ", "), strings.Join(want, ", "))
	}
}

func TestProcessAloneFinishesRequestsBeforeItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.drainFor = 2 * time.Second
		time.AfterFunc(3*time.Second, func() { close(s.idle) })
		if err := s.end(t, false, 30*time.Second, 0, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "0s stop serving", "3s drain", "5s drained", "5s end")
	})
}

func TestProcessAloneDrainsAfterHalfTheTimeEvenIfARequestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.drainFor = time.Second
		if err := s.end(t, false, 30*time.Second, 0, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "0s stop serving", "15s drain", "16s drained", "30s end")
	})
}

func TestProcessAloneServesDuringTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		close(s.idle)
		if err := s.end(t, false, 30*time.Second, 5*time.Second, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "5s stop serving", "5s drain", "5s drained", "5s end")
	})
}

func TestTimeIsLeftToAnswerAfterAnAbortedDrain(t *testing.T) {
	for elected, want := range map[bool][]string{
		false: {"0s stop serving", "15s drain", "29s aborted", "29.1s end"},
		true:  {"0s close the gate", "0s release", "600ms drain", "29s aborted", "29s stop serving", "29.1s end"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTrial()
			s.drainFor = time.Hour
			// A request is answered when the drain is aborted.
			drain := func(ctx context.Context) error {
				err := s.drain(ctx)
				time.AfterFunc(100*time.Millisecond, func() { close(s.idle) })
				return err
			}
			err := s.end(t, elected, 30*time.Second, 0, drain)
			if err == nil || !strings.Contains(err.Error(), "3 occurrences were not written") {
				t.Errorf("got %v, want the error of the drain", err)
			}
			s.want(t, want...)
		})
	}
}

func TestShortGracePeriodStillDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.drainFor = 300 * time.Millisecond
		if err := s.end(t, false, time.Second, 0, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "0s stop serving", "500ms drain", "800ms drained", "1s end")
	})
}

func TestLeaderHandsOverThenDrainsAndServesUntilTheDelayIsOver(t *testing.T) {
	for name, test := range map[string]struct {
		drainFor time.Duration
		want     []string
	}{
		"longer than the drain":  {2 * time.Second, []string{"0s close the gate", "50ms release", "650ms drain", "2.65s drained", "5s stop serving", "5s end"}},
		"shorter than the drain": {8 * time.Second, []string{"0s close the gate", "50ms release", "650ms drain", "8.65s drained", "8.65s stop serving", "8.65s end"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTrial()
				s.answerFor, s.drainFor = 50*time.Millisecond, test.drainFor
				close(s.idle)
				if err := s.end(t, true, 30*time.Second, 5*time.Second, s.drain); err != nil {
					t.Error(err)
				}
				s.want(t, test.want...)
			})
		})
	}
}

// Pending writes wait for the start of the successor, for a limited time.
func TestDrainWaitsForTheSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		acquiredAfter, grace time.Duration
		want                 []string
	}{
		"that leads at once":   {0, 30 * time.Second, []string{"0s close the gate", "0s release", "500ms drain", "500ms drained", "500ms stop serving", "500ms end"}},
		"that takes long":      {800 * time.Millisecond, 30 * time.Second, []string{"0s close the gate", "0s release", "1s drain", "1s drained", "1s stop serving", "1s end"}},
		"that does not exist":  {time.Hour, 30 * time.Second, []string{"0s close the gate", "0s release", "1s drain", "1s drained", "1s stop serving", "1s end"}},
		"with a second to end": {0, time.Second, []string{"0s close the gate", "0s release", "100ms drain", "100ms drained", "100ms stop serving", "100ms end"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTrial()
				s.acquiredAfter = test.acquiredAfter
				close(s.idle)
				if err := s.end(t, true, test.grace, 0, s.drain); err != nil {
					t.Error(err)
				}
				s.want(t, test.want...)
			})
		})
	}
}

// The request is answered while another replica leads.
func TestRequestThatHangsDoesNotHoldUpTheHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.answerFor = 10 * time.Second
		time.AfterFunc(s.answerFor, func() { close(s.idle) })
		if err := s.end(t, true, 30*time.Second, 0, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "0s close the gate", "150ms release", "750ms drain", "750ms drained", "750ms stop serving", "10s end")
	})
}

// A request in flight may have to be forwarded to the next leader.
func TestLeaseIsFollowedWhileRequestsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		time.AfterFunc(25*time.Second, func() { close(s.idle) })
		if err := s.end(t, true, 30*time.Second, 0, s.drain); err != nil {
			t.Error(err)
		}
		s.want(t, "0s close the gate", "0s release", "600ms drain", "600ms drained", "600ms stop serving", "25s end")
		if s.followed != 25*time.Second {
			t.Errorf("the Lease was followed for %s", s.followed)
		}
	})
}

func TestGracePeriodOfAProcessThatExitsBeginsWithTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.drainFor = time.Hour
		close(s.idle)
		parts := &stream{
			shutdown: newShutdown(t.Context(), 10*time.Second, 0), startServing: s.startServing, drain: s.drain,
			gate: s, relay: forwards{s},
		}
		options := lifecycle.DefaultOptions()
		options.Components, options.Elector = parts.components(), losing{releasing{s}}
		options.StopGracePeriod = 10 * time.Second
		manager, err := lifecycle.New(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := manager.Run(t.Context()); !errors.Is(err, election.ErrLeaseLost) {
			t.Errorf("the end: %v", err)
		}
		parts.finish(t.Context())
		s.want(t, "1s close the gate", "2.5s drain", "10s aborted", "10s stop serving", "10s end")
	})
}
