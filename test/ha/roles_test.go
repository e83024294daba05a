package ha

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

// leading is the role of the leader.
const leading = "leader"

// role reads the role from the probe endpoint, which needs no apiserver.
func (m *member) role(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := m.config()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz?verbose", nil)
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
	_, role, found := strings.Cut(string(body), "role: ")
	if !found {
		return "", fmt.Errorf("/readyz?verbose has no role: %q", body)
	}
	role, _, _ = strings.Cut(role, "\n")
	return strings.TrimSpace(role), nil
}

// leads reports whether a replica is the leader, which it must answer.
func (m *member) leads() bool {
	m.t.Helper()
	role, err := m.role(m.t.Context())
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	return role == leading
}

// span is a period in which one replica has certainly led: from the end of a request
// that it answered as the leader to the beginning of a later one.
type span struct {
	name     string
	from, to time.Time
}

// roles polls the roles of all replicas.
type roles struct {
	ends []func()

	mu    sync.Mutex
	spans []*span
}

// watchRoles begins to poll; stop ends it.
func (f *fleet) watchRoles() *roles {
	r := &roles{}
	for _, m := range f.members {
		var now *span // nil while it does not lead
		var term time.Time
		r.ends = append(r.ends, await.Every(50*time.Millisecond, func(ctx context.Context) {
			sent := time.Now()
			role, err := m.role(ctx)
			r.mu.Lock()
			defer r.mu.Unlock()
			switch began := m.lease.lastTerm(m.peers.Address()); {
			case err != nil:
				// A replica that does not answer may still lead.
			case role != leading:
				now = nil
			case now == nil || !began.Equal(term):
				now, term = &span{name: m.name, from: time.Now()}, began
			default:
				if now.to.IsZero() {
					r.spans = append(r.spans, now)
				}
				now.to = sent
			}
		}))
	}
	f.t.Cleanup(r.stop)
	return r
}

func (r *roles) stop() {
	for _, end := range r.ends {
		end()
	}
}

// wantOneAtATime checks that no two replicas have led at the same time.
func (r *roles) wantOneAtATime(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) == 0 {
		t.Error("no replica was seen to lead")
	}
	for _, both := range overlaps(r.spans) {
		t.Error(both)
	}
}

func overlaps(spans []*span) (all []string) {
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
	in := func(name string, from, to time.Duration) *span { return &span{name, began.Add(from), began.Add(to)} }
	if seen := overlaps([]*span{in("a", 0, 5), in("b", 6, 8), in("a", 9, 12)}); len(seen) != 0 {
		t.Errorf("one after the other: %v", seen)
	}
	for _, spans := range [][]*span{
		{in("a", 0, 5), in("b", 4, 8)},
		{in("a", 0, 9), in("b", 4, 8)},
		{in("b", 4, 8), in("c", 9, 10), in("a", 0, 9)},
	} {
		if seen := overlaps(spans); len(seen) != 1 {
			t.Errorf("the overlaps are %v", seen)
		}
	}
}
