package eventfields_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventfields"
)

func TestLastTimeIsTheLatestOccurrence(t *testing.T) {
	at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0) }
	micro := func(seconds int64) metav1.MicroTime { return metav1.NewMicroTime(time.Unix(seconds, 0)) }
	created := metav1.ObjectMeta{CreationTimestamp: at(10)}
	for name, test := range map[string]struct {
		event corev1.Event
		want  int64
	}{
		"last time":              {corev1.Event{ObjectMeta: created, LastTimestamp: at(5), EventTime: micro(7)}, 5},
		"later series":           {corev1.Event{LastTimestamp: at(5), Series: &corev1.EventSeries{LastObservedTime: micro(6)}}, 6},
		"earlier series":         {corev1.Event{LastTimestamp: at(5), Series: &corev1.EventSeries{LastObservedTime: micro(4)}}, 5},
		"reported once":          {corev1.Event{ObjectMeta: created, EventTime: micro(3)}, 3},
		"only the first time":    {corev1.Event{ObjectMeta: created, FirstTimestamp: at(2)}, 2},
		"only the creation time": {corev1.Event{ObjectMeta: created}, 10},
	} {
		if got := eventfields.LastTime(&test.event); got.Unix() != test.want {
			t.Errorf("%s: %d, want %d", name, got.Unix(), test.want)
		}
	}
	if got := eventfields.LastTime(&corev1.Event{}); !got.IsZero() {
		t.Errorf("without any: %v", got)
	}
}

func TestGroupIsThatOfTheAPIVersion(t *testing.T) {
	for apiVersion, want := range map[string]string{"": "", "v1": "core", "/v1": "core", "apps/v1": "apps", "serving.knative.dev/v1": "serving.knative.dev", "a/b/c": "a"} {
		if got := eventfields.Group(apiVersion); got != want {
			t.Errorf("%q: %q, want %q", apiVersion, got, want)
		}
	}
}

func TestCountIsThatOfTheSeriesIfThereIsOne(t *testing.T) {
	if got := eventfields.Count(&corev1.Event{Count: 3}); got != 3 {
		t.Errorf("%d, want 3", got)
	}
	if got := eventfields.Count(&corev1.Event{Count: 3, Series: &corev1.EventSeries{Count: 5}}); got != 5 {
		t.Errorf("%d, want 5", got)
	}
	if got := eventfields.Count(&corev1.Event{}); got != 1 {
		t.Errorf("%d without a count, want 1", got)
	}
}

func TestStringIsRepairedAndCutBetweenCharacters(t *testing.T) {
	for _, test := range []struct {
		in   string
		max  int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aü", 2, "a"}, {"aü", 3, "aü"}, {"€€", 5, "€"},
		{"a\xffb", 9, "a\uFFFDb"}, {"a\xff\xfeb", 9, "a\uFFFDb"}, {"\xff\xff\xff\xff\xff", 4, "\uFFFD"}, {"a\xff", 3, "a"},
	} {
		if got := eventfields.ValidUTF8(test.in, test.max); got != test.want {
			t.Errorf("%q within %d: %q, want %q", test.in, test.max, got, test.want)
		}
	}
}

func FuzzValidUTF8(f *testing.F) {
	f.Add("aü€\xff\x80", 3)
	f.Fuzz(func(t *testing.T, s string, maxBytes int) {
		if maxBytes < 0 {
			return
		}
		got := eventfields.ValidUTF8(s, maxBytes)
		if len(got) > maxBytes || !utf8.ValidString(got) {
			t.Errorf("%q within %d: %q", s, maxBytes, got)
		}
		if utf8.ValidString(s) && (!strings.HasPrefix(s, got) || len(got) < min(len(s), maxBytes-utf8.UTFMax)) {
			t.Errorf("%q within %d: %q has lost more than it must", s, maxBytes, got)
		}
	})
}
