package servingca

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Whatever somebody does to the Secret, another CA replaces the lost one, and what replicas serve with
// stays trusted.
func TestSecretIsRepaired(t *testing.T) {
	other := mustMake(t, time.Now())
	foreign := foreignCA(t)
	otherCertificate, otherKey, err := other.encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*scene){
		"deleted":            func(s *scene) { s.deleteSecret(); s.createSecret() },
		"emptied":            func(s *scene) { s.editSecret(map[string][]byte{currentCertificateKey: nil, currentKeyKey: nil}) },
		"garbage":            func(s *scene) { s.editSecret(map[string][]byte{currentCertificateKey: []byte("garbage")}) },
		"a key of garbage":   func(s *scene) { s.editSecret(map[string][]byte{currentKeyKey: []byte("garbage")}) },
		"the key of another": func(s *scene) { s.editSecret(map[string][]byte{currentKeyKey: otherKey}) },
		"the CA of somebody": func(s *scene) {
			s.editSecret(map[string][]byte{currentCertificateKey: foreign, currentKeyKey: otherKey})
		},
		"the CA of another one": func(s *scene) {
			s.editSecret(map[string][]byte{currentCertificateKey: otherCertificate, currentKeyKey: otherKey})
		},
		"both deleted": func(s *scene) { s.deleteSecret(); s.deleteConfigMap(); s.createSecret() },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			leader, standby := s.start(steadyTimes()), s.start(steadyTimes())
			leader.lead()
			leaves := []*leaf{leader.awaitIssued(), standby.awaitIssued()}
			// The leader knows what it has published.
			await.Until(t, "the state has settled", func() bool { return s.text() != "" })
			s.awaitSettled(func(found *state) bool { return found.current != nil })

			spoil(s)
			found := s.awaitSettled(func(found *state) bool { return found.next != nil && !found.nextPublished.IsZero() })
			if found.current != nil || contains(found.bundle(), other.certificate) {
				t.Errorf("the CA still signs, or that of another one is trusted: %v", found.current)
			}
			for i, m := range []*member{leader, standby} {
				if m.leaf.Load() != leaves[i] {
					t.Error("a certificate was replaced by one that clients may not trust yet")
				}
				if err := verify(leaves[i], s.bundle(), serverName, time.Now()); err != nil {
					t.Error(err)
				}
			}
			if leader.count(foundSecret) == 0 {
				t.Error("the edit is not counted")
			}
			if testutil.ToFloat64(leader.metrics.rotations) > 0 {
				t.Error("a CA counts as replaced before another one signs")
			}
			// One that starts now has nothing better.
			third := s.start(steadyTimes())
			third.awaitIssuer(found.next.certificate)
		})
	}
}

// A leader that has just started knows nothing but the objects.
func TestNewLeaderRepairsTheSecret(t *testing.T) {
	s := newScene(t)
	first := s.start(steadyTimes())
	end := first.lead()
	held := first.awaitIssued()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	end()
	first.stop()
	s.deleteSecret()
	next := s.start(steadyTimes())
	next.lead()
	await.Until(t, "it does not create the Secret", func() bool { return next.count(failedWrite) > 0 })
	s.createSecret()
	s.awaitSettled(func(found *state) bool { return found.next != nil && found.current == nil })
	if err := verify(held, s.bundle(), serverName, time.Now()); err != nil {
		t.Error(err)
	}
}

// Nothing was written before, so there is nothing that clients may know.
func TestFirstCASignsAtOnceWithoutASecret(t *testing.T) {
	s := newScene(t)
	s.deleteSecret()
	s.deleteConfigMap()
	m := s.start(steadyTimes())
	m.lead()
	await.Until(t, "it does not create the Secret", func() bool { return m.count(failedWrite) > 0 })
	s.createSecret()
	found := s.awaitSettled(func(found *state) bool { return found.current != nil || found.next != nil })
	if found.current == nil || len(found.bundle()) != 1 {
		t.Errorf("%d CAs, and none signs", len(found.bundle()))
	}
	if n := m.count(foundSecret); n > 0 {
		t.Errorf("%v edits of somebody else are counted", n)
	}
}

