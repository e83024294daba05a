package servingca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"
)

// keep does what a leader does at a time until nothing is due.
func (v *view) keep(t *testing.T, now time.Time, times Times) {
	t.Helper()
	for range maxActions {
		v.rejectUnknown()
		do, _ := plan(now, times, v)
		if do == nothing {
			v.known = v.bundle()
			return
		}
		if do == publish {
			v.text = encodeBundle(v.bundle())
			v.published, _ = parseBundle(v.text)
			continue
		}
		made, err := newAuthority(now, times)
		if err != nil {
			t.Fatal(err)
		}
		s := v.after(do, now, made)
		data, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		v.state, v.known = decode(data), s.bundle()
	}
	t.Fatalf("still not done after %d actions", maxActions)
}

// replica issues its certificate as it has to, and returns an error if no client can verify it.
func (v *view) replica(t *testing.T, l **leaf, now time.Time, times Times) error {
	t.Helper()
	if signer := v.signer(now); v.needsLeaf(now, *l, signer) {
		issued, err := issue(signer, []string{"eventd"}, now, times)
		if err != nil {
			t.Fatal(err)
		}
		*l = issued
	}
	if *l == nil {
		return fmt.Errorf("it has none, with %d CAs published", len(v.published))
	}
	return verify(*l, v.published, "eventd", now)
}

// The clock of an apiserver is wrong for a moment: while the first CA is made, or later. What was made
// then is replaced.
func TestClockThatWasAheadForAMoment(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	for _, off := range []time.Duration{3 * day, 30 * day, 270 * day, 400 * day} {
		for name, installed := range map[string]bool{"at the installation": false, "later": true} {
			t.Run(fmt.Sprintf("by_%.0f_days_%s", off.Hours()/24, strings.ReplaceAll(name, " ", "_")), func(t *testing.T) {
				var v view
				var l *leaf
				if installed {
					v.keep(t, now, times)
					_ = v.replica(t, &l, now, times)
				}
				v.keep(t, now.Add(off), times)
				_ = v.replica(t, &l, now.Add(off), times)
				for at := now.Add(time.Hour); at.Before(now.Add(30 * day)); at = at.Add(time.Hour) {
					v.keep(t, at, times)
					if err := v.replica(t, &l, at, times); err != nil {
						t.Fatalf("%s later: %v", at.Sub(now), err)
					}
				}
			})
		}
	}
}

// A leader that has just started follows the Secret: who can write the ConfigMap only has no CA of his
// own trusted for longer than until it is restored.
func TestNewLeaderRestoresTheConfigMap(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	own, other := mustMake(t, now), mustMake(t, now)
	v := view{state: state{current: own}, published: []*x509.Certificate{other.certificate}, text: encodeBundle([]*x509.Certificate{other.certificate})}
	v.keep(t, now, times)
	if !contains(v.published, own.certificate) || contains(v.published, other.certificate) || v.current == nil {
		t.Errorf("the CA of the Secret is not the one that is published: %d CAs", len(v.published))
	}
}

// The leader knows what it has published: a CA that is added while the Secret is deleted is not kept.
func TestCAInTheConfigMapIsNotKeptByALeaderThatKnows(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	own, other := mustMake(t, now), mustMake(t, now)
	both := []*x509.Certificate{own.certificate, other.certificate}
	v := view{known: both[:1], published: both, text: encodeBundle(both)}
	v.keep(t, now, times)
	if !contains(v.published, own.certificate) || contains(v.published, other.certificate) {
		t.Error("the wrong CAs stay published")
	}
}

// However often somebody deletes the Secret, replicas have certificates that clients can verify.
func TestSecretIsDeletedAllTheTime(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	var v view
	var old *leaf
	for i := range 3 * maxBundle {
		v.keep(t, now.Add(time.Duration(i)*time.Minute), times)
		var fresh *leaf
		for _, l := range []**leaf{&old, &fresh} {
			if err := v.replica(t, l, now.Add(time.Duration(i)*time.Minute), times); err != nil {
				t.Fatalf("after %d deletions: %v", i, err)
			}
		}
		v.state = state{}
	}
}

// Anybody can send a name of 60 KB. It is not compared.
func TestNameThatIsTooLongCostsNothing(t *testing.T) {
	now := time.Now()
	l, err := issue(mustMake(t, now), []string{"eventd"}, now, DefaultTimes())
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{}
	m.leaf.Store(l)
	hello := &tls.ClientHelloInfo{ServerName: strings.Repeat("a.", 30_000)}
	if n := testing.AllocsPerRun(10, func() { _, _ = m.GetCertificate(hello) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A ConfigMap has place for thousands of certificates.
func TestBundleOfThousandsIsNotRead(t *testing.T) {
	one := encodeBundle([]*x509.Certificate{mustMake(t, time.Now()).certificate})
	bundle, err := parseBundle(bytes.Repeat(one, maxBlocks+1))
	if err == nil || len(bundle) != 1 {
		t.Errorf("%d CAs, %v", len(bundle), err)
	}
	if _, err := parseBundle(bytes.Repeat(one, maxBlocks-1)); err != nil {
		t.Error(err)
	}
}
