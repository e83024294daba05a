package servingca

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// The responses of the apiserver set the clock, one after the other.
func TestClockIsThatOfTheApiserver(t *testing.T) {
	own := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return own.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		dates []string
		want  time.Duration
	}{
		"before the first response":     {nil, 0},
		"a day ahead":                   {[]string{at(day)}, day},
		"a day behind":                  {[]string{at(-day)}, -day},
		"the last one counts":           {[]string{at(day), at(-time.Hour)}, -time.Hour},
		"it deviates by a little":       {[]string{at(tolerance - time.Second)}, 0},
		"it deviates by a little less":  {[]string{at(-tolerance + time.Second)}, 0},
		"it deviates by as much":        {[]string{at(-tolerance)}, -tolerance},
		"the clock was set right":       {[]string{at(day), at(0)}, 0},
		"a response without its time":   {[]string{at(day), ""}, day},
		"a response with another value": {[]string{at(day), "noon"}, day},
	} {
		clock := &clock{own: func() time.Time { return own }}
		for _, date := range c.dates {
			transport := clock.wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{Header: http.Header{"Date": {date}}}, nil
			}))
			if response, err := transport.RoundTrip(nil); err != nil || response.Header.Get("Date") != date {
				t.Errorf("%s: %v, %v", name, response, err)
			}
		}
		if got := clock.now().Sub(own); got != c.want {
			t.Errorf("%s: it differs by %s, want %s", name, got, c.want)
		}
	}
	failing := errors.New("no connection")
	clock := &clock{own: func() time.Time { return own }}
	transport := clock.wrap(roundTripper(func(*http.Request) (*http.Response, error) { return nil, failing }))
	if _, err := transport.RoundTrip(nil); !errors.Is(err, failing) {
		t.Errorf("got %v, want %v", err, failing)
	}
}
