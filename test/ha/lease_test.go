package ha

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
