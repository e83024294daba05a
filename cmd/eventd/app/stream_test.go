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

// trial stands in for a server, a gate and a pipeline, and notes what happens to
// them.
type trial struct {
	mu    sync.Mutex
	start time.Time
	steps []string

	idle chan struct{}
	// drainFor is how long a drain takes if it is let, and answerFor how long a
	// request that the gate has let in.
	drainFor, answerFor time.Duration
	gated               chan struct{}
	followed            time.Duration // until when the Lease was followed
	// takenAfter is how long after its release the Lease is another replica's.
	takenAfter time.Duration
	taken      chan struct{}
}

func newTrial() *trial {
	return &trial{
		start: time.Now(), idle: make(chan struct{}), gated: make(chan struct{}), taken: make(chan struct{}),
		takenAfter: 100 * time.Millisecond,
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
		s.note("given up")
		return errors.New("3 occurrences were not written")
	}
}

// Run and Ready are those of a gate.
func (s *trial) Run(ctx context.Context) error {
	close(s.gated)
	<-ctx.Done()
	s.note("close the gate")
	time.Sleep(min(s.answerFor, handoverPatience))
	return nil
}

func (s *trial) Ready(context.Context) error {
	<-s.gated
	return nil
}

// believed is a relay of a process that the others believe.
type believed struct{ *trial }

func (believed) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (believed) Ready(context.Context) error { return nil }

func (b believed) AwaitLeader(ctx context.Context) error {
	select {
	case <-b.taken:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// releasing is an election that this process wins, and nobody else.
type releasing struct{ *trial }

func (r releasing) Run(ctx context.Context, lead func(context.Context) error) error {
	err := lead(ctx)
	r.note("release")
	time.AfterFunc(r.takenAfter, func() { close(r.taken) })
	return err
}

func (r releasing) Follow(ctx context.Context) error {
	<-ctx.Done()
	r.followed = time.Since(r.start)
	return nil
}

// losing is an election that this process wins and loses at once, with an
// apiserver that does not answer its release.
type losing struct{ releasing }

func (l losing) Run(ctx context.Context, lead func(context.Context) error) error {
	term, lose := context.WithCancelCause(ctx)
	time.AfterFunc(time.Second, func() { lose(election.ErrLeaseLost) })
	err := lead(term)
	time.Sleep(1500 * time.Millisecond)
	return errors.Join(err, election.ErrLeaseLost)
}

// end has the stream run, and stopped at once; it returns when that has ended.
func (s *trial) end(t *testing.T, elected bool, grace, delay time.Duration, drain func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	parts := &stream{ending: newEnding(ctx, grace, delay), startServing: s.startServing, drain: drain}
	options := lifecycle.DefaultOptions()
	options.StopGracePeriod = grace
	if elected {
		parts.gate, parts.relay, options.Elector = s, believed{s}, releasing{s}
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

func TestTimeIsLeftToAnswerWhatTheDrainGaveUp(t *testing.T) {
	for elected, want := range map[bool][]string{
		false: {"0s stop serving", "15s drain", "29s given up", "29.1s end"},
		true:  {"0s close the gate", "0s release", "600ms drain", "29s given up", "29s stop serving", "29.1s end"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newTrial()
			s.drainFor = time.Hour
			// A request is answered as soon as its occurrence is given up.
			drain := func(ctx context.Context) error {
				err := s.drain(ctx)
				time.AfterFunc(100*time.Millisecond, func() { close(s.idle) })
				return err
			}
			err := s.end(t, elected, 30*time.Second, 0, drain)
			if err == nil || !strings.Contains(err.Error(), "3 occurrences were not written") {
				t.Errorf("got %v, want what the drain says", err)
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

// What is owed waits for the successor's first steps, but not for one that does not
// come, and hardly if there is little time.
func TestDrainWaitsForTheSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		takenAfter, grace time.Duration
		want              []string
	}{
		"that is there at once": {0, 30 * time.Second, []string{"0s close the gate", "0s release", "500ms drain", "500ms drained", "500ms stop serving", "500ms end"}},
		"that takes long":       {800 * time.Millisecond, 30 * time.Second, []string{"0s close the gate", "0s release", "1s drain", "1s drained", "1s stop serving", "1s end"}},
		"that does not come":    {time.Hour, 30 * time.Second, []string{"0s close the gate", "0s release", "1s drain", "1s drained", "1s stop serving", "1s end"}},
		"with a second to end":  {0, time.Second, []string{"0s close the gate", "0s release", "100ms drain", "100ms drained", "100ms stop serving", "100ms end"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTrial()
				s.takenAfter = test.takenAfter
				close(s.idle)
				if err := s.end(t, true, test.grace, 0, s.drain); err != nil {
					t.Error(err)
				}
				s.want(t, test.want...)
			})
		})
	}
}

// It is answered while another replica leads.
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

// It may be one that is passed on, and can be to the next leader only.
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

func TestGracePeriodOfAProcessThatIsToExitBeginsWithTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTrial()
		s.drainFor = time.Hour
		close(s.idle)
		parts := &stream{
			ending: newEnding(t.Context(), 10*time.Second, 0), startServing: s.startServing, drain: s.drain,
			gate: s, relay: believed{s},
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
		s.want(t, "1s close the gate", "2.5s drain", "10s given up", "10s stop serving", "10s end")
	})
}
