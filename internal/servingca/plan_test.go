package servingca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"testing"
	"time"
)

func mustMake(t testing.TB, now time.Time) *authority {
	t.Helper()
	a, err := newAuthority(now, DefaultTimes())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// published returns the view of a process that sees a Secret, and a ConfigMap that agrees.
func published(s state) *view {
	return &view{state: s, text: encodeBundle(s.bundle()), published: s.bundle()}
}

func TestPlanOfTheLeader(t *testing.T) {
	times := DefaultTimes()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	a, b, lost := mustMake(t, now), mustMake(t, now), mustMake(t, now)
	expired := mustMake(t, now.Add(-times.CALife-time.Hour))
	known := func(v *view, c *x509.Certificate) *view { v.known = []*x509.Certificate{c}; return v }
	expires := a.certificate.NotAfter
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	rotating := state{current: a, next: b, nextPublished: ago(times.PublishFor - time.Hour)}
	retiring := state{current: b, previous: []*x509.Certificate{a.certificate}, switched: ago(times.RetireAfter - time.Hour)}
	for name, c := range map[string]struct {
		view  *view
		at    time.Time
		want  action
		again time.Time
	}{
		"nothing is there":                      {&view{}, now, createFirst, now},
		"it is not published":                   {&view{state: state{current: a}}, now, publish, now},
		"all is well":                           {published(state{current: a}), now, nothing, expires.Add(-times.CARenewBefore)},
		"the CA is old":                         {published(state{current: a}), expires.Add(-times.CARenewBefore), createNext, time.Time{}},
		"the CA has expired":                    {published(state{current: a}), expires, createFirst, time.Time{}},
		"the next one is not published":         {&view{state: state{current: a, next: b}, text: encodeBundle([]*x509.Certificate{a.certificate})}, now, publish, now},
		"the next one has just been published":  {published(state{current: a, next: b}), now, notePublished, now},
		"the next one is published":             {published(rotating), now, nothing, now.Add(time.Hour)},
		"the next one is published long enough": {published(rotating), now.Add(time.Hour), switchOver, time.Time{}},
		"a time of the future":                  {published(state{current: a, next: b, nextPublished: now.Add(times.Backdate + time.Second)}), now, notePublished, now},
		"a clock that was a day ahead":          {published(state{current: a, next: b, nextPublished: now.Add(day)}), now, nothing, now.Add(day + times.PublishFor)},
		"the former one is trusted":             {published(retiring), now, nothing, now.Add(time.Hour)},
		"the former one is trusted long enough": {published(retiring), now.Add(time.Hour), retire, time.Time{}},
		"it is not known when it was switched":  {published(state{current: b, previous: []*x509.Certificate{a.certificate}}), now, repair, now},
		"the Secret was deleted":                {&view{published: []*x509.Certificate{a.certificate}}, now, createNext, now},
		"both were deleted":                     {&view{known: []*x509.Certificate{a.certificate}}, now, createNext, now},
		"a part of the Secret is not readable":  {&view{state: state{current: a, problem: errors.New("next-ca.crt")}}, now, repair, now},
		"only the next one has a key":           {published(state{next: b, nextPublished: ago(times.PublishFor), previous: []*x509.Certificate{a.certificate}, switched: now}), now, switchOver, time.Time{}},
		"a former CA was removed":               {&view{state: state{current: b}, known: []*x509.Certificate{lost.certificate}}, now, repair, now},
		"a former CA has expired":               {known(published(state{current: b}), expired.certificate), now, nothing, expires.Add(-times.CARenewBefore)},
		"the ConfigMap was edited":              {&view{state: state{current: a}, text: []byte("garbage"), known: []*x509.Certificate{a.certificate}}, now, publish, now},
	} {
		do, again := plan(c.at, times, c.view)
		if do != c.want || !c.again.IsZero() && !again.Equal(c.again) {
			t.Errorf("%s: %q until %s, want %q until %s", name, do, again, c.want, c.again)
		}
	}
}

// A CA that somebody puts into the Secret does not sign: no client trusts it.
func TestCAThatWasNotPublishedIsRejected(t *testing.T) {
	now := time.Now()
	own, other := mustMake(t, now), mustMake(t, now)
	for name, c := range map[string]struct {
		view view
		want action
	}{
		"beside a known one": {view{state: state{current: other}, known: []*x509.Certificate{own.certificate}}, createNext},
		"beside a known one, and published": {view{
			state: state{current: other}, known: []*x509.Certificate{own.certificate}, published: []*x509.Certificate{other.certificate},
		}, createNext},
		"the first one": {view{state: state{current: other}}, publish},
	} {
		c.view.rejectUnknown()
		do, _ := plan(now, DefaultTimes(), &c.view)
		if do != c.want {
			t.Errorf("%s: %q, want %q", name, do, c.want)
		}
		if do == createNext {
			if s := c.view.after(do, now, mustMake(t, now)); !contains(s.bundle(), own.certificate) || contains(s.bundle(), other.certificate) {
				t.Errorf("%s: the wrong CAs stay trusted", name)
			}
		}
	}
}

func TestSecretKeepsTheState(t *testing.T) {
	now := time.Now()
	want := state{
		current: mustMake(t, now), next: mustMake(t, now), previous: []*x509.Certificate{mustMake(t, now).certificate, mustMake(t, now).certificate},
		nextPublished: now, switched: now.Add(-time.Hour),
	}
	data, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got := decode(data)
	if got.problem != nil || !bytes.Equal(encodeBundle(got.bundle()), encodeBundle(want.bundle())) || len(got.bundle()) != 4 ||
		!got.nextPublished.Equal(want.nextPublished) || !got.switched.Equal(want.switched) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if again, err := got.encode(); err != nil || !bytes.Equal(again[currentKeyKey], data[currentKeyKey]) {
		t.Errorf("the key has changed (%v)", err)
	}
}

func TestWhatIsWrongInTheSecretIsFound(t *testing.T) {
	now := time.Now()
	own, other := mustMake(t, now), mustMake(t, now)
	encoded := func(s state) map[string][]byte {
		data, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	foreign := foreignCA(t)
	for name, spoil := range map[string]func(map[string][]byte){
		"a certificate of garbage":      func(d map[string][]byte) { d[currentCertificateKey] = []byte("garbage") },
		"a key of garbage":              func(d map[string][]byte) { d[currentKeyKey] = []byte("garbage") },
		"a key that is cut off":         func(d map[string][]byte) { d[currentKeyKey] = d[currentKeyKey][:80] },
		"the key of another CA":         func(d map[string][]byte) { d[currentKeyKey] = encoded(state{current: other})[currentKeyKey] },
		"no key":                        func(d map[string][]byte) { delete(d, currentKeyKey) },
		"no certificate":                func(d map[string][]byte) { delete(d, currentCertificateKey) },
		"a CA that eventd has not made": func(d map[string][]byte) { d[currentCertificateKey] = foreign },
		"two certificates": func(d map[string][]byte) {
			d[currentCertificateKey] = append(d[currentCertificateKey], encoded(state{current: other})[currentCertificateKey]...)
		},
		"former CAs of garbage": func(d map[string][]byte) {
			d[previousKey] = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		},
		"text after the former CAs": func(d map[string][]byte) {
			d[previousKey] = append(encodeBundle([]*x509.Certificate{other.certificate}), "text"...)
		},
		"former CAs of another type": func(d map[string][]byte) {
			d[previousKey] = pem.EncodeToMemory(&pem.Block{Type: privateKeyType, Bytes: other.certificate.Raw})
		},
		"a next CA whose key is another one": func(d map[string][]byte) {
			d[nextCertificateKey], d[nextKeyKey] = encodeBundle([]*x509.Certificate{other.certificate}), d[currentKeyKey]
		},
	} {
		data := encoded(state{current: own})
		spoil(data)
		s := decode(data)
		if s.problem == nil {
			t.Errorf("%s: not found", name)
		}
		if s.current != nil && !s.current.certificate.Equal(own.certificate) {
			t.Errorf("%s: another CA signs", name)
		}
		if d := encoded(s); decode(d).problem != nil {
			t.Errorf("%s: still wrong after it was written: %v", name, decode(d).problem)
		}
	}
}

func FuzzDecode(f *testing.F) {
	a := mustMake(f, time.Now())
	certificate, key, _ := a.encode()
	f.Add(certificate, key, certificate, []byte("2026-01-01T00:00:00Z"))
	f.Add([]byte("x"), []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, certificate, key, previous, at []byte) {
		s := decode(map[string][]byte{currentCertificateKey: certificate, currentKeyKey: key, previousKey: previous, switchedKey: at, nextPublishedKey: at})
		data, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again := decode(data); again.problem != nil || !bytes.Equal(encodeBundle(again.bundle()), encodeBundle(s.bundle())) {
			t.Errorf("it is another state after it was written: %v", again.problem)
		}
	})
}

func TestLeafIsReplacedWhenItHasTo(t *testing.T) {
	times, now := DefaultTimes(), time.Now()
	a, b := mustMake(t, now), mustMake(t, now)
	held, err := issue(a, []string{"eventd"}, now, times)
	if err != nil {
		t.Fatal(err)
	}
	rotating := published(state{current: a, next: b})
	unpublished := &view{state: state{current: b}, published: []*x509.Certificate{a.certificate}}
	lost := published(state{next: b, previous: []*x509.Certificate{a.certificate}})
	edited := published(state{next: b, previous: []*x509.Certificate{a.certificate}})
	edited.published = []*x509.Certificate{b.certificate}
	early, err := issue(a, []string{"eventd"}, now.Add(times.Backdate+time.Hour), times)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		view *view
		leaf *leaf
		at   time.Time
		want *authority
	}{
		"the first one":           {rotating, nil, now, a},
		"it is good":              {rotating, held, now, nil},
		"it is old":               {rotating, held, now.Add(times.LeafRenewAfter), a},
		"another CA signs":        {published(state{current: b}), held, now, b},
		"the CA is not published": {unpublished, held, now.Add(times.LeafRenewAfter), nil},
		"the CA is not published, and there is none": {unpublished, nil, now, nil},
		"the CA has expired":                         {published(state{current: a}), nil, a.certificate.NotAfter, nil},
		"the CA is lost":                             {lost, held, now, nil},
		"the CA is lost, and it is old":              {lost, held, now.Add(times.LeafRenewAfter), b},
		"the CA is lost, and there is none":          {lost, nil, now, b},
		"the CA is no longer published":              {published(state{next: b}), held, now, b},
		"the CA will be published again":             {edited, held, now, nil},
		"it was issued by a wrong clock":             {rotating, early, now, a},
	} {
		signer := c.view.signer(c.at)
		if !c.view.needsLeaf(c.at, c.leaf, signer) {
			signer = nil
		}
		if signer != c.want {
			t.Errorf("%s: signs with %v, want %v", name, signer, c.want)
		}
	}
}
