package intake

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

func TestCredentialsAreATokenACertificateOrBoth(t *testing.T) {
	h := newHasher()
	of := func(token, certificate string) (credential, bool) {
		req := &http.Request{Header: http.Header{}}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		if certificate != "" {
			req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(certificate)}}}
		}
		return h.of(req)
	}
	if _, presented := of("", ""); presented {
		t.Error("nothing is taken for credentials")
	}
	seen := map[credential]bool{}
	for _, c := range [][2]string{{"a", ""}, {"b", ""}, {"", "a"}, {"", "b"}, {"a", "a"}, {"a", "b"}, {"b", "a"}} {
		one, presented := of(c[0], c[1])
		if again, _ := of(c[0], c[1]); !presented || seen[one] || again != one {
			t.Errorf("token %q, certificate %q: presented %t, like others %t, the same again %t", c[0], c[1], presented, seen[one], again == one)
		}
		seen[one] = true
	}
	// The token of a replica is reviewed for another audience.
	req := &http.Request{Header: http.Header{"Authorization": {"Bearer a"}, AssertedUserHeader: {"somebody"}}}
	if one, presented := h.of(req); !presented || seen[one] {
		t.Errorf("a replica's token: presented %t, like a client's %t", presented, seen[one])
	}
}

// A tenant with many credentials evicts its own least recently used one.
func TestManyCredentialsOfOneTenantEvictNoOthers(t *testing.T) {
	k := newKnownCredentials(4)
	number := func(n byte) (c credential) { c[0] = n; return c }
	k.add(number(1), "quiet", time.Now())
	for n := byte(2); n <= 4; n++ {
		k.add(number(n), "many", time.Now())
	}
	k.get(number(2))
	k.add(number(5), "many", time.Now())
	k.add(number(6), "another", time.Now())
	for n, want := range map[byte]bool{1: true, 2: true, 3: false, 4: false, 5: true, 6: true} {
		if _, _, ok := k.get(number(n)); ok != want {
			t.Errorf("credentials %d are known: %t", n, ok)
		}
	}
	if held := k.cache.Len(); held != 4 {
		t.Errorf("%d are known", held)
	}
}

func TestCredentialsThatWereNotReviewedForLongAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnownCredentials(1)
		var c credential
		k.add(c, "tenant", time.Now())
		time.Sleep(knownFor)
		if _, _, ok := k.get(c); !ok {
			t.Error("forgotten too soon")
		}
		time.Sleep(time.Nanosecond)
		if _, _, ok := k.get(c); ok || k.cache.Len() != 0 {
			t.Errorf("known %t, held %d", ok, k.cache.Len())
		}
	})
}

func TestCredentialsAreHeldOnceUntilTheyAreForgotten(t *testing.T) {
	k := newKnownCredentials(2)
	var c credential
	k.add(c, "tenant", time.Now())
	k.add(c, "tenant", time.Now())
	if held := k.cache.Len(); held != 1 {
		t.Errorf("held %d times", held)
	}
	k.remove(c)
	if _, _, ok := k.get(c); ok || k.cache.Len() != 0 {
		t.Errorf("known %t, held %d", ok, k.cache.Len())
	}
}
