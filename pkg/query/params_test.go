package query

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/trail"
)

func TestObjectsThatAreWatchedHaveFewItems(t *testing.T) {
	for text, want := range map[string]int{
		"limit=5000":            5000,
		"limit=5000&watch=true": maxWatched,
		"limit=7&watch=true":    7,
		"watch=true":            dropsLimit,
	} {
		if q, err := parse(resourceDrops, parameterValues(t, text), http.Header{}); err != nil || q.limit != want {
			t.Errorf("%s: %+v, %v; want %d", text, q, err, want)
		}
	}
}

func TestTopIsOfAWindowThatIsKnown(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":           trail.MaxWindow,
		"since=5m":   trail.MaxWindow,
		"since=2m":   2 * time.Minute,
		"since=6m":   0,
		"since=9999": 0,
	} {
		q, err := parse(resourceTop, parameterValues(t, text), http.Header{})
		switch {
		case want == 0 && err == nil:
			t.Errorf("%q is accepted", text)
		case want > 0 && (err != nil || q.window.Round(time.Second) != want):
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestTimelineEndsAfterItBegins(t *testing.T) {
	for text, want := range map[string]bool{
		"since=1h&until=30s": true,
		"until=30s":          true,
		"since=30s":          true,
		"since=30s&until=1h": false,
		"since=2026-11-28T10:00:00Z&until=2026-11-28T09:59:59Z": false,
	} {
		if _, err := parse(resourceTimeline, parameterValues(t, text), http.Header{}); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func parameterValues(t *testing.T, text string) url.Values {
	t.Helper()
	values, err := url.ParseQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	return values
}
