package ha

import (
	"context"
	"encoding/json"
	"errors"
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
	following sync.WaitGroup

	mu      sync.Mutex
	changed notifier
	held    bool
	terms   []term // in their order
	writes  int    // of the Lease
	err     error
}

// followLease follows the Lease until the test ends.
func followLease(t *testing.T, config *rest.Config) *lease {
	t.Helper()
	leases := kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(leaseNamespace)
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName}
	list, err := leases.List(t.Context(), only)
	if err != nil {
		t.Fatal(err)
	}
	l := &lease{}
	for i := range list.Items {
		if err := l.note(time.Now(), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = only.FieldSelector
		return leases.Watch(ctx, o)
	}
	l.following.Go(func() {
		// An apiserver that was restarted does not have earlier versions of a Lease.
		err := follow(ctx, list.ResourceVersion, true, begin, func(e watch.Event) error {
			stored, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				return fmt.Errorf("a watch of a Lease sent a %T", e.Object)
			}
			return l.note(time.Now(), stored)
		})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.err = err
		l.changed.notify()
	})
	t.Cleanup(func() {
		cancel()
		l.following.Wait()
		if l.err != nil && !errors.Is(l.err, context.Canceled) {
			t.Errorf("the watch of the Lease ended: %v", l.err)
		}
	})
	return l
}

// note adds a stored version of the Lease.
func (l *lease) note(at time.Time, stored *coordinationv1.Lease) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.notify()
	l.writes++
	spec := stored.Spec
	l.held = spec.HolderIdentity != nil && *spec.HolderIdentity != ""
	if !l.held {
		return nil
	}
	now := term{holder: *spec.HolderIdentity, seen: at}
	if spec.AcquireTime != nil {
		now.began = spec.AcquireTime.Time
	}
	if said := stored.Annotations[leaderAnnotation]; said != "" {
		var announced struct{ Address string }
		if err := json.Unmarshal([]byte(said), &announced); err != nil {
			return fmt.Errorf("the Lease's annotation %q: %w", said, err)
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

// wait waits for a term that satisfies is, and returns it.
func (l *lease) wait(t *testing.T, what string, is func(term) bool) term {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if n := len(l.terms); l.held && n > 0 && is(l.terms[n-1]) {
			return l.terms[n-1]
		}
		if l.err != nil {
			t.Fatalf("waiting for %s: %v", what, l.err)
		}
		if err := l.changed.wait(ctx, &l.mu); err != nil {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func TestTermsOfTheLeaseAreToldApart(t *testing.T) {
	l := &lease{}
	now := time.Now()
	write := func(holder, address string, acquired time.Time) {
		stored := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &metav1.MicroTime{Time: acquired}}}
		if address != "" {
			stored.Annotations = map[string]string{leaderAnnotation: `{"identity":"` + holder + `","address":"` + address + `"}`}
		}
		if err := l.note(time.Now(), stored); err != nil {
			t.Fatal(err)
		}
	}
	if _, held := l.holder(); held {
		t.Error("a Lease without a version is held")
	}
	write("a", "127.0.0.1:1", now)
	write("a", "127.0.0.1:1", now) // renewed
	if got, held := l.holder(); !held || got.holder != "a" || got.address != "127.0.0.1:1" {
		t.Errorf("it is held (%t) by %+v", held, got)
	}
	write("", "", now)
	if _, held := l.holder(); held {
		t.Error("a Lease that was released is held")
	}
	write("b", "127.0.0.1:2", now.Add(1))
	write("a", "127.0.0.1:1", now.Add(2))
	if began, ok := l.again(l.terms[0]); !ok || !began.Equal(now.Add(2)) {
		t.Errorf("a is elected again at %s (%t)", began, ok)
	}
	if began, ok := l.again(l.terms[1]); ok {
		t.Errorf("b is elected again at %s", began)
	}
	if len(l.terms) != 3 || l.writes != 5 {
		t.Errorf("%d terms in %d writes: %+v", len(l.terms), l.writes, l.terms)
	}
}
