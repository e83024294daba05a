package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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

// part is a part of the identity.
type part uint8

const (
	inClassic  part = 1 << iota // the identity of a classic Event
	inNewStyle                  // that of a new-style Event
	inGroup                     // the group of either
	inSubject                   // the subject of either
	inKey                       // the group of a key function
	inBoth     = inClassic | inNewStyle
	everywhere = inBoth | inGroup | inSubject | inKey
)

func TestIdentityFields(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Event)
		want   part
	}{
		"namespace":            {func(e *corev1.Event) { e.Namespace = "x" }, everywhere},
		"source component":     {func(e *corev1.Event) { e.Source.Component = "x" }, everywhere},
		"source host":          {func(e *corev1.Event) { e.Source.Host = "x" }, everywhere},
		"reporting controller": {func(e *corev1.Event) { e.ReportingController = "x" }, everywhere},
		"reporting instance":   {func(e *corev1.Event) { e.ReportingInstance = "x" }, everywhere},
		"object kind":          {func(e *corev1.Event) { e.InvolvedObject.Kind = "x" }, inBoth | inGroup | inSubject},
		"object namespace":     {func(e *corev1.Event) { e.InvolvedObject.Namespace = "x" }, inBoth | inGroup | inSubject},
		"object name":          {func(e *corev1.Event) { e.InvolvedObject.Name = "x" }, inBoth | inGroup | inSubject},
		"object uid":           {func(e *corev1.Event) { e.InvolvedObject.UID = "x" }, inBoth | inGroup | inSubject},
		"object apiVersion":    {func(e *corev1.Event) { e.InvolvedObject.APIVersion = "x" }, inBoth | inGroup | inSubject},
		"object fieldPath":     {func(e *corev1.Event) { e.InvolvedObject.FieldPath = "x" }, inBoth | inGroup},
		"type":                 {func(e *corev1.Event) { e.Type = "x" }, inBoth | inGroup | inSubject},
		"reason":               {func(e *corev1.Event) { e.Reason = "x" }, inBoth | inGroup},
		"message":              {func(e *corev1.Event) { e.Message = "x" }, inBoth},
		"action":               {func(e *corev1.Event) { e.Action = "x" }, inNewStyle},
		"related name":         {func(e *corev1.Event) { e.Related.Name = "x" }, inNewStyle},
		"related kind":         {func(e *corev1.Event) { e.Related.Kind = "x" }, inNewStyle},
		"related namespace":    {func(e *corev1.Event) { e.Related.Namespace = "x" }, inNewStyle},
		"related uid":          {func(e *corev1.Event) { e.Related.UID = "x" }, inNewStyle},
		"related apiVersion":   {func(e *corev1.Event) { e.Related.APIVersion = "x" }, inNewStyle},
		"related fieldPath":    {func(e *corev1.Event) { e.Related.FieldPath = "x" }, inNewStyle},
		"related version":      {func(e *corev1.Event) { e.Related.ResourceVersion = "x" }, 0},
		"object version":       {func(e *corev1.Event) { e.InvolvedObject.ResourceVersion = "x" }, 0},
		"event name":           {func(e *corev1.Event) { e.Name = "x" }, 0},
		"count":                {func(e *corev1.Event) { e.Count = 99 }, 0},
		"times":                {func(e *corev1.Event) { e.LastTimestamp = metav1.Now() }, 0},
		"annotations":          {func(e *corev1.Event) { e.Annotations = map[string]string{"a": "b"} }, 0},
	} {
		for in, event := range map[part]*corev1.Event{inClassic: classic(), inNewStyle: newStyle()} {
			changed := event.DeepCopy()
			c.change(changed)
			a, b := encoded(event), encoded(changed)
			inGroupOf := c.want&inGroup != 0 || in == inNewStyle && c.want == inNewStyle
			for what, differs := range map[string][2]bool{
				"identity":             {Of(event) != Of(changed), c.want&in != 0},
				"group":                {!bytes.Equal(a.Bytes()[:a.group], b.Bytes()[:b.group]), inGroupOf},
				"subject":              {!bytes.Equal(a.Subject(), b.Subject()), c.want&inSubject != 0},
				"key function's group": {OfGroup(event, "key") != OfGroup(changed, "key"), c.want&inKey != 0},
			} {
				if differs[0] != differs[1] {
					t.Errorf("with another %s, new style %t: another %s is %t", name, in == inNewStyle, what, differs[0])
				}
			}
		}
	}
}

