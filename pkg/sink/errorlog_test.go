package sink

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// logged is what a sink has logged, a line each.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// wantLines checks what has been logged since the last time: one line for each of
// these, with all of its parts. The log comes after the ledger, which a flush waits
// for.
func (l *logged) wantLines(t *testing.T, want ...[]string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) != len(want) {
		t.Fatalf("%d lines are logged, want %d: %q", len(l.lines), len(want), l.lines)
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(l.lines[i], part) {
				t.Errorf("%s\nis not in\n%s", part, l.lines[i])
			}
		}
	}
	l.lines = nil
}

// logging is a bubble with a log.
func logging(t *testing.T, f *fake, test func(t *testing.T, b *bench, l *logged)) {
	t.Helper()
	l := &logged{}
	f.log = l.add
	limits := func(o *Options) { o.MaxPendingSeries, o.NamespaceRefusedFor, o.RetryFor = 100, 0, time.Minute }
	bubble(t, f, limits, func(t *testing.T, b *bench) { test(t, b, l) })
}

func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	f := &fake{answer: fail(apierrors.NewBadRequest("no such thing"))}
	logging(t, f, func(t *testing.T, b *bench, l *logged) {
		for i := range 50 {
			b.record(i)
			b.flush()
			synctest.Wait() // the log comes after it
		}
		l.wantLines(t, []string{`"error"="no such thing"`, `"reason"="invalid"`, `"soFar"=1`, `"object"={"name"="pod-0" "namespace"="ns"}`, `"eventReason"="Tested"`})
		time.Sleep(ratelimitedlog.Interval)
		b.record(77)
		b.flush()
		l.wantLines(t, []string{`"soFar"=51`, `pod-77`})
	})
}

// Namespaces that are gone are not: they are deleted with their Events. Nor is what a
// shutdown drops, also of what was in flight: Close returns it.
func TestEachReasonIsLogged(t *testing.T) {
	terminating := apierrors.NewForbidden(sinktest.EventsResource, "e", errLost)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, test := range []struct {
		err  error
		end  any
		want [][]string
	}{
		{errTooMany, occurrence.RetriesExhausted, [][]string{{`"reason"="retries_exhausted"`, `later`}}},
		{errLost, occurrence.Uncertain, [][]string{{`"reason"="uncertain"`, `"soFar"=1`}}},
		{missing("ns"), notFound, nil},
		{terminating, occurrence.NamespaceTerminating, nil},
	} {
		logging(t, &fake{answer: fail(test.err)}, func(t *testing.T, b *bench, l *logged) {
			b.record(0)
			b.flush()
			b.wantEnds(ends{test.end: 1})
			l.wantLines(t, test.want...)
		})
	}
	logging(t, &fake{answer: hang}, func(t *testing.T, b *bench, l *logged) {
		b.recordEach(101)
		l.wantLines(t, []string{`"reason"="pending_full"`, `"error"=null`})
		b.closeWithin(time.Second / 2)
		l.wantLines(t)
	})
	logging(t, &fake{answer: fail(errUnreachable)}, func(t *testing.T, b *bench, l *logged) {
		b.record(0)
		l.wantLines(t, []string{`Unable to reach the apiserver`, `"error"="dial: connection refused"`})
	})
	logging(t, stuck(everything), func(t *testing.T, b *bench, l *logged) {
		b.record(0)
		pass(b.options.RequestTimeout + requestGrace)
		l.wantLines(t, []string{`A request to the apiserver ignores its timeout`, `"error"="there is no answer"`})
	})
}

// A right that is missing is used again now and then, and logged once. A role may allow a
// verb in one API group and not in the other.
func TestMissingRightIsLoggedOnceForEachAPIGroup(t *testing.T) {
	logging(t, withRights("create"), func(t *testing.T, b *bench, l *logged) {
		lines := [][]string{
			{`"verb"="patch" "apiGroup"="" "namespace"="ns"`}, {`"verb"="get" "apiGroup"="" "namespace"="ns"`},
			{`"verb"="patch" "apiGroup"="events.k8s.io"`}, {`"verb"="get" "apiGroup"="events.k8s.io"`},
		}
		for range 2 {
			for range 3 {
				b.record(0)
				b.flush()
				b.record(0, newStyle)
				b.flush()
			}
			l.wantLines(t, lines...)
			lines = nil
			time.Sleep(deniedFor)
		}
	})
}
