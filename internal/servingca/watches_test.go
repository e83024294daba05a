package servingca

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// A watch that does not work is replaced by reads.
func TestChangeIsSeenWithoutAWatch(t *testing.T) {
	s := newScene(t)
	times := rarely()
	times.Resync = 500 * time.Millisecond
	m := s.start(times, intercepting(withoutWatches))
	m.lead()
	m.awaitIssued()
	want := s.text()
	s.deleteConfigMap()
	await.Until(t, "it is repaired", func() bool { return s.text() == want })
}

// Both watches work, each by itself. Some of the reads may be those of the begin.
func TestChangeIsSeenByAWatch(t *testing.T) {
	for resource, change := range map[string]func(*scene, int){
		"secrets":    func(s *scene, n int) { s.editSecret(map[string][]byte{"other": {byte(n)}}) },
		"configmaps": func(s *scene, n int) { s.editConfigMap(map[string]any{"other": string(rune('a' + n))}) },
	} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			var reads atomic.Int64
			m := s.start(rarely(), intercepting(func(req *http.Request) error {
				if !isWatch(req) {
					reads.Add(1)
				}
				return nil
			}))
			<-m.Read()
			for n := range 6 {
				before := reads.Load()
				change(s, n)
				await.Until(t, "both are read again", func() bool { return reads.Load() >= before+2 })
			}
		})
	}
}

// What changes after the first read, and before the watches begin, causes no event of theirs.
func TestChangeBeforeTheWatchIsSeen(t *testing.T) {
	s := newScene(t)
	begin := make(chan struct{})
	var reads atomic.Int64
	m := s.start(rarely(), intercepting(func(req *http.Request) error {
		if isWatch(req) {
			select {
			case <-begin:
			case <-req.Context().Done():
			}
		} else {
			reads.Add(1)
		}
		return nil
	}))
	<-m.Read()
	before := reads.Load()
	s.deleteSecret()
	s.deleteConfigMap()
	close(begin)
	await.Until(t, "both are read again", func() bool { return reads.Load() >= before+2 })
}

// The apiserver may end a watch by an event that is an error.
func TestErrorOfAWatchIsCounted(t *testing.T) {
	s := newScene(t)
	const expired = `{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}}`
	m := s.start(rarely(), func(o *Options) {
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(req)
				if err == nil && isWatch(req) {
					_ = response.Body.Close()
					response.Header.Set("Content-Type", "application/json")
					response.Body = io.NopCloser(strings.NewReader(expired))
				}
				return response, err
			})
		})
	})
	await.Until(t, "both watches have failed", func() bool { return m.count(failedRead) == 2 })
}

// Somebody who writes an object all the time causes no more than a few reads.
func TestReadsAreLimitedWhileAnObjectChanges(t *testing.T) {
	s := newScene(t)
	var reads atomic.Int64
	m := s.start(rarely(), counting(&reads))
	<-m.Read()
	before, begun := reads.Load(), time.Now()
	for i := range 50 {
		s.editConfigMap(map[string]any{"other": string(rune('a' + i%26))})
	}
	m.stop()
	// Two reads per step, and one step that had begun, and two watches.
	if limit := 2*int64(time.Since(begun)/minPause+2) + 2; reads.Load()-before > limit {
		t.Errorf("%d reads in %s", reads.Load()-before, time.Since(begun))
	}
}

// Nor does a certificate that is due while no CA signs.
func TestReadsAreLimitedWhileNoCASigns(t *testing.T) {
	s := newScene(t)
	end := s.start(steadyTimes()).lead()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	end()
	times := rarely()
	times.RetryAfter, times.LeafRenewAfter = 500*time.Millisecond, time.Millisecond
	var gone atomic.Bool
	var since atomic.Pointer[time.Time]
	var reads atomic.Int64
	m := s.start(times, intercepting(func(req *http.Request) error {
		if gone.Load() && !isWatch(req) {
			reads.Add(1)
			now := time.Now()
			since.CompareAndSwap(nil, &now)
		}
		return withoutWatches(req)
	}))
	m.awaitIssued()
	s.deleteConfigMap()
	gone.Store(true)
	const steps = 5
	await.Until(t, "it has read several times", func() bool { return reads.Load() > 2*steps })
	if took := time.Since(*since.Load()); took < (steps-1)*times.RetryAfter {
		t.Errorf("%d reads within %s", reads.Load(), took)
	}
}
