package identity

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func classic() *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0.17"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: "ns", Name: "web-0", UID: "u1", APIVersion: "v1",
			ResourceVersion: "7", FieldPath: "spec.containers{app}",
		},
		Reason: "Pulled", Message: "image pulled", Type: "Normal",
		Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
		ReportingController: "kubelet", ReportingInstance: "node-1",
		Action: "Pulling", Related: &corev1.ObjectReference{Name: "other"},
	}
}

func newStyle() *corev1.Event {
	e := classic()
	e.EventTime = metav1.NowMicro()
	return e
}

func TestIdentityFields(t *testing.T) {
	changes := map[string]struct {
		change                func(*corev1.Event)
		inClassic, inNewStyle bool
	}{
		"namespace":            {func(e *corev1.Event) { e.Namespace = "x" }, true, true},
		"source component":     {func(e *corev1.Event) { e.Source.Component = "x" }, true, true},
		"source host":          {func(e *corev1.Event) { e.Source.Host = "x" }, true, true},
		"reporting controller": {func(e *corev1.Event) { e.ReportingController = "x" }, true, true},
		"reporting instance":   {func(e *corev1.Event) { e.ReportingInstance = "x" }, true, true},
		"object kind":          {func(e *corev1.Event) { e.InvolvedObject.Kind = "x" }, true, true},
		"object namespace":     {func(e *corev1.Event) { e.InvolvedObject.Namespace = "x" }, true, true},
		"object name":          {func(e *corev1.Event) { e.InvolvedObject.Name = "x" }, true, true},
		"object uid":           {func(e *corev1.Event) { e.InvolvedObject.UID = "x" }, true, true},
		"object apiVersion":    {func(e *corev1.Event) { e.InvolvedObject.APIVersion = "x" }, true, true},
		"object fieldPath":     {func(e *corev1.Event) { e.InvolvedObject.FieldPath = "x" }, true, true},
		"type":                 {func(e *corev1.Event) { e.Type = "x" }, true, true},
		"reason":               {func(e *corev1.Event) { e.Reason = "x" }, true, true},
		"message":              {func(e *corev1.Event) { e.Message = "x" }, true, true},
		"action":               {func(e *corev1.Event) { e.Action = "x" }, false, true},
		"related object":       {func(e *corev1.Event) { e.Related = &corev1.ObjectReference{Name: "x"} }, false, true},
		"object version":       {func(e *corev1.Event) { e.InvolvedObject.ResourceVersion = "x" }, false, false},
		"event name":           {func(e *corev1.Event) { e.Name = "x" }, false, false},
		"count":                {func(e *corev1.Event) { e.Count = 99 }, false, false},
		"times":                {func(e *corev1.Event) { e.LastTimestamp = metav1.Now() }, false, false},
		"annotations":          {func(e *corev1.Event) { e.Annotations = map[string]string{"a": "b"} }, false, false},
	}
	for name, c := range changes {
		for style, base := range map[string]func() *corev1.Event{"classic": classic, "new style": newStyle} {
			want := c.inClassic
			if style == "new style" {
				want = c.inNewStyle
			}
			event, changed := base(), base()
			changed.EventTime = event.EventTime
			c.change(changed)
			a, b := Of(event), Of(changed)
			if got := a.Digest() != b.Digest(); got != want {
				t.Errorf("%s, %s: another identity: %v, want %v", style, name, got, want)
			}
			if (a != b) != want {
				t.Errorf("%s, %s: the identities compare unlike their digests", style, name)
			}
		}
	}
}

func TestClassicAndNewStyleAreDifferentSeries(t *testing.T) {
	a, b := Of(classic()), Of(newStyle())
	if a.Digest() == b.Digest() {
		t.Error("same digest")
	}
}

func TestCombinedEventsOfAGroupAreOneSeries(t *testing.T) {
	one, two, plain := classic(), classic(), classic()
	one.Message, two.Message, plain.Message = CombinedPrefix+"a", CombinedPrefix+"b", "a"
	a, b, c := Of(one), Of(two), Of(plain)
	if !a.Combined || a.Digest() != b.Digest() {
		t.Error("the message of a combined Event makes it another series")
	}
	if c.Combined || c.Digest() == a.Digest() {
		t.Error("a plain Event is taken for a combined one")
	}
	marked, empty := a, classic()
	marked.Combined, empty.Message = false, ""
	if e := Of(empty); e.Digest() == a.Digest() || marked.Digest() == a.Digest() {
		t.Error("the marker does not tell a combined Event from one without a message")
	}
}

