package servingca

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

var errRefused = errors.New("refused by the test")

// intercepting calls before with each request of a member; its error replaces the response.
func intercepting(before func(*http.Request) error) func(*Options) {
	return func(o *Options) {
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if err := before(req); err != nil {
					return nil, err
				}
				return next.RoundTrip(req)
			})
		})
	}
}

func isWatch(req *http.Request) bool { return req.URL.Query().Get("watch") != "" }

// withoutWatches has a member learn of changes by reading only.
func withoutWatches(req *http.Request) error {
	if isWatch(req) {
		return errRefused
	}
	return nil
}

// rarely are times after which nothing happens in a test.
func rarely() Times {
	times := steadyTimes()
	times.Resync, times.RetryAfter = day, day
	return times
}

func TestCallsAreBounded(t *testing.T) {
	s := newScene(t)
	times := steadyTimes()
	times.CallTimeout = 7 * time.Second
	var watches, reads, writes atomic.Int64
	m := s.start(times, intercepting(func(req *http.Request) error {
		deadline, ok := req.Context().Deadline()
		left := time.Until(deadline)
		switch {
		case !ok:
			t.Errorf("%s %s has no deadline", req.Method, req.URL)
		case isWatch(req):
			watches.Add(1)
			ends, err := time.ParseDuration(req.URL.Query().Get("timeoutSeconds") + "s")
			if err != nil || ends < watchFor || ends > 2*watchFor || left > ends+times.CallTimeout+time.Second {
				t.Errorf("a watch ends after %s (%v), and its request after %s", ends, err, left)
			}
			if req.URL.Query().Get("fieldSelector") != "metadata.name="+objectName {
				t.Errorf("a watch of more than one object: %s", req.URL)
			}
		case req.Method == http.MethodGet:
			reads.Add(1)
			if left > 2*times.CallTimeout {
				t.Errorf("a read ends after %s", left)
			}
		default:
			writes.Add(1)
			if left > times.CallTimeout {
				t.Errorf("a write ends after %s", left)
			}
		}
		return nil
	}))
	m.lead()
	m.awaitIssued()
	await.Until(t, "it watches, reads and writes both", func() bool {
		return watches.Load() >= 2 && reads.Load() >= 2 && writes.Load() >= 2
	})
}

// One that hangs ends with the term, without an error: another leader writes now.
func TestWriteEndsWithTheTerm(t *testing.T) {
	s := newScene(t)
	times := steadyTimes()
	times.CallTimeout = time.Hour
	writing, ended := make(chan struct{}), make(chan struct{})
	m := s.start(times, intercepting(func(req *http.Request) error {
		if req.Method == http.MethodGet {
			return nil
		}
		close(writing)
		<-req.Context().Done()
		close(ended)
		return req.Context().Err()
	}))
	end := m.lead()
	<-writing
	end()
	await.Until(t, "the write has ended", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	<-m.Read() // of the next step
	for _, reason := range reasons {
		if n := m.count(reason); n > 0 {
			t.Errorf("%v errors of %s", n, reason)
		}
	}
}

// An object that is deleted between a read and a write is one that has changed meanwhile.
func TestObjectThatIsDeletedMeanwhileIsAConflict(t *testing.T) {
	s := newScene(t)
	var deleted atomic.Bool
	m := s.start(steadyTimes(), intercepting(func(req *http.Request) error {
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/configmaps/") && deleted.CompareAndSwap(false, true) {
			s.deleteConfigMap()
		}
		return nil
	}))
	m.lead()
	m.awaitIssued()
	if m.count(failedConflict) == 0 || m.count(failedWrite) > 0 {
		t.Errorf("%v conflicts, %v failed writes", m.count(failedConflict), m.count(failedWrite))
	}
}

