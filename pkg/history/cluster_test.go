package history

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/observer"
)

// cluster makes versions of Events as a real cluster does: 30 namespaces of different sizes, 400
// workloads, 20,000 pods on 200 nodes, the texts of kubelet, scheduler and controllers with ids, hashes,
// images and addresses in them, and Events whose counts rise. One in three versions is a repeat.
type cluster struct {
	rng     *rand.Rand
	pods    []pod
	now     time.Time
	rv      uint64
	repeats []*corev1.Event // Events whose counts rise
}

type pod struct {
	namespace, workload, name, node, ip, image, digest string
	uid                                                types.UID
}

const (
	clusterNamespaces = 30
	clusterWorkloads  = 400
	clusterPods       = 20_000
	clusterNodes      = 200
)

func newCluster(seed uint64) *cluster {
	c := &cluster{rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 11, 23, 15, 0, 0, 0, time.UTC), rv: 1_000_000}
	zipf := rand.NewZipf(c.rng, 1.3, 4, clusterNamespaces-1)
	workloads := make([]pod, clusterWorkloads)
	for i := range workloads {
		workloads[i] = pod{
			namespace: fmt.Sprintf("team-%d-prod", zipf.Uint64()), workload: fmt.Sprintf("%s-%d-%s", c.word(), i, c.letters(9)),
			image:  fmt.Sprintf("registry.example.com/team/%s:v1.%d.%d", c.word(), c.rng.IntN(40), c.rng.IntN(10)),
			digest: c.hex(64),
		}
	}
	c.pods = make([]pod, clusterPods)
	for i := range c.pods {
		p := workloads[c.rng.IntN(clusterWorkloads)]
		p.name, p.uid = p.workload+"-"+c.letters(5), c.uid()
		p.node = fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", c.rng.IntN(4), c.rng.IntN(clusterNodes/4))
		p.ip = fmt.Sprintf("10.%d.%d.%d", c.rng.IntN(16), c.rng.IntN(256), c.rng.IntN(256))
		c.pods[i] = p
	}
	return c
}

func (c *cluster) word() string {
	return []string{"checkout", "cart", "search", "ledger", "payments", "ingest", "gateway", "worker", "mailer", "auth"}[c.rng.IntN(10)]
}

func (c *cluster) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[c.rng.IntN(len(alphabet))]
	}
	return string(b)
}

func (c *cluster) letters(n int) string { return c.of("bcdfghjklmnpqrstvwxz2456789", n) }
func (c *cluster) hex(n int) string     { return c.of("0123456789abcdef", n) }

func (c *cluster) uid() types.UID {
	return types.UID(c.hex(8) + "-" + c.hex(4) + "-4" + c.hex(3) + "-a" + c.hex(3) + "-" + c.hex(12))
}

// next returns the next version: of a new Event, or, one in three, of one that is there.
func (c *cluster) next() observer.Version {
	c.now = c.now.Add(time.Duration(c.rng.Int64N(int64(4 * time.Millisecond)))) // 500 per second
	c.rv += 1 + uint64(c.rng.IntN(3))
	var e *corev1.Event
	if len(c.repeats) > 200 && c.rng.IntN(3) == 0 {
		i := c.rng.IntN(len(c.repeats))
		e = c.repeats[i].DeepCopy()
		e.Count++
		e.LastTimestamp = metav1.Time{Time: c.now.Truncate(time.Second)}
		c.repeats[i] = e
		if c.rng.IntN(20) == 0 { // it ends
			c.repeats[i] = c.repeats[len(c.repeats)-1]
			c.repeats = c.repeats[:len(c.repeats)-1]
		}
	} else {
		e = c.event(&c.pods[c.rng.IntN(len(c.pods))])
		if c.rng.IntN(20) == 0 {
			c.repeats = append(c.repeats, e)
		}
	}
	e.ResourceVersion = strconv.FormatUint(c.rv, 10)
	return observer.Version{Event: e, Observed: c.now.Add(time.Duration(c.rng.IntN(1e6)))}
}

