package servingca

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The keys of the Secret.
const (
	currentCertificateKey = "ca.crt"
	currentKeyKey         = "ca.key"
	nextCertificateKey    = "next-ca.crt"
	nextKeyKey            = "next-ca.key"
	previousKey           = "previous-ca.crt"
	nextPublishedKey      = "next-published"
	switchedKey           = "switched"
)

// BundleKey is the key of the ConfigMap that has the CAs to trust.
const BundleKey = "ca.crt"

// state is what the Secret has.
type state struct {
	// current signs. next is published, and will sign. Each is nil if there is none.
	current, next *authority
	// previous are CAs that no longer sign, whose certificates may be in use.
	previous []*x509.Certificate
	// nextPublished is when next was found published, and switched when current began to sign; zero
	// if it was not.
	nextPublished, switched time.Time
	// problem is what was not readable; nil if all was, or there was nothing.
	problem error
}

// bundle returns the CAs to publish, the oldest first. There are maxBundle at most, or the newest would
// not be read. So the oldest that no longer sign are left out.
func (s *state) bundle() (bundle []*x509.Certificate) {
	for _, a := range []*authority{s.current, s.next} {
		if a != nil {
			bundle = with(bundle, a.certificate)
		}
	}
	previous := slices.SortedFunc(slices.Values(s.previous), byAge)
	for _, c := range slices.Backward(previous) {
		if len(bundle) < maxBundle {
			bundle = with(bundle, c)
		}
	}
	slices.SortFunc(bundle, byAge)
	return bundle
}

// byAge sorts the oldest first.
func byAge(a, b *x509.Certificate) int {
	return cmp.Or(a.NotBefore.Compare(b.NotBefore), bytes.Compare(a.Raw, b.Raw))
}

// former returns those of previous that are published.
func (s *state) former() (former []*x509.Certificate) {
	for _, c := range s.bundle() {
		if contains(s.previous, c) {
			former = append(former, c)
		}
	}
	return former
}

// decode reads the Secret. A CA without its key cannot sign, and stays published.
func decode(data map[string][]byte) state {
	var s state
	read := func(certificateKey, keyKey string) *authority {
		if len(data[certificateKey]) == 0 && len(data[keyKey]) == 0 {
			return nil
		}
		a, certificate, err := parseAuthority(data[certificateKey], data[keyKey])
		if err != nil {
			s.problem = errors.Join(s.problem, fmt.Errorf("%s, %s: %w", certificateKey, keyKey, err))
			s.previous = with(s.previous, certificate)
		}
		return a
	}
	s.current = read(currentCertificateKey, currentKeyKey)
	s.next = read(nextCertificateKey, nextKeyKey)
	previous, err := parseBundle(data[previousKey])
	if err != nil {
		s.problem = errors.Join(s.problem, fmt.Errorf("%s: %w", previousKey, err))
	}
	s.previous = with(s.previous, previous...)
	// A time that is not readable is one that is not known.
	s.nextPublished, _ = time.Parse(time.RFC3339Nano, string(data[nextPublishedKey]))
	s.switched, _ = time.Parse(time.RFC3339Nano, string(data[switchedKey]))
	return s
}

// encode returns what the Secret has to have: nil for keys that it must not have.
func (s *state) encode() (map[string][]byte, error) {
	data := map[string][]byte{
		currentCertificateKey: nil, currentKeyKey: nil, nextCertificateKey: nil, nextKeyKey: nil,
		previousKey: encodeBundle(s.former()), nextPublishedKey: encodeTime(s.nextPublished), switchedKey: encodeTime(s.switched),
	}
	var errs [2]error
	if s.current != nil {
		data[currentCertificateKey], data[currentKeyKey], errs[0] = s.current.encode()
	}
	if s.next != nil {
		data[nextCertificateKey], data[nextKeyKey], errs[1] = s.next.encode()
	}
	return data, errors.Join(errs[:]...)
}

func encodeTime(t time.Time) []byte {
	if t.IsZero() {
		return nil
	}
	return []byte(t.UTC().Format(time.RFC3339Nano))
}
