package servingca

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/test/await"
)

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
