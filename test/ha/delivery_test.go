package ha

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// delivery is one stored version of an Event, as it is delivered.
type delivery struct {
	uid types.UID
	rv  string
}

// destination is a server that CloudEvents are delivered to.
type destination struct {
	url string

	mu        sync.Mutex
	delivered map[delivery]int
	last      map[types.UID]string // highest resourceVersion of each Event
	bad       []error
}

func newDestination(t *testing.T) *destination {
	d := &destination{delivered: map[delivery]int{}, last: map[types.UID]string{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// ServeHTTP implements http.Handler.
func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var batch []struct {
		ID, Source string
		Data       corev1.Event
	}
	err := json.NewDecoder(r.Body).Decode(&batch)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.bad = append(d.bad, err)
	}
	for _, e := range batch {
		v := delivery{e.Data.UID, e.Data.ResourceVersion}
		if e.ID != string(v.uid)+"/"+v.rv || e.Source != "/clusters/ha" {
			d.bad = append(d.bad, fmt.Errorf("%s of %s is %+v", e.ID, e.Source, v))
		}
		if d.delivered[v]++; d.delivered[v] > 1 {
			continue
		}
		if before := d.last[v.uid]; before != "" && !isAfter(v.rv, before) {
			d.bad = append(d.bad, fmt.Errorf("%+v is first delivered after %s", v, before))
		}
		d.last[v.uid] = v.rv
	}
}

func isAfter(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// missing returns how many of these versions are not delivered, and one of them.
func (d *destination) missing(versions map[delivery]bool) (n int, one delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for v := range versions {
		if d.delivered[v] == 0 {
			n, one = n+1, v
		}
	}
	return n, one
}

// repeated returns how often versions were delivered again.
func (d *destination) repeated() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, times := range d.delivered {
		n += times - 1
	}
	return n
}

// author stores Events without eventd: it creates them, and patches their counts.
type author struct {
	namespace string
	events    corev1client.EventInterface

	mu     sync.Mutex
	n      int
	stored map[delivery]bool
	recent []*corev1.Event
	errs   []error
}

// patched is how many Events are patched again and again.
const patched = 100

// store creates or patches an Event.
func (a *author) store(t *testing.T) {
	a.mu.Lock()
	a.n++
	n := a.n
	var former *corev1.Event
	if n%4 != 0 && len(a.recent) == patched {
		former = a.recent[n%patched]
	}
	a.mu.Unlock()
	var stored *corev1.Event
	var err error
	if former != nil {
		patch := fmt.Appendf(nil, `{"count":%d}`, n)
		stored, err = a.events.Patch(t.Context(), former.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		made := &post{name: fmt.Sprint("author-", n), of: series{fmt.Sprint("object-", n), "Stored"}, began: time.Now()}
		stored, err = a.events.Create(t.Context(), occurrenceOf(a.namespace, made), metav1.CreateOptions{})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.errs = append(a.errs, err)
		return
	}
	a.stored[delivery{stored.UID, stored.ResourceVersion}] = true
	if former == nil {
		if a.recent = append(a.recent, stored); len(a.recent) > patched {
			a.recent = a.recent[1:]
		}
	}
}

// all returns a copy of what is stored.
func (a *author) all() map[delivery]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.stored)
}

// goOn stores Events until end is called, perSecond of them.
func (a *author) goOn(t *testing.T, perSecond int) (end func()) {
	var working sync.WaitGroup
	stop := await.Every(time.Second/time.Duration(perSecond), func(context.Context) { working.Go(func() { a.store(t) }) })
	return func() {
		stop()
		working.Wait()
	}
}

// delivering is a fleet that delivers to a destination what an author stores.
type delivering struct {
	*fleet
	*destination
	*author
}

// startDelivering returns when the fleet delivers.
func startDelivering(t *testing.T) *delivering {
	t.Helper()
	cluster := clusterOf(t)
	return startDeliveringFleet(t, cluster, func(credentials *rest.Config, flags []string) *fleet {
		return startFleetAt(t, cluster, credentials, append(shortLease, flags...)...)
	})
}

