package servingca

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
)

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// counting counts the reads of a member, watches included.
func counting(reads *atomic.Int64) func(*Options) {
	return func(o *Options) {
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(req)
				if req.Method == http.MethodGet {
					reads.Add(1)
				}
				return response, err
			})
		})
	}
}

func TestLeaderKeepsTheCAAndEveryReplicaUsesIt(t *testing.T) {
	s := newScene(t)
	var reads atomic.Int64
	standby, leader := s.start(steadyTimes(), counting(&reads)), s.start(steadyTimes(), counting(&reads))
	await.Until(t, "both have read both objects", func() bool { return reads.Load() > 8 })
	if found := s.state(); found.current != nil {
		t.Fatal("a CA was made without a leader")
	}
	leader.lead()
	for _, m := range []*member{standby, leader} {
		l := m.awaitIssued()
		if err := verify(l, s.bundle(), serverName, time.Now()); err != nil {
			t.Error(err)
		}
		<-m.Read()
		if got := testutil.ToFloat64(m.metrics.leafExpires); got != float64(l.certificate.Leaf.NotAfter.Unix()) {
			t.Errorf("the metric says that the certificate expires at %v", got)
		}
		if got := testutil.ToFloat64(m.metrics.caExpires); got != float64(l.issuer.NotAfter.Unix()) {
			t.Errorf("the metric says that the CA expires at %v", got)
		}
	}
	if standby.leaf.Load().certificate.Leaf.Equal(leader.leaf.Load().certificate.Leaf) {
		t.Error("both have the same certificate")
	}
	before := s.state()
	third := s.start(steadyTimes())
	<-third.Read()
	if third.leaf.Load() == nil {
		t.Error("it has read the CA, and has no certificate")
	}
	third.lead()
	third.awaitIssuer(before.current.certificate)
	for _, m := range []*member{standby, leader, third} {
		for _, reason := range reasons {
			if n := m.count(reason); n > 0 && reason != failedConflict {
				t.Errorf("%v errors of %s", n, reason)
			}
		}
	}
}

// Every few seconds another CA, for clients that see the ConfigMap late, whoever leads. At times two
// do: conflicts decide.
func TestCertificatesAreTrustedThroughRotations(t *testing.T) {
	s := newScene(t)
	members := []*member{s.start(quickTimes()), s.start(quickTimes()), s.start(quickTimes())}
	ends := []func(){members[0].lead(), members[1].lead()}
	for _, m := range members {
		m.awaitIssued()
	}
	mounted := s.mount()
	await.Until(t, "the ConfigMap is mounted", func() bool { return len(mounted.trusted()) > 0 })
	end := s.verifyAll(mounted, members...)
	issuers := map[string]bool{}
	await.Until(t, "three CAs have signed", func() bool {
		issuers[members[2].leaf.Load().issuer.Subject.CommonName] = true
		return len(issuers) == 4
	})
	for _, e := range ends {
		e()
	}
	last := members[2].lead()
	await.Until(t, "the next leader has replaced the CA, too", func() bool {
		return testutil.ToFloat64(members[2].metrics.rotations) > 0
	})
	last()
	checks, failures, err := end()
	var issued float64
	for _, m := range members {
		issued += testutil.ToFloat64(m.metrics.issued)
	}
	t.Logf("%d checks, %v certificates, %v conflicts", checks, issued, members[0].count(failedConflict)+members[1].count(failedConflict))
	if failures > 0 || checks < 100 {
		t.Errorf("%d of %d checks failed: %v", failures, checks, err)
	}
	for _, m := range members {
		for _, reason := range []string{foundSecret, foundConfigMap, failedWrite, failedRead, failedIssue} {
			if n := m.count(reason); n > 0 {
				t.Errorf("%v errors of %s", n, reason)
			}
		}
	}
}

// A former CA is trusted as long as its certificates may be in use, and then no longer.
func TestFormerCAIsRemoved(t *testing.T) {
	s := newScene(t)
	times := quickTimes()
	times.CARenewBefore = time.Minute // once, by the deletion below
	times.LeafLife, times.RetireAfter = 5*time.Second, 6*time.Second
	m := s.start(times)
	m.lead()
	first := m.awaitIssued().issuer
	s.replaceSecret(m)
	await.Until(t, "another CA signs", func() bool { return !m.leaf.Load().issuer.Equal(first) })
	retired := s.awaitSettled(func(found *state) bool { return found.current != nil && len(found.previous) == 0 && found.next == nil })
	if contains(retired.bundle(), first) || time.Since(retired.switched) < times.RetireAfter {
		t.Errorf("the former CA was removed %s after the switch", time.Since(retired.switched))
	}
}

// Leaders whose clocks are a day off make what others make, and replace nothing.
func TestClockThatIsADayOff(t *testing.T) {
	s := newScene(t)
	var first *x509.Certificate
	for _, off := range []time.Duration{day, -day, 0, 30 * day} {
		m := s.start(steadyTimes(), func(o *Options) { o.Now = func() time.Time { return time.Now().Add(off) } })
		end := m.lead()
		l := m.awaitIssued()
		for _, client := range []time.Duration{-day, 0, day} {
			if err := verify(l, s.bundle(), serverName, time.Now().Add(client)); err != nil {
				t.Errorf("leader %s, client %s: %v", off, client, err)
			}
		}
		if first == nil {
			first = l.issuer
		}
		if !l.issuer.Equal(first) || len(s.bundle()) != 1 {
			t.Errorf("%s: the CA was replaced", off)
		}
		end()
		m.stop()
	}
}

func TestReplicaRenewsItsCertificateWithoutTheApiserver(t *testing.T) {
	s := newScene(t)
	line := link.New(t, strings.TrimPrefix(s.account.Host, "https://"))
	times := quickTimes()
	times.CARenewBefore, times.CallTimeout = time.Minute, 300*time.Millisecond
	s.start(times).lead()
	m := s.start(times, func(o *Options) {
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Host = "https://" + line.Address()
	})
	held := m.awaitIssued()
	line.Cut()
	await.Until(t, "requests fail", func() bool { return m.count(failedRead) > 0 })
	failed := time.Now()
	await.Until(t, "another certificate is issued", func() bool {
		return m.leaf.Load().certificate.Leaf.NotBefore.After(failed.Add(-times.Backdate).Truncate(time.Second))
	})
	if l := m.leaf.Load(); l == held || verify(l, s.bundle(), serverName, time.Now()) != nil {
		t.Error("it is no good certificate")
	}
	m.stop() // requests hang
	line.Mend()
}

// A leader that loses its lease writes no more.
func TestOnlyTheLeaderWrites(t *testing.T) {
	s := newScene(t)
	var reads atomic.Int64
	m := s.start(steadyTimes(), counting(&reads))
	end := m.lead()
	m.awaitIssued()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	end()
	s.deleteConfigMap()
	before := reads.Load()
	await.Until(t, "it has read that it is gone", func() bool { return reads.Load() > before+4 })
	if s.text() != "" {
		t.Error("it has written the ConfigMap without leading")
	}
	m.lead()
	await.Until(t, "it is repaired", func() bool { return s.text() != "" })
}