// What fails is tried again after a while, and counted by what it was.
func TestFailuresAreRetriedAfterAPause(t *testing.T) {
	for name, c := range map[string]struct {
		fails  func(*http.Request) bool
		reason string
	}{
		"reads":   {func(req *http.Request) bool { return req.Method == http.MethodGet && !isWatch(req) }, failedRead},
		"writes":  {func(req *http.Request) bool { return req.Method == http.MethodPatch }, failedWrite},
		"watches": {func(req *http.Request) bool { return isWatch(req) && strings.Contains(req.URL.Path, "/secrets") }, failedRead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			times := rarely()
			times.RetryAfter = 300 * time.Millisecond
			const failures = 5 // the begin of the term causes one of the tries
			var tries atomic.Int64
			var last atomic.Pointer[time.Time]
			begun := time.Now()
			m := s.start(times, intercepting(func(req *http.Request) error {
				if c.fails(req) && tries.Add(1) <= failures {
					now := time.Now()
					last.Store(&now)
					return errRefused
				}
				if c.reason == failedRead && name == "reads" {
					return withoutWatches(req)
				}
				return nil
			}))
			m.lead()
			m.awaitIssued()
			await.Until(t, "it has failed, and was tried again", func() bool { return tries.Load() > failures })
			if took := last.Load().Sub(begun); took < (failures-2)*times.RetryAfter {
				t.Errorf("%d tries within %s", failures, took)
			}
			for _, reason := range reasons {
				if n := m.count(reason); (n > 0) != (reason == c.reason) {
					t.Errorf("%v errors of %s", n, reason)
				}
			}
		})
	}
}

// Before both objects were read, nobody knows whether there is a CA.
func TestReadIsNotAnnouncedAfterAFailure(t *testing.T) {
	for _, resource := range []string{"secrets", "configmaps"} {
		t.Run(resource, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			times := rarely()
			times.RetryAfter = 10 * time.Millisecond
			var refuse atomic.Bool
			refuse.Store(true)
			var refused atomic.Int64
			m := s.start(times, intercepting(func(req *http.Request) error {
				if refuse.Load() && strings.HasSuffix(req.URL.Path, "/"+resource+"/"+objectName) {
					refused.Add(1)
					return errRefused
				}
				return withoutWatches(req)
			}))
			await.Until(t, "reads have failed, one in each step", func() bool { return refused.Load() > 3 })
			select {
			case <-m.Read():
				t.Error("a failed read is announced")
			default:
			}
			refuse.Store(false)
			<-m.Read()
		})
	}
}

// Whoever waits for Read finds the certificate.
func TestReadIsAnnouncedAfterTheCertificate(t *testing.T) {
	s := newScene(t)
	s.start(steadyTimes()).lead()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	var m atomic.Pointer[member]
	later := s.start(rarely(), func(o *Options) {
		o.Now = func() time.Time {
			if m := m.Load(); m != nil && m.leaf.Load() == nil {
				select {
				case <-m.Read():
					t.Error("the read is announced, and there is no certificate")
				default:
				}
			}
			return time.Now()
		}
	}, intercepting(func(req *http.Request) error {
		await.Until(t, "the member is known", func() bool { return m.Load() != nil })
		return nil
	}))
	m.Store(later)
	<-later.Read()
	later.awaitIssued()
}

// Without a change and without a watch, what is due is done when it is due.
func TestWhatIsDueIsDoneInTime(t *testing.T) {
	s := newScene(t)
	times := rarely()
	times.CARenewBefore = times.CALife - time.Second // one rotation after the other
	times.PublishFor, times.RetireAfter = time.Second, time.Second
	leader := s.start(times, intercepting(withoutWatches))
	<-leader.Read()
	leader.lead()
	await.Until(t, "the CA is replaced twice", func() bool { return testutil.ToFloat64(leader.metrics.rotations) >= 2 })

	times = rarely()
	times.LeafRenewAfter, times.RetryAfter = 500*time.Millisecond, 10*time.Millisecond
	standby := s.start(times, intercepting(withoutWatches))
	await.Until(t, "a certificate is renewed twice", func() bool { return testutil.ToFloat64(standby.metrics.issued) >= 3 })
}

// The caller's configuration stays as it is, and requests do not wait for a rate limit of the client.
func TestManagerHasAClientOfItsOwn(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	m, err := New(Options{Config: config, Namespace: "n", Name: objectName, Times: steadyTimes()})
	if err != nil {
		t.Fatal(err)
	}
	if config.WrapTransport != nil || config.QPS != 0 {
		t.Error("the caller's configuration has changed")
	}
	if m.store.client.RESTClient().GetRateLimiter() != nil {
		t.Error("requests wait for a rate limit")
	}
}

// Each metric is there before anything happens.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	if _, err := newMetrics(registry); err == nil {
		t.Error("they are registered twice")
	}
	for name, want := range map[string]int{
		"eventd_serving_ca_certificate_expiration_timestamp_seconds": 1, "eventd_serving_ca_expiration_timestamp_seconds": 1,
		"eventd_serving_ca_certificates_issued_total": 1, "eventd_serving_ca_rotations_total": 1, "eventd_serving_ca_errors_total": len(reasons),
	} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n != want {
			t.Errorf("%d of %s (%v)", n, name, err)
		}
	}
}