// A digest is part of what is stored: a release that computes another one
// starts new Events for all series.
func TestDigestIsStable(t *testing.T) {
	id := Of(classic())
	if got, want := id.Digest().String(), "8bef3117bb2b7c096e7bd9a8503d01b4929572c264e9f4eb2066bd08a28d339e"; got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

func TestEveryFieldIsHashed(t *testing.T) {
	var empty Identity
	seen := map[Digest]string{empty.Digest(): "nothing"}
	var visit func(v reflect.Value, path string, id *Identity)
	visit = func(v reflect.Value, path string, id *Identity) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				visit(v.Field(i), path+"."+v.Type().Field(i).Name, id)
			}
		case reflect.String:
			v.SetString("x")
			if other, ok := seen[id.Digest()]; ok {
				t.Errorf("%s hashes like %s", path, other)
			}
			seen[id.Digest()] = path
			v.SetString("")
		case reflect.Bool:
			v.SetBool(true)
			if other, ok := seen[id.Digest()]; ok {
				t.Errorf("%s hashes like %s", path, other)
			}
			seen[id.Digest()] = path
			v.SetBool(false)
		default:
			t.Fatalf("%s is a %s, which this test does not know", path, v.Kind())
		}
	}
	var id Identity
	visit(reflect.ValueOf(&id).Elem(), "Identity", &id)
}

func FuzzDigestInput(f *testing.F) {
	f.Add("a", "b", "c", "d", "e", "f")
	f.Add("", "ab", "", "a", "b", "")
	f.Add("\x01a", "", "", "", "\x01a", "")
	f.Fuzz(func(t *testing.T, a1, a2, a3, b1, b2, b3 string) {
		a := Identity{Reason: a1, Message: a2, Action: a3}
		b := Identity{Reason: b1, Message: b2, Action: b3}
		same := bytes.Equal(a.appendTo(nil), b.appendTo(nil))
		if same != (a == b) {
			t.Errorf("inputs equal: %v, identities equal: %v", same, a == b)
		}
	})
}

func FuzzName(f *testing.F) {
	for _, name := range []string{
		"web-0", "", ".", "...", "-", "a.-b", "A.B", "system:node:x", "a..b", "-.-", strings.Repeat("a.", 300),
		strings.Repeat("x", 500), strings.Repeat("-", 500), "é", "\xff", "a-" + strings.Repeat("é", 200), "0.-.0",
	} {
		f.Add(name, 0)
		f.Add(name, MaxSuffix)
	}
	f.Fuzz(func(t *testing.T, object string, suffix int) {
		if suffix < 0 || suffix > MaxSuffix {
			return
		}
		id := Identity{InvolvedObject: Object{Name: object}}
		name := Name(object, id.Digest(), suffix)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%q: %v", name, problems)
		}
		if valid := len(validation.IsDNS1123Subdomain(object)) == 0; valid && len(object) <= maxObjectName &&
			!strings.HasPrefix(name, object+".") {
			t.Errorf("%q does not begin with the object's name %q", name, object)
		}
	})
}

func TestNamesDifferBySuffix(t *testing.T) {
	seen := map[string]bool{}
	for suffix := range MaxSuffix + 1 {
		seen[Name(strings.Repeat("x", 300), Digest{}, suffix)] = true
	}
	if len(seen) != MaxSuffix+1 {
		t.Errorf("%d names for %d suffixes", len(seen), MaxSuffix+1)
	}
}

// Both conversions must carry every field of the other's type.
func TestConversionLosesNothing(t *testing.T) {
	in := newStyle()
	in.Count, in.FirstTimestamp, in.LastTimestamp = 3, metav1.Now(), metav1.Now()
	in.Series = &corev1.EventSeries{Count: 4, LastObservedTime: metav1.NowMicro()}
	v := reflect.ValueOf(*in)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "TypeMeta" {
			t.Fatalf("the test leaves %s empty", name)
		}
	}
	if out := ToCoreV1(ToEventsV1(in)); !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
}