// A leader that was a standby has seen what was published.
func TestStandbyThatTakesOverRepairsBoth(t *testing.T) {
	s := newScene(t)
	first, next := s.start(steadyTimes()), s.start(rarely(), intercepting(withoutWatches))
	end := first.lead()
	held := first.awaitIssued()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	next.notify()
	next.awaitIssued()
	end()
	first.stop()
	s.deleteSecret()
	s.deleteConfigMap()
	next.lead()
	await.Until(t, "it does not create the Secret", func() bool { return next.count(failedWrite) > 0 })
	s.createSecret()
	next.notify()
	s.awaitSettled(func(found *state) bool { return found.next != nil && found.current == nil })
	if err := verify(held, s.bundle(), serverName, time.Now()); err != nil {
		t.Error(err)
	}
}

func TestConfigMapIsRepaired(t *testing.T) {
	foreign := string(foreignCA(t))
	for name, spoil := range map[string]func(*scene){
		"deleted":       func(s *scene) { s.deleteConfigMap() },
		"emptied":       func(s *scene) { s.editConfigMap(map[string]any{BundleKey: nil}) },
		"garbage":       func(s *scene) { s.editConfigMap(map[string]any{BundleKey: "garbage"}) },
		"a foreign CA":  func(s *scene) { s.editConfigMap(map[string]any{BundleKey: foreign}) },
		"another added": func(s *scene) { s.editConfigMap(map[string]any{BundleKey: s.text() + foreign}) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			m := s.start(steadyTimes())
			m.lead()
			l := m.awaitIssued()
			s.awaitSettled(func(found *state) bool { return found.current != nil })
			want := s.text()
			spoil(s)
			await.Until(t, "it is repaired", func() bool { return s.text() == want && m.count(foundConfigMap) > 0 })
			if m.leaf.Load() != l || m.count(foundSecret) > 0 {
				t.Error("more than the ConfigMap has changed")
			}
		})
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

// The right to create is one on the ConfigMap only, by its name: who could create the Secret could
// have the apiserver put the token of another account into it.
func TestCreationIsLimitedToTheConfigMap(t *testing.T) {
	s := newScene(t)
	s.deleteConfigMap()
	s.deleteSecret()
	manager, err := New(Options{Config: s.account, Namespace: s.namespace, Name: "other", Times: steadyTimes()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	if err := manager.store.writeBundle(ctx, content{}, nil); err == nil || !strings.Contains(err.Error(), "cannot patch") {
		t.Errorf("another name: %v", err)
	}
	manager.store.name = objectName
	if err := manager.store.writeBundle(ctx, content{}, nil); err != nil {
		t.Error(err)
	}
	created, err := s.client.ConfigMaps(s.namespace).Get(ctx, objectName, metav1.GetOptions{})
	if err != nil || len(created.Data) > 0 || created.Labels["app.kubernetes.io/name"] != "eventd" {
		t.Errorf("it has created %v (%v)", created, err)
	}
	// Another process has created it meanwhile, and written it.
	s.editConfigMap(map[string]any{"ca.crt": "of another"})
	if err := manager.store.writeBundle(ctx, content{}, []byte("of this")); err != nil {
		t.Error(err)
	}
	if found, err := s.client.ConfigMaps(s.namespace).Get(ctx, objectName, metav1.GetOptions{}); err != nil || found.Data["ca.crt"] != "of another" {
		t.Errorf("a creation has changed it to %q (%v)", found.Data["ca.crt"], err)
	}
	if err := manager.store.writeSecret(ctx, content{}, nil); !errors.Is(err, errNoSecret) {
		t.Errorf("the Secret: %v", err)
	}
	s.createSecret()
	for what, err := range map[string]error{
		"Secret":    manager.store.writeSecret(ctx, content{secretVersion: "1"}, map[string][]byte{"x": nil}),
		"ConfigMap": manager.store.writeBundle(ctx, content{configMapVersion: "1"}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "modified") {
			t.Errorf("another version of the %s: %v", what, err)
		}
	}
}
