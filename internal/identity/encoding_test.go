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

func TestSubjectsAndGroupsArePartsOfIdentities(t *testing.T) {
	for name, c := range map[string]struct {
		change                 func(*corev1.Event)
		sameSubject, sameGroup bool
	}{
		"nothing":              {func(*corev1.Event) {}, true, true},
		"message":              {func(e *corev1.Event) { e.Message = "x" }, true, true},
		"reason":               {func(e *corev1.Event) { e.Reason = "x" }, true, false},
		"fieldPath":            {func(e *corev1.Event) { e.InvolvedObject.FieldPath = "x" }, true, false},
		"action":               {func(e *corev1.Event) { e.Action = "x" }, true, false},
		"related object":       {func(e *corev1.Event) { e.Related = &corev1.ObjectReference{FieldPath: "x"} }, true, false},
		"style":                {func(e *corev1.Event) { *e = *classic() }, true, false},
		"type":                 {func(e *corev1.Event) { e.Type = "x" }, false, false},
		"source":               {func(e *corev1.Event) { e.Source.Host = "x" }, false, false},
		"reporting controller": {func(e *corev1.Event) { e.ReportingController = "x" }, false, false},
		"object":               {func(e *corev1.Event) { e.InvolvedObject.Name = "x" }, false, false},
		"namespace":            {func(e *corev1.Event) { e.Namespace = "x" }, false, false},
	} {
		event := newStyle()
		a := encoded(event)
		c.change(event)
		b := encoded(event)
		if same := bytes.Equal(a.Subject(), b.Subject()); same != c.sameSubject {
			t.Errorf("%s: same subject is %v", name, same)
		}
		if same := bytes.Equal(a.Bytes()[:a.group], b.Bytes()[:b.group]); same != c.sameGroup {
			t.Errorf("%s: same group is %v", name, same)
		}
	}
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

func TestCustomGroupsAreDistinct(t *testing.T) {
	seen := map[Digest]bool{}
	in := func(namespace string, style func() *corev1.Event) *corev1.Event {
		e := style()
		e.Namespace = namespace
		return e
	}
	for _, d := range []Digest{
		OfGroup(in("a", classic), "b"), OfGroup(in("a", newStyle), "b"), OfGroup(in("ab", classic), ""),
		OfGroup(in("", classic), "ab"), Of(classic()),
	} {
		seen[d] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d digests of 5", len(seen))
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

func BenchmarkEncoding(b *testing.B) {
	event := classic()
	var e Encoding
	b.ReportAllocs()
	for b.Loop() {
		e.Set(event)
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

func BenchmarkDigest(b *testing.B) {
	event := classic()
	b.ReportAllocs()
	for b.Loop() {
		Of(event)
	}
}
