package hostile

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// sourced is an Event that claims to be of a kubelet.
func (a *account) sourced(name, pod, host, reason string) string {
	return strings.NewReplacer(
		`"reason":"Tested"`, fmt.Sprintf(`"reason":%q`, reason), `"component":"tester"`, fmt.Sprintf(`"component":"kubelet","host":%q`, host),
	).Replace(a.event(name, pod, "Warning", 1))
}

func TestForgedSourceSpendsNobodyElsesBudget(t *testing.T) {
	g := eventdTarget(t)
	kubelet := g.account(t, "kubelet", "create", "patch")
	forger := g.accountIn(t, kubelet.namespace, "forger", "create")
	for i := range 200 {
		forger.postEvent(t.Context(), forger.sourced(fmt.Sprintf("forged-%d", i), "web-0", "node-1", fmt.Sprintf("Forged%d", i)))
	}
	for i := range 20 {
		a := kubelet.postEvent(t.Context(), kubelet.sourced(fmt.Sprintf("real-%d", i), "web-0", "node-1", fmt.Sprintf("Real%d", i)))
		if a.Code != http.StatusCreated {
			t.Errorf("Warning %d of the kubelet, after 200 forged ones, is answered %v, not at once", i, a)
		}
	}
	real := 0
	for _, event := range stored.ByObject(t, g.cluster, kubelet.namespace)["web-0"] {
		if strings.HasPrefix(event.Reason, "Real") {
			real++
		}
	}
	if real != 20 {
		t.Errorf("%d of 20 Warnings of the kubelet are stored", real)
	}
}

