package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
)

const (
	leaseNamespace, leaseName = "kube-system", "eventd"
	// leaderAnnotation is the announcement of the holder.
	leaderAnnotation = "eventd.io/leader"
)

// term is a period in which one process holds the Lease.
type term struct {
	holder  string
	address string    // of its link for the other replicas
	began   time.Time // when it acquired the Lease, by its own clock, which is this one
	seen    time.Time // by the watch
}

// lease watches the Lease and has all of its terms.
type lease struct {
	mu    sync.Mutex
	held  bool
	terms []term // in their order
}

// followLease follows the Lease until the test ends.
func followLease(t *testing.T, config *rest.Config) *lease {
	t.Helper()
	leases := kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(leaseNamespace)
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = "metadata.name=" + leaseName
		return leases.Watch(ctx, o)
	}
	l := &lease{}
	// An apiserver that was restarted does not have earlier versions of a Lease.
	follow(t, begin, true, func(_ watch.EventType, e *coordinationv1.Lease) error { return l.note(time.Now(), e) })
	return l
}

// note adds a stored version of the Lease.
func (l *lease) note(at time.Time, stored *coordinationv1.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	spec := stored.Spec
	l.held = spec.HolderIdentity != nil && *spec.HolderIdentity != ""
	if !l.held {
		return nil
	}
	now := term{holder: *spec.HolderIdentity, seen: at}
	if spec.AcquireTime != nil {
		now.began = spec.AcquireTime.Time
	}
	if value := stored.Annotations[leaderAnnotation]; value != "" {
		var announced struct{ Address string }
		if err := json.Unmarshal([]byte(value), &announced); err != nil {
			return fmt.Errorf("the Lease's annotation %q: %w", value, err)
		}
		now.address = announced.Address
	}
	if n := len(l.terms); n == 0 || l.terms[n-1].holder != now.holder || !l.terms[n-1].began.Equal(now.began) {
		l.terms = append(l.terms, now)
	}
	return nil
}

// holder is the current term, if there is one.
func (l *lease) holder() (term, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		return term{}, false
	}
	return l.terms[len(l.terms)-1], true
}

// again is when the holder of a term was elected again, if it was.
func (l *lease) again(last term) (began time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.terms {
		if t.holder == last.holder && t.began.After(last.began) {
			return t.began, true
		}
	}
	return time.Time{}, false
}

// lastTerm is the beginning of the last term of the replica at an address.
func (l *lease) lastTerm(address string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range slices.Backward(l.terms) {
		if t.address == address {
			return t.began
		}
	}
	return time.Time{}
}

func TestTermsOfTheLeaseAreToldApart(t *testing.T) {
	l := &lease{}
	began := time.Now()
	for _, write := range []struct {
		holder   string
		acquired time.Duration
		terms    int
	}{
		{"a", 0, 1},
		{"a", 0, 1}, // renewed
		{"", 0, 1},
		{"b", 1, 2},
		{"a", 2, 3},
	} {
		annotation := fmt.Sprintf(`{"identity":%q,"address":"127.0.0.1:%s"}`, write.holder, write.holder)
		stored := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{leaderAnnotation: annotation}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &write.holder, AcquireTime: &metav1.MicroTime{Time: began.Add(write.acquired)}},
		}
		if err := l.note(began, stored); err != nil {
			t.Fatal(err)
		}
		want := term{write.holder, "127.0.0.1:" + write.holder, began.Add(write.acquired), began}
		if now, held := l.holder(); held != (write.holder != "") || held && now != want || len(l.terms) != write.terms {
			t.Errorf("after %+v it is held (%t) by %+v in %d terms", write, held, now, len(l.terms))
		}
	}
	if at, ok := l.again(l.terms[0]); !ok || !at.Equal(began.Add(2)) {
		t.Errorf("a is elected again at %s (%t)", at, ok)
	}
	if at, ok := l.again(l.terms[1]); ok {
		t.Errorf("b is elected again at %s", at)
	}
	if at := l.lastTerm("127.0.0.1:a"); !at.Equal(began.Add(2)) {
		t.Errorf("the last term of a began at %s", at)
	}
}

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
	f.t.Cleanup(r.stop)
	for _, m := range f.members {
		r.watch(m)
	}
	return r
}

// watch polls the role of one more replica, which has been started.
func (r *roles) watch(m *member) {
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
