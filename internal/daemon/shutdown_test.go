package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stream stands in for a server and a pipeline, and notes what happens to them.
type stream struct {
	start time.Time
	idle  chan struct{}
	steps []string
	// drainFor is how long a drain takes if it is let.
	drainFor time.Duration
}

func newStream() *stream {
	return &stream{start: time.Now(), idle: make(chan struct{})}
}

func (s *stream) note(step string) {
	s.steps = append(s.steps, time.Since(s.start).String()+" "+step)
}

func (s *stream) stopServing() <-chan struct{} {
	s.note("stop serving")
	return s.idle
}

func (s *stream) drain(ctx context.Context) error {
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

// ended is a context such as that of a process that got a signal.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("terminated"))
	return ctx
}

func expectSteps(t *testing.T, s *stream, want ...string) {
	t.Helper()
	s.note("end")
	if !slices.Equal(s.steps, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(s.steps, ", "), strings.Join(want, ", "))
	}
}

func TestShutdownFinishesRequestsBeforeItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.drainFor = 2 * time.Second
		time.AfterFunc(3*time.Second, func() { close(s.idle) })
		if err := shutdown(ended(t), 30*time.Second, s.stopServing, s.drain); err != nil {
			t.Error(err)
		}
		expectSteps(t, s, "0s stop serving", "3s drain", "5s drained", "5s end")
	})
}

func TestShutdownDrainsAfterHalfTheTimeEvenIfARequestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.drainFor = time.Second
		if err := shutdown(ended(t), 30*time.Second, s.stopServing, s.drain); err != nil {
			t.Error(err)
		}
		expectSteps(t, s, "0s stop serving", "15s drain", "16s drained", "30s end")
	})
}

func TestShutdownLeavesTimeToAnswerWhatTheDrainGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.drainFor = time.Hour
		// A request is answered as soon as its occurrence is given up.
		drain := func(ctx context.Context) error {
			err := s.drain(ctx)
			time.AfterFunc(100*time.Millisecond, func() { close(s.idle) })
			return err
		}
		err := shutdown(ended(t), 30*time.Second, s.stopServing, drain)
		if err == nil || !strings.Contains(err.Error(), "3 occurrences were not written") {
			t.Errorf("got %v, want what the drain says", err)
		}
		expectSteps(t, s, "0s stop serving", "15s drain", "29s given up", "29.1s end")
	})
}

func TestShutdownOfAShortGracePeriodStillDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream()
		s.drainFor = 300 * time.Millisecond
		if err := shutdown(ended(t), time.Second, s.stopServing, s.drain); err != nil {
			t.Error(err)
		}
		expectSteps(t, s, "0s stop serving", "500ms drain", "800ms drained", "1s end")
	})
}