func TestCreateAloneChangesNothingOfAnotherUsersEvent(t *testing.T) {
	g := eventdTarget(t)
	owner := g.account(t, "owner", "create", "patch")
	forger := g.accountIn(t, owner.namespace, "forger", "create")
	owner.mustPost(t, owner.event("own", "web-0", "Warning", 3), http.StatusCreated)
	before := stored.ByObject(t, g.cluster, owner.namespace)["web-0"][0]
	forged := fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"forged","namespace":%q,"labels":{"forged":"yes"},"annotations":{"forged":"yes"}},`+
		`"involvedObject":{"kind":"Pod","namespace":%q,"name":"web-0"},"reason":"Tested","message":"said of web-0","type":"Warning",`+
		`"source":{"component":"tester"},"firstTimestamp":"2001-01-02T03:04:05Z","lastTimestamp":"2099-01-02T03:04:05Z","count":2000000001}`, owner.namespace, owner.namespace)
	forger.mustPost(t, forged, http.StatusCreated, http.StatusAccepted)
	g.eventd.Terminate(t) // it writes all that is pending
	events := stored.ByObject(t, g.cluster, owner.namespace)["web-0"]
	if len(events) != 1 {
		t.Fatalf("%d Events, not 1", len(events))
	}
	after := events[0]
	if after.Count != before.Count+1 {
		t.Errorf("the count went from %d to %d: one report of another counts one", before.Count, after.Count)
	}
	if after.Labels["forged"] != "" || after.Annotations["forged"] != "" {
		t.Errorf("the forger's labels and annotations are there: %v %v", after.Labels, after.Annotations)
	}
	if after.Message != before.Message || !after.FirstTimestamp.Equal(&before.FirstTimestamp) || after.LastTimestamp.Year() == 2099 {
		t.Errorf("the message or the times are the forger's: %q, %s, %s", after.Message, after.FirstTimestamp, after.LastTimestamp)
	}
}

func TestNamespaceThatOwesAllItMayCostsNoOtherItsWarnings(t *testing.T) {
	const most = 1000
	g := eventdTarget(t, "--max-pending-series="+fmt.Sprint(most), "--write-timeout=1m")
	attacker := g.account(t, "attacker", "create")
	g.cluster.HangingWebhook(t, attacker.namespace)
	var posted atomic.Int64
	flood := func(ctx context.Context) {
		crowd(ctx, 256, 500, func() {
			ctx, cancel := context.WithTimeout(ctx, requestPatience)
			defer cancel()
			attacker.post(ctx, fmt.Sprintf("hang-%d", posted.Add(1)), "Warning")
		})
	}
	siege{allowed: usual, attack: flood,
		ready: func() {
			g.waitPendingSeries(t, "as many series are pending as may be", func(pending float64) bool { return pending >= most })
		}}.run(t, g)
}

// sinkShare is the count of the sink in an annotation of shares.
var sinkShare = regexp.MustCompile(`(;s=[0-9a-v]{16}):[0-9]+`)

func TestSquattedNamesLoseNothing(t *testing.T) {
	g := eventdTarget(t)
	squatter := g.account(t, "squatter", "create")
	victim := g.accountIn(t, squatter.namespace, "victim", "create", "patch")
	// The squatter can compute the name of a series from its identity. Here the first
	// report shows the name.
	victim.mustPost(t, victim.event("first", "web-0", "Warning", 1), http.StatusCreated)
	first := stored.ByObject(t, g.cluster, victim.namespace)["web-0"][0]
	admin := kubernetes.NewForConfigOrDie(g.cluster.Config()).CoreV1().Events(victim.namespace)
	if err := admin.Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil { // as it does when it expires
		t.Fatal(err)
	}
	credentials := replica.Account(t, g.cluster, squatter.namespace, "squatter-2", "create")
	direct := kubernetes.NewForConfigOrDie(g.direct(credentials)).CoreV1().Events(victim.namespace)
	names := []string{first.Name}
	for i := range 7 {
		names = append(names, fmt.Sprintf("%s-%d", first.Name, i+1))
	}
	for _, name := range names {
		squat := first.DeepCopy()
		squat.ObjectMeta = metav1.ObjectMeta{Name: name, Namespace: victim.namespace, Annotations: maps.Clone(first.Annotations)}
		squat.Annotations["eventd.io/shares"] = sinkShare.ReplaceAllString(first.Annotations["eventd.io/shares"], "$1:18446744073709551615")
		if _, err := direct.Create(t.Context(), squat, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		victim.mustPost(t, victim.event(fmt.Sprintf("later-%d", i), "web-0", "Warning", 1), http.StatusCreated, http.StatusAccepted)
	}
	g.eventd.Terminate(t) // it writes all that is pending
	counted := int32(0)
	for _, event := range stored.ByObject(t, g.cluster, victim.namespace)["web-0"] {
		if !slices.Contains(names, event.Name) {
			counted += event.Count
		} else if event.Count != first.Count {
			counted += event.Count - first.Count
		}
	}
	if counted != 3 {
		t.Errorf("%d of 3 occurrences are counted on Events that nobody has squatted, or added to one", counted)
	}
}

// TestFloodAtTenTimesItsShareDelaysNoOther: what both clients compete for here is
// eventd's own capacity, 2 writes of 30 to 90 ms at once, not the processors of the machine.
// One client of two offers ten times its half of that. The p99 of the other increases by
// at most 10 % or 2 ms. Other load on the machine can spoil a round, so one of a few has
// to succeed; an unfair queue spoils all of them.
func TestFloodAtTenTimesItsShareDelaysNoOther(t *testing.T) {
	const (
		slots   = 2
		latency = 60 * time.Millisecond
		share   = slots / 2 * float64(time.Second/latency) // writes per second
		rounds  = 6
	)
	c := testenv.Shared(t)
	proxy := faultproxy.New(t, replica.Deploy(t, c), 1)
	proxy.SetRules(faultproxy.Rule{Probability: 1, Fault: faultproxy.Slow(faultproxy.Uniform(latency/2, latency*3/2), nil)})
	g := startEventd(t, c, proxy.Config(), "--max-concurrent-writes="+fmt.Sprint(slots))
	v := g.victim(t)
	attacker := g.account(t, "attacker", "create")
	v.report(t.Context(), time.Second)
	var posted atomic.Int64
	for range rounds {
		during := longrun.Either(20*time.Second, 4*time.Second)
		before := v.report(t.Context(), during)
		ctx, stop := context.WithCancel(t.Context())
		var flooding sync.WaitGroup
		flooding.Go(func() {
			crowd(ctx, 500, 10*share, func() { attacker.post(ctx, fmt.Sprintf("flood-%d", posted.Add(1)), "Warning") })
		})
		flooded := v.report(t.Context(), during)
		stop()
		flooding.Wait()
		longrun.Report(t, "p50, p99 in ms: before %s, during %s", before, flooded)
		if n := len(before.failed) + len(flooded.failed); n > 0 {
			t.Fatalf("%d requests of the victim failed: %v", n, append(before.failed, flooded.failed...))
		}
		was, is := before.percentile(99), flooded.percentile(99)
		if is <= was+max(was/10, 2*time.Millisecond) {
			return
		}
		g.waitPendingSeries(t, "nothing is pending", func(pending float64) bool { return pending == 0 })
		t.Logf("p99 of the victim is %s, and was %s", is, was)
	}
	t.Errorf("the p99 of the victim increased by more than 10 %% in each of %d rounds", rounds)
}
