package identity

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func encoded(event *corev1.Event) *Encoding {
	e := new(Encoding)
	e.Set(event)
	return e
}

func TestCombinedEventHasTheIdentityOfItsGroup(t *testing.T) {
	plain, combined := classic(), classic()
	combined.Message = CombinedPrefix + "whatever"
	a, b := encoded(plain), encoded(combined)
	if a.SetCombined(); !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("it is not the one that a client's combined Event has")
	}
	if !bytes.Equal(a.Group(), b.Group()) {
		t.Error("the group is another")
	}
	if OfCombined(plain) != Of(combined) || OfCombined(newStyle()) == Of(newStyle()) {
		t.Error("wrong digest")
	}
}

// Their namespace and key are not joined, and they are no series.
func TestCustomGroupsAreDistinct(t *testing.T) {
	in := func(namespace string) *corev1.Event {
		e := classic()
		e.Namespace = namespace
		return e
	}
	seen := map[Digest]bool{}
	for _, d := range []Digest{OfGroup(in("a"), "b"), OfGroup(in("ab"), ""), OfGroup(in(""), "ab"), Of(classic())} {
		seen[d] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d digests of 4", len(seen))
	}
}

func TestCutLeavesNoPartOfACharacter(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aéb", 2, "a"}, {"aéb", 3, "aé"}, {"é", 1, ""}, {"", 0, ""},
	} {
		if got := Cut(c.in, c.limit); got != c.want {
			t.Errorf("%q cut to %d bytes is %q, want %q", c.in, c.limit, got, c.want)
		}
	}
	long := strings.Repeat("é", 600)
	if got := Cut(long, MaxNote); len(got) != MaxNote {
		t.Errorf("cut to %d bytes", len(got))
	}
}

func TestEncodingIsUsedAgain(t *testing.T) {
	var e Encoding
	long := classic()
	long.Message = strings.Repeat("x", 5000)
	for _, event := range []*corev1.Event{classic(), long, newStyle(), classic()} {
		if e.Set(event); sha256.Sum256(e.Bytes()) != Of(event) {
			t.Error("what was there before shows")
		}
	}
}