// startDeliveringFleet returns when the fleet that start starts delivers. Each batch is answered in time,
// also on an overloaded machine: one that is not is delivered again, whoever leads.
func startDeliveringFleet(t *testing.T, cluster *testenv.ControlPlane, start func(credentials *rest.Config, flags []string) *fleet) *delivering {
	d := &delivering{destination: newDestination(t)}
	file, receiver := filepath.Join(t.TempDir(), "configuration.yaml"), strings.ToLower(rand.Text()[:8])
	if err := os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
receivers:
- name: %s
  timeout: %s
  cloudEvents: {url: %q, batched: true, insecure: true}
`, receiver, longTimeout, d.url), 0o600); err != nil {
		t.Fatal(err)
	}
	credentials := replica.Deploy(t, cluster)
	replica.DeployObserve(t, cluster)
	d.fleet = start(credentials, []string{"--config=" + file, "--cluster-name=ha"})
	client := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1()
	namespace := cluster.Namespace(t)
	d.author = &author{namespace: namespace, events: client.Events(namespace), stored: map[delivery]bool{}}
	// What is stored before is not promised: a leader that dies has begun nowhere.
	await.Until(t, "a receiver whose beginning is stored", func() bool {
		cursors, err := client.ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "eventd-cursors", metav1.GetOptions{})
		return err == nil && cursors.Data[receiver] != ""
	})
	return d
}

// wantAll waits until every version that is stored by now is delivered.
func (d *delivering) wantAll() {
	d.fleet.t.Helper()
	d.wantVersions(d.all())
}

// wantVersions waits until these are delivered.
func (d *delivering) wantVersions(versions map[delivery]bool) {
	d.fleet.t.Helper()
	n, one := 0, delivery{}
	ctx, cancel := await.Context(d.fleet.t)
	defer cancel()
	if err := await.Success(ctx, await.Timeout, func() error {
		if n, one = d.missing(versions); n > 0 {
			return fmt.Errorf("%d of %d versions are missing, such as %+v", n, len(versions), one)
		}
		return nil
	}); err != nil {
		d.fleet.t.Error(err)
	}
}

// wantDelivered ends a run in which replaced ends a leader: every version is delivered, in order of each
// Event, with the same ID, and at most some again after each of them.
func (d *delivering) wantDelivered(t *testing.T, full, short int, atMost func(perSecond int) int, replaced func(leader *member)) {
	t.Helper()
	perSecond := longrun.Either(300, 60)
	end := d.goOn(t, perSecond)
	times, repeated := 0, 0
	wantFewRepeated := func() {
		former := repeated
		if repeated = d.repeated(); repeated-former > atMost(perSecond) {
			t.Errorf("%d versions were delivered again after one leader, more than %d", repeated-former, atMost(perSecond))
		}
	}
	repeat(t, full, short, func(int) {
		before, _ := d.leader()
		d.wantAll()
		replaced(before)
		d.otherLeader(before)
		d.wantAll() // the new leader delivers in order: what it repeats, then what is stored meanwhile
		wantFewRepeated()
		times++
	})
	end()
	d.wantAll()
	wantFewRepeated()
	longrun.Report(t, "%d versions are stored, and all delivered; %d were repeated after %d leaders", len(d.all()), repeated, times)
	d.wantNoErrors(t)
}

// wantNoErrors checks what was delivered, and that the author could store.
func (d *delivering) wantNoErrors(t *testing.T) {
	t.Helper()
	d.author.mu.Lock()
	defer d.author.mu.Unlock()
	d.destination.mu.Lock()
	defer d.destination.mu.Unlock()
	for _, err := range append(d.bad, d.errs...) {
		t.Error(err)
	}
}

// batch is the default maximum of a request.
const batch = 512

// The leader is killed again and again. What it has delivered since the cursor was stored, in 2 s, is
// delivered again, with the same IDs.
func TestEventsAreDeliveredThoughLeadersAreKilled(t *testing.T) {
	d := startDelivering(t)
	d.wantDelivered(t, 50, 1, func(perSecond int) int { return 2*perSecond + batch }, func(leader *member) {
		leader.kill()
		d.otherLeader(leader)
		leader.start()
	})
}

// The leader is terminated in order: it stores the cursor.
func TestEventsAreDeliveredThoughLeadersAreTerminated(t *testing.T) {
	d := startDelivering(t)
	d.wantDelivered(t, 50, 1, func(int) int { return batch }, (*member).restart)
}
