package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// traffic counts the writes of a client where they leave the process and come
// back.
type traffic struct {
	mu      sync.Mutex
	answer  sync.Cond // on mu: there was one
	answers map[int]int
	created map[string]int // Events, by namespace
	total   int            // of created
	posts   []time.Duration
}

func newTraffic() *traffic {
	t := &traffic{answers: make(map[int]int), created: make(map[string]int)}
	t.answer.L = &t.mu
	return t
}

// through is a wrapper of a client's transport.
func (t *traffic) through(next http.RoundTripper) http.RoundTripper { return &counted{next, t} }

type counted struct {
	next    http.RoundTripper
	traffic *traffic
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := c.next.RoundTrip(r)
	if r.Method == http.MethodGet {
		return response, err
	}
	code := 0
	if err == nil {
		code = response.StatusCode
	}
	c.traffic.count(r.URL.Path, code)
	if r.Method == http.MethodPost {
		c.traffic.took(time.Since(began))
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport.
func (c *counted) WrappedRoundTripper() http.RoundTripper { return c.next }

func (t *traffic) count(path string, code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers[code]++
	if code == http.StatusCreated {
		t.created[namespaceIn(path)]++
		t.total++
	}
	t.answer.Broadcast()
}

func (t *traffic) took(post time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.posts = append(t.posts, post)
}

// posted is how long each POST took to be answered.
func (t *traffic) posted() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.posts)
}

// namespaceIn finds the namespace in the path of a request.
func namespaceIn(path string) string {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}

// writes is how many were answered, or failed.
func (t *traffic) writes() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, count := range t.answers {
		n += count
	}
	return n
}

// createdOutside is how many Events were created in other namespaces.
func (t *traffic) createdOutside(namespace string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total - t.created[namespace]
}

// snapshot is how many answers there were, by code; 0 is none.
func (t *traffic) snapshot() map[int]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.answers)
}

// createdIn is how many Events were created in a namespace.
func (t *traffic) createdIn(namespace string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.created[namespace]
}

// waitCreated waits until so many Events were created.
func (t *traffic) waitCreated(ctx context.Context, n int) error {
	defer context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.answer.Broadcast()
	})()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.total < n {
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d Events were created, the answers are %v: %w", t.total, n, t.answers, context.Cause(ctx))
		}
		t.answer.Wait()
	}
	return nil
}
