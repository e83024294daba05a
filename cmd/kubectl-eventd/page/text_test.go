package page

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

func TestTextShowsWhatIsInvisible(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"Back-off restarting 容器 🙂", "Back-off restarting 容器 🙂"},
		{"\x1b[31mred\x1b[0m\a\x7f", "␛[31mred␛[0m␇␡"},
		{"a\u202etxt.exe", "a‹U+202E›txt.exe"},
		{"\u2066a\u2069 \u200f", "‹U+2066›a‹U+2069› ‹U+200F›"},
		{"one\r\ntwo\tthree", "one␍ ↵ two three"},
		{"\u2028\u0085\ufeff\U000e0041", "‹U+2028›‹U+0085›‹U+FEFF›‹U+E0041›"},
		{"نص عربي", "نص عربي"},
	} {
		if got := text(test.in); got != test.want {
			t.Errorf("text(%q) = %q, not %q", test.in, got, test.want)
		}
	}
}

func TestLongTextIsCut(t *testing.T) {
	got := text(strings.Repeat("ä", 100_000))
	if want := strings.Repeat("ä", maxRunes) + "… (98,000 more characters)"; got != want {
		t.Errorf("%d characters: …%s", utf8.RuneCountInString(got), got[len(got)-60:])
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b]0;x\a\u202e<script>\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := text(s)
		if n := utf8.RuneCountInString(got); n > 10*maxRunes {
			t.Errorf("%d characters", n)
		}
		for _, r := range got {
			if r < 0x20 || r == 0x7f || invisible(r) {
				t.Errorf("%q has %U", got, r)
			}
		}
	})
}

func TestCleanReachesEveryString(t *testing.T) {
	const bad, good = "\x1b", "␛"
	step := v1alpha1.Step{Detail: bad, Regarding: v1alpha1.ObjectReference{Name: bad, UID: bad}}
	why := v1alpha1.Explanation{Leader: bad, Steps: []v1alpha1.Step{step}, Events: []v1alpha1.TimelineItem{{Message: bad}}}
	clean(&why)
	if why.Leader != good || why.Steps[0].Detail != good || why.Steps[0].Regarding.UID != good || why.Events[0].Message != good {
		t.Errorf("%+v", why)
	}
	status := v1alpha1.PipelineStatus{Flags: map[string]string{"a": bad}, Configuration: &v1alpha1.ConfigurationStatus{Error: bad}}
	clean(&status)
	if status.Flags["a"] != good || status.Configuration.Error != good {
		t.Errorf("%+v", status)
	}
}

func TestFiguresAreForPeople(t *testing.T) {
	// Spaces are those that do not break.
	for got, want := range map[string]string{
		count(0): "0", count(1204): "1,204", count(999_999): "999,999", count(1_382_118): "1.4 M", count(2.5): "2.5", count(-1204): "-1,204",
		count(math.Inf(1)): "unlimited", count(4_812_904_000): "4.8 G",
		rate(0): "0/s", rate(0.02): "<0.1/s", rate(0.4): "0.4/s", rate(12.3): "12/s", rate(1243.7): "1.2 k/s", rate(999.7): "1.0 k/s",
		duration(0): "0 s", duration(0.2): "200 ms", duration(0.00001): "1 ms", duration(9.94): "9.9 s", duration(41.8): "42 s", duration(119.4): "119 s", duration(913): "15 min",
		duration(7300): "2 h", duration(75 * 3600): "3 days", duration(math.NaN()): "unknown",
		size(512): "512 B", size(8_812_441): "8.4 MiB", size(134_217_728): "128 MiB",
	} {
		if plain := strings.ReplaceAll(got, space, " "); plain != want {
			t.Errorf("%q, not %q", plain, want)
		}
	}
	now := time.Date(2026, 11, 23, 15, 4, 5, 0, time.UTC)
	for ago, want := range map[time.Duration]string{0: "now", 12 * time.Second: "12 s ago", 3 * time.Minute: "3 min ago", -14 * time.Second: "in 14 s"} {
		if got := at(now, now.Add(-ago)); strings.ReplaceAll(got.Text, space, " ") != want {
			t.Errorf("%s ago is %q", ago, got.Text)
		}
	}
	if at(now, time.Time{}) != nil || at(now, (*metav1.Time)(nil)) != nil {
		t.Error("a time that is not known is shown")
	}
}

func TestNamesOfFigures(t *testing.T) {
	perSecond := 4.0
	for _, test := range []struct {
		in                     v1alpha1.Figure
		name, text, beside, of string
	}{
		{v1alpha1.Figure{Metric: "eventd_occurrences_recorded_total", Value: 12, PerSecond: &perSecond}, "recorded", "4.0/s", "12", ""},
		{v1alpha1.Figure{Metric: "eventd_occurrences_settled_total", Value: 12, Labels: map[string]string{"outcome": "handed_over", "reason": ""}}, "settled: handed over", "12", "", `outcome="handed_over",reason=""`},
		{v1alpha1.Figure{Metric: "eventd_sink_oldest_pending_seconds", Value: 0.5}, "oldest pending", "500 ms", "", ""},
		{v1alpha1.Figure{Metric: "eventd_observer_buffer_capacity_bytes", Value: 1 << 20}, "buffer limit", "1.0 MiB", "", ""},
		{v1alpha1.Figure{Metric: "eventd_observer_last_change_timestamp_seconds"}, "last change", "never", "", ""},
	} {
		got := newFigure(test.in)
		if strings.ReplaceAll(got.Text, space, " ") != test.text || got.Name != test.name || got.Beside != test.beside || got.Labels != test.of {
			t.Errorf("%s is %+v", test.in.Metric, got)
		}
	}
}