func (c *cluster) event(p *pod) *corev1.Event {
	seconds := metav1.Time{Time: c.now.Truncate(time.Second)}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: p.namespace, Name: fmt.Sprintf("%s.%x", p.name, c.now.UnixNano()), UID: c.uid(), CreationTimestamp: seconds},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: p.uid, ResourceVersion: strconv.FormatUint(c.rv-uint64(c.rng.IntN(1000)), 10)},
		Type:           corev1.EventTypeNormal, Source: corev1.EventSource{Component: "kubelet", Host: p.node},
		ReportingController: "kubelet", ReportingInstance: p.node,
		FirstTimestamp: seconds, LastTimestamp: seconds, Count: 1,
	}
	container := func(reason, format string, args ...any) {
		e.Reason, e.Message, e.InvolvedObject.FieldPath = reason, fmt.Sprintf(format, args...), "spec.containers{app}"
	}
	controller := func(component, apiVersion, kind, name string) {
		e.Source, e.ReportingController, e.ReportingInstance = corev1.EventSource{Component: component}, component, ""
		e.InvolvedObject.APIVersion, e.InvolvedObject.Kind, e.InvolvedObject.Name = apiVersion, kind, name
		e.Name = fmt.Sprintf("%s.%x", name, c.now.UnixNano())
	}
	switch c.rng.IntN(12) {
	case 0:
		e.Reason, e.Message = "Scheduled", fmt.Sprintf("Successfully assigned %s/%s to %s", p.namespace, p.name, p.node)
		e.Source, e.ReportingController, e.ReportingInstance = corev1.EventSource{}, "default-scheduler", "default-scheduler-control-plane-1"
		e.EventTime, e.FirstTimestamp, e.LastTimestamp, e.Count = metav1.NewMicroTime(c.now), metav1.Time{}, metav1.Time{}, 0
		e.Action = "Binding"
	case 1:
		container("Pulling", "Pulling image %q", p.image+"@sha256:"+p.digest)
	case 2:
		took := time.Duration(c.rng.IntN(9000)) * time.Millisecond
		container("Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", p.image, took, took, 10_000_000+c.rng.IntN(90_000_000))
	case 3:
		container("Created", "Created container: app")
	case 4:
		container("Started", "Started container app")
	case 5:
		e.Type = corev1.EventTypeWarning
		container("Unhealthy", "Readiness probe failed: Get \"http://%s:8080/healthz\": dial tcp %s:8080: connect: connection refused", p.ip, p.ip)
	case 6:
		e.Type = corev1.EventTypeWarning
		container("BackOff", "Back-off restarting failed container app in pod %s_%s(%s)", p.name, p.namespace, p.uid)
	case 7:
		container("Killing", "Stopping container app")
	case 8:
		e.Type = corev1.EventTypeWarning
		e.Reason, e.Message = "FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : failed to sync configmap cache: timed out waiting for the condition", "kube-api-access-"+c.letters(5))
	case 9:
		controller("replicaset-controller", "apps/v1", "ReplicaSet", p.workload)
		e.Reason, e.Message = "SuccessfulCreate", "Created pod: "+p.name
		e.InvolvedObject.UID = types.UID("00000000-0000-4000-a000-" + p.digest[:12])
	case 10:
		e.Type = corev1.EventTypeWarning
		e.Reason, e.Message = "FailedScheduling", fmt.Sprintf("0/%d nodes are available: %d Insufficient cpu, %d Insufficient memory. preemption: 0/%d nodes are available: %d No preemption victims found for incoming pod.", clusterNodes, c.rng.IntN(100), c.rng.IntN(100), clusterNodes, clusterNodes)
		e.Source, e.ReportingController = corev1.EventSource{Component: "default-scheduler"}, "default-scheduler"
	case 11:
		container("Failed", "Error: container create failed: time=%q level=error msg=\"runc create failed: unable to start container process: exec: \\\"/bin/app\\\": stat /bin/app: no such file\" id=%s", c.now.Format(time.RFC3339), c.hex(64))
	}
	return e
}
