package ha

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// leading is the role of the leader.
const leading = "leader"

// role is the role that a replica reports.
func (m *member) role() string {
	m.t.Helper()
	ctx, cancel := await.Context(m.t)
	defer cancel()
	client, err := rest.HTTPClientFor(m.process().Config(&rest.Config{}))
	if err != nil {
		m.t.Fatal(err)
	}
	role, err := readRole(ctx, client, m.url())
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return role
}

func (m *member) url() string { return m.process().Config(&rest.Config{}).Host }

// readRole reads the role from the probe endpoint, which needs no apiserver.
func readRole(ctx context.Context, client *http.Client, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz?verbose", nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(body)) {
		if role, ok := strings.CutPrefix(strings.TrimSpace(line), "role: "); ok {
			return role, nil
		}
	}
	return "", fmt.Errorf("/readyz?verbose does not say the role: %q", body)
}

// span is a period in which one replica has certainly led: from the end of a request
// that it answered as the leader to the beginning of a later one.
type span struct {
	name     string
	from, to time.Time
}

// roles polls the roles of all replicas.
type roles struct {
	polling sync.WaitGroup
	end     context.CancelFunc

	mu    sync.Mutex
	spans []span
	asked int
}

// watchRoles begins to poll; stop ends it.
func (f *fleet) watchRoles() *roles {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	r := &roles{end: cancel}
	for _, m := range f.members {
		client, err := rest.HTTPClientFor(m.process().Config(&rest.Config{}))
		if err != nil {
			f.t.Fatal(err)
		}
		r.polling.Go(func() { r.poll(ctx, m, client) })
	}
	f.t.Cleanup(r.stop)
	return r
}

func (r *roles) stop() {
	r.end()
	r.polling.Wait()
}

func (r *roles) poll(ctx context.Context, m *member, client *http.Client) {
	const every = 50 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	var now span
	var term time.Time
	for ctx.Err() == nil {
		sent := time.Now()
		role, err := readRole(ctx, client, m.url())
		got := time.Now()
		r.mu.Lock()
		if err == nil {
			r.asked++
		}
		switch began := m.lease.lastTerm(m.peers.address()); {
		case err != nil:
			// A replica that does not answer may still lead.
		case role != leading:
			now = span{}
		case now == (span{}) || !began.Equal(term):
			now, term = span{m.name, got, got}, began
		default:
			now.to = sent
			r.lead(now)
		}
		r.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// lead adds a span, or extends it.
func (r *roles) lead(now span) {
	i := slices.IndexFunc(r.spans, func(s span) bool { return s.name == now.name && s.from.Equal(now.from) })
	if i < 0 {
		r.spans = append(r.spans, now)
	} else {
		r.spans[i] = now
	}
}

// wantOneAtATime checks that no two replicas have led at the same time.
func (r *roles) wantOneAtATime(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == 0 || len(r.spans) == 0 {
		t.Errorf("%d answers, in which %d times one has led", r.asked, len(r.spans))
	}
	for _, both := range overlaps(r.spans) {
		t.Error(both)
	}
}

func overlaps(spans []span) (all []string) {
	for i, a := range spans {
		for _, b := range spans[:i] {
			if a.name != b.name && a.from.Before(b.to) && b.from.Before(a.to) {
				all = append(all, fmt.Sprintf("%s led from %s to %s, and %s from %s to %s", a.name, a.from, a.to, b.name, b.from, b.to))
			}
		}
	}
	return all
}

func TestTwoLeadersAtATimeAreSeen(t *testing.T) {
	began := time.Now()
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	in := func(name string, from, to int) span { return span{name, at(from), at(to)} }
	if seen := overlaps([]span{in("a", 0, 5), in("b", 6, 8), in("a", 9, 12)}); len(seen) != 0 {
		t.Errorf("one after the other: %v", seen)
	}
	for _, spans := range [][]span{
		{in("a", 0, 5), in("b", 4, 8)},
		{in("a", 0, 9), in("b", 4, 8)},
		{in("b", 4, 8), in("c", 9, 10), in("a", 0, 9)},
	} {
		if seen := overlaps(spans); len(seen) != 1 {
			t.Errorf("%v: seen are %v", spans, seen)
		}
	}
}
