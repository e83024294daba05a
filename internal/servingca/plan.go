package servingca

import (
	"bytes"
	"crypto/x509"
	"errors"
	"time"
)

// action is what the leader does next.
type action string

const (
	nothing       action = ""
	createFirst   action = "create"    // a CA that signs at once: there is none to trust
	createNext    action = "prepare"   // a CA that will sign
	publish       action = "publish"   // write the ConfigMap
	notePublished action = "published" // the next CA is published from now on
	switchOver    action = "switch"    // sign with the next CA
	repair        action = "repair"    // write what is left of an edited Secret, and what was lost
	retire        action = "retire"    // remove CAs that no longer sign
)

// errUnknownCA: somebody has replaced the CA.
var errUnknownCA = errors.New("the CA is none that was published")

// view is what is known of both objects.
type view struct {
	state
	// published is the ConfigMap: its text, and the CAs in it.
	text      []byte
	published []*x509.Certificate
	// known are the CAs that this process has seen published by a good Secret.
	known []*x509.Certificate
}

// trusted are the CAs that clients may trust. A process that has just started knows only what the
// ConfigMap says. For others it does not count: who can write it could keep a CA of its own published.
func (v *view) trusted() []*x509.Certificate {
	if len(v.known) > 0 {
		return v.known
	}
	return v.published
}

// rejectUnknown removes a CA that somebody has put into the Secret: it would sign before clients
// trust it. A process that has just started follows the Secret, whatever the ConfigMap says: fewer can
// write it, and replicas may serve with certificates of its CA.
func (v *view) rejectUnknown() {
	if v.current == nil || len(v.known) == 0 || contains(v.known, v.current.certificate) {
		return
	}
	v.current = nil
	v.problem = errors.Join(v.problem, errUnknownCA)
}

// plan returns what the leader does next, and when it has to plan again. It is called again after
// each action.
func plan(now time.Time, times Times, v *view) (do action, again time.Time) {
	switch {
	case !v.canSign(now):
		if len(live(v.trusted(), now)) == 0 {
			return createFirst, now
		}
		return createNext, now
	case v.problem != nil, len(v.lost(now)) > 0, len(v.previous) > 0 && unknown(v.switched, now, times):
		return repair, now
	case !bytes.Equal(v.text, encodeBundle(v.bundle())):
		return publish, now
	case v.next != nil && !v.next.valid(now): // made by a clock that was wrong
		return createNext, now
	case v.next != nil && unknown(v.nextPublished, now, times):
		return notePublished, now
	case v.next != nil:
		return due(now, v.nextPublished.Add(times.PublishFor), switchOver)
	}
	do, again = due(now, v.current.certificate.NotAfter.Add(-times.CARenewBefore), createNext)
	if len(v.previous) > 0 {
		remove, removal := due(now, v.switched.Add(times.RetireAfter), retire)
		if removal.Before(again) {
			return remove, removal
		}
	}
	return do, again
}

// unknown reports whether a time is missing, or so far in the future that somebody has edited it.
func unknown(t, now time.Time, times Times) bool {
	return t.IsZero() || t.After(now.Add(times.Backdate))
}

// lost returns the CAs that were published and are no longer in the Secret.
func (v *view) lost(now time.Time) (lost []*x509.Certificate) {
	bundle := v.bundle()
	for _, c := range live(v.known, now) {
		if !contains(bundle, c) {
			lost = append(lost, c)
		}
	}
	return lost
}

func due(now, at time.Time, do action) (action, time.Time) {
	if now.Before(at) {
		return nothing, at
	}
	return do, at
}

// canSign reports whether there is a CA to sign with, now or later.
func (s *state) canSign(now time.Time) bool {
	return s.current.valid(now) || s.next.valid(now)
}

// valid reports whether clients accept what the CA signs. One of the future was made by a clock that
// was wrong.
func (a *authority) valid(now time.Time) bool {
	return a != nil && !now.Before(a.certificate.NotBefore) && now.Before(a.certificate.NotAfter)
}

// live returns the CAs that have not expired.
func live(bundle []*x509.Certificate, now time.Time) (out []*x509.Certificate) {
	for _, c := range bundle {
		if now.Before(c.NotAfter) {
			out = with(out, c)
		}
	}
	return out
}

// after returns the state after an action on the Secret. made is the new CA of one that creates it.
func (v *view) after(do action, now time.Time, made *authority) state {
	s := v.state
	switch do {
	case createFirst:
		s = state{current: made, switched: now}
	case createNext:
		if !s.current.valid(now) {
			s.current = nil
			s.previous, s.switched = live(with(s.previous, v.trusted()...), now), now
		}
		if s.next != nil {
			s.previous, s.switched = with(s.previous, s.next.certificate), now
		}
		s.next, s.nextPublished = made, time.Time{}
	case repair:
		s.previous, s.switched = live(with(s.previous, v.lost(now)...), now), now
	case notePublished:
		s.nextPublished = now
	case switchOver:
		if s.current != nil {
			s.previous = with(s.previous, s.current.certificate)
		}
		s.current, s.next = s.next, nil
		s.nextPublished, s.switched = time.Time{}, now
	case retire:
		s.previous = nil
	}
	s.problem = nil
	return s
}

// signer returns the CA that a replica signs with: the current one, or the next one if there is no
// other. It returns nil if that is not published yet.
func (v *view) signer(now time.Time) *authority {
	for _, a := range []*authority{v.current, v.next} {
		if a.valid(now) && contains(v.published, a.certificate) {
			return a
		}
	}
	return nil
}

// needsLeaf reports whether a replica replaces its certificate by one of signer. It keeps one of a
// lost CA as long as that is good: clients may not trust the next CA yet.
func (v *view) needsLeaf(now time.Time, l *leaf, signer *authority) bool {
	switch {
	case signer == nil:
		return false
	case l == nil, !now.Before(l.renewAt):
		return true
	case now.Before(l.certificate.Leaf.NotBefore): // issued by a clock that was wrong
		return true
	case !contains(v.published, l.issuer) && !contains(v.bundle(), l.issuer): // and it will not be published again
		return true
	default:
		return signer == v.current && !l.issuer.Equal(signer.certificate)
	}
}
