package servingca

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock is the clock of the apiserver, as far as its responses tell it, so that a machine with a
// wrong clock issues the same certificates as others, and replaces none too early.
type clock struct {
	own    func() time.Time
	offset atomic.Int64 // to own
}

// tolerance is the deviation that counts as none: a Date header has whole seconds.
const tolerance = 5 * time.Second

func (c *clock) now() time.Time { return c.own().Add(time.Duration(c.offset.Load())) }

// wrap returns a transport that reads the clock of the apiserver.
func (c *clock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if err == nil {
			c.read(response.Header.Get("Date"))
		}
		return response, err
	})
}

func (c *clock) read(date string) {
	t, err := http.ParseTime(date)
	if err != nil {
		return
	}
	offset := t.Sub(c.own())
	if offset.Abs() < tolerance {
		offset = 0
	}
	c.offset.Store(int64(offset))
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
