package servingca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"time"
)

func TestStateAfterEachAction(t *testing.T) {
	times := DefaultTimes()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	before := now.Add(-time.Hour)
	a, b, made := mustMake(t, now), mustMake(t, now), mustMake(t, now)
	former, lost := mustMake(t, now).certificate, mustMake(t, now).certificate
	expired := mustMake(t, now.Add(-times.CALife-time.Hour))
	certificates := func(c ...*x509.Certificate) []*x509.Certificate { return c }
	for name, c := range map[string]struct {
		do   action
		view view
		want state
	}{
		"the first one": {createFirst, view{state: state{current: expired, previous: certificates(expired.certificate)}}, state{current: made, switched: now}},
		"another one beside one that signs": {
			createNext, view{state: state{current: a, nextPublished: before, previous: certificates(former), switched: before}, known: certificates(lost)},
			state{current: a, next: made, previous: certificates(former), switched: before},
		},
		"another one in place of a lost one": {
			createNext, view{state: state{previous: certificates(former), switched: before}, published: certificates(lost), known: certificates(a.certificate, expired.certificate)},
			state{next: made, previous: certificates(former, a.certificate), switched: now}, // it knows what it has published
		},
		"another one in place of one that has expired": {
			createNext, view{state: state{current: expired}, published: certificates(a.certificate)},
			state{next: made, previous: certificates(a.certificate), switched: now},
		},
		"a repair": {
			repair, view{state: state{current: a, previous: certificates(former, expired.certificate), switched: before}, known: certificates(a.certificate, lost)},
			state{current: a, previous: certificates(former, lost), switched: now},
		},
		"it is published": {
			notePublished, view{state: state{current: a, next: b, switched: before}},
			state{current: a, next: b, nextPublished: now, switched: before},
		},
		"the next one signs": {
			switchOver, view{state: state{current: a, next: b, nextPublished: before, previous: certificates(former), switched: before}},
			state{current: b, previous: certificates(former, a.certificate), switched: now},
		},
		"the next one signs, and none did": {
			switchOver, view{state: state{next: b, nextPublished: before, previous: certificates(former), switched: before}},
			state{current: b, previous: certificates(former), switched: now},
		},
		"former ones are removed": {
			retire, view{state: state{current: b, previous: certificates(former, a.certificate), switched: before}},
			state{current: b, switched: before},
		},
	} {
		c.view.problem = errors.New("a problem that is repaired")
		got := c.view.after(c.do, now, made)
		if got.current != c.want.current || got.next != c.want.next || got.problem != nil ||
			!bytes.Equal(encodeBundle(got.previous), encodeBundle(c.want.previous)) {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		if !got.nextPublished.Equal(c.want.nextPublished) || !got.switched.Equal(c.want.switched) {
			t.Errorf("%s: published at %s and switched at %s, want %s and %s", name, got.nextPublished, got.switched, c.want.nextPublished, c.want.switched)
		}
	}
}

// A key that is nil is removed from the Secret.
func TestSecretHasNoMoreThanTheState(t *testing.T) {
	for name, c := range map[string]struct {
		state state
		empty []string
	}{
		"one CA": {state{current: mustMake(t, time.Now())}, []string{nextCertificateKey, nextKeyKey, previousKey, nextPublishedKey, switchedKey}},
		"none":   {state{switched: time.Now()}, []string{currentCertificateKey, currentKeyKey, nextCertificateKey, nextKeyKey, previousKey, nextPublishedKey}},
	} {
		data, err := c.state.encode()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range c.empty {
			if value, ok := data[key]; !ok || value != nil {
				t.Errorf("%s: %s is %q, and not removed", name, key, value)
			}
		}
	}
}

func TestBundleBeginsWithTheOldest(t *testing.T) {
	now := time.Now()
	for range 8 { // by chance, the bytes have the same order
		old, young := mustMake(t, now.Add(-day)), mustMake(t, now)
		s := state{current: young, previous: []*x509.Certificate{old.certificate}}
		if bundle := s.bundle(); !bundle[0].Equal(old.certificate) || !bundle[1].Equal(young.certificate) {
			t.Fatal("the younger one is before the older one")
		}
	}
}

// Certificates of it are in use.
func TestCAWithoutItsKeyStaysPublished(t *testing.T) {
	now := time.Now()
	a, former := mustMake(t, now), mustMake(t, now)
	data, err := (&state{current: a, previous: []*x509.Certificate{former.certificate}}).encode()
	if err != nil {
		t.Fatal(err)
	}
	delete(data, currentKeyKey)
	s := decode(data)
	if s.current != nil || s.problem == nil || !contains(s.bundle(), a.certificate) || !contains(s.bundle(), former.certificate) {
		t.Errorf("got %+v", s)
	}
}

// What the leader takes for the state that clients know: a good Secret whose CA is published.
func TestKnownIsWhatAGoodSecretHasPublished(t *testing.T) {
	now := time.Now()
	a, b, known := mustMake(t, now), mustMake(t, now), mustMake(t, now)
	edited := published(state{current: a, problem: errors.New("edited")})
	unpublished := &view{state: state{current: b}, text: []byte("text"), published: []*x509.Certificate{a.certificate}}
	for name, c := range map[string]struct {
		view *view
		want []*x509.Certificate
	}{
		"it is published":     {published(state{current: a, next: b}), published(state{current: a, next: b}).bundle()},
		"it is not":           {unpublished, nil},
		"the Secret is wrong": {edited, nil},
		"no CA signs":         {published(state{next: b}), nil},
	} {
		m := &Manager{agreed: "before"}
		m.last = *c.view
		m.last.known = []*x509.Certificate{known.certificate}
		m.agree()
		want, text := c.want, string(c.view.text)
		if want == nil {
			want, text = []*x509.Certificate{known.certificate}, "before"
		}
		if !bytes.Equal(encodeBundle(m.last.known), encodeBundle(want)) || m.agreed != text {
			t.Errorf("%s: it knows %d CAs, and the text is %q", name, len(m.last.known), m.agreed)
		}
	}
}