func TestClassicAndNewStyleAreDifferentSeries(t *testing.T) {
	old, newer := classic(), newStyle()
	if Of(old) == Of(newer) || OfGroup(old, "key") == OfGroup(newer, "key") {
		t.Error("same digest")
	}
	if a, b := encoded(old), encoded(newer); !bytes.Equal(a.Subject(), b.Subject()) || bytes.Equal(a.Bytes()[:a.group], b.Bytes()[:b.group]) {
		t.Error("another subject, or the same group")
	}
}

func TestCombinedEventsOfAGroupAreOneSeries(t *testing.T) {
	one, two, plain := classic(), classic(), classic()
	one.Message, two.Message, plain.Message = CombinedPrefix+"a", CombinedPrefix+"b", "a"
	if !encoded(one).IsCombined() || Of(one) != Of(two) {
		t.Error("the message of a combined Event makes it another series")
	}
	if encoded(plain).IsCombined() || Of(plain) == Of(one) {
		t.Error("a plain Event is taken for a combined one")
	}
	empty := classic()
	empty.Message = ""
	if Of(empty) == Of(one) {
		t.Error("a combined Event has the digest of one without a message")
	}
	newer := newStyle()
	newer.Message = CombinedPrefix + "a"
	if encoded(newer).IsCombined() {
		t.Error("a new-style Event is taken for a combined one of client-go, which makes no such")
	}
}

// A digest is stored: a release that computes another one creates new Events for all series.
func TestDigestIsStable(t *testing.T) {
	for name, test := range map[string]struct {
		digest Digest
		want   string
	}{
		"of a classic Event":             {Of(classic()), "2c81ac829b79a68d825ae9e346ee520317c3f8c8de88549b61489a8ca851ed61"},
		"of a new-style Event":           {Of(newStyle()), "fd2f56fcee589cecf8752a1818d83169195141aed9b4566eb267192ab562f851"},
		"of a classic combined Event":    {OfCombined(classic()), "979232f5209cc0e86a87702120e1c0cb09d8479873b2fb8c38dc0863678e1158"},
		"of a new-style combined Event":  {OfCombined(newStyle()), "2e6541f23a6380273bbf1dcb6a30af65ac24e451adb39eaf113ec3e0641a42d2"},
		"of a key function's group":      {OfGroup(classic(), "key"), "88a669ba8ae0b4706887bdad50dcf720c6d52ef83f2488d3ec3449e06b90aa40"},
		"of a key function's, new-style": {OfGroup(newStyle(), "key"), "036582f91741e0fa4dc5fa5fbef295eadab247bcf29cf02c452693e8549e2b2b"},
	} {
		if got := hex.EncodeToString(test.digest[:]); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// Two Events have one encoding only if all fields of the identity are equal.
func FuzzDigestInput(f *testing.F) {
	f.Add("a", "b", "c", "d", "e", "f", true)
	f.Add("", "ab", "", "a", "b", "", true)
	f.Add("\x01a", "", "", "", "\x01a", "", false)
	f.Add("", CombinedPrefix+"x", "", "", CombinedPrefix+"y", "", false)
	f.Fuzz(func(t *testing.T, a1, a2, a3, b1, b2, b3 string, isNewStyle bool) {
		a := corev1.Event{Reason: a1, Message: a2, Action: a3}
		b := corev1.Event{Reason: b1, Message: b2, Action: b3}
		want := a1 == b1 && a2 == b2 && a3 == b3
		if isNewStyle {
			a.EventTime, b.EventTime = metav1.NowMicro(), metav1.NowMicro()
		} else {
			want = a1 == b1 && (a2 == b2 || strings.HasPrefix(a2, CombinedPrefix) && strings.HasPrefix(b2, CombinedPrefix))
		}
		var x, y Encoding
		x.Set(&a)
		y.Set(&b)
		if same := bytes.Equal(x.Bytes(), y.Bytes()); same != want {
			t.Errorf("encodings equal: %v, identities equal: %v", same, want)
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
		event := corev1.Event{InvolvedObject: corev1.ObjectReference{Name: object}}
		name, unique := Name(object, Of(&event), suffix), UniqueName(object, Of(&event), uint64(suffix))
		for _, name := range []string{name, unique} {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Errorf("%q: %v", name, problems)
			}
		}
		if unique == name {
			t.Errorf("%q is not unique", unique)
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
