package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// occurrence is one that a reporter reports.
type occurrence struct {
	at           time.Duration
	by           *reporter
	about        corev1.ObjectReference
	kind, reason string
	text, detail string // of the message; detail may be ""
}

// situation is the beginning of a minute in which a cluster reports much. docs/sizing.md has the sources of the rates.
type situation struct {
	name string
	// happen adds what is reported.
	happen func(*plan) error
}

var situations = []situation{{"rollout", rollout}, {"zone outage", zoneOutage}, {"registry down", registryDown}}

// window is how long a situation is simulated.
const window = 20 * time.Second

// plan is what happens in a cluster.
type plan struct {
	*cluster
	ctx         context.Context
	rng         *rand.Rand
	occurrences []occurrence
	nextPod     int // of Pods that are new
}

// of plans a situation, in the order of time.
func (s situation) of(ctx context.Context, c *cluster) ([]occurrence, error) {
	p := &plan{cluster: c, ctx: ctx, rng: rand.New(rand.NewPCG(1, uint64(c.nodes))), nextPod: c.nodes * podsPerNode}
	if err := s.happen(p); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.occurrences, func(a, b occurrence) int { return int(a.at - b.at) })
	return p.occurrences, nil
}

// reviewTTL is for how long eventd remembers a review by default.
const reviewTTL = 10 * time.Second

// neededReviews is the number of SubjectAccessReviews that the occurrences need: one for each reporter, namespace and
// verb in the time that one is remembered. A new series needs those of create and patch, a repeat that of patch.
func neededReviews(occurrences []occurrence) float64 {
	type right struct {
		by              *reporter
		namespace, verb string
		slot            time.Duration
	}
	type series struct {
		by           *reporter
		about        types.UID
		reason, text string
	}
	rights, known := make(map[right]struct{}), make(map[series]struct{})
	for i := range occurrences {
		o := &occurrences[i]
		needed := right{o.by, o.about.Namespace, "patch", o.at / reviewTTL}
		rights[needed] = struct{}{}
		s := series{o.by, o.about.UID, o.reason, o.text + o.detail}
		if _, ok := known[s]; !ok {
			known[s] = struct{}{}
			needed.verb = "create"
			rights[needed] = struct{}{}
		}
	}
	return float64(len(rights))
}

// add adds an occurrence, unless it is after the window.
func (p *plan) add(at time.Duration, by *reporter, about corev1.ObjectReference, kind, reason, text, detail string) {
	if at < window {
		p.occurrences = append(p.occurrences, occurrence{at, by, about, kind, reason, text, detail})
	}
}

func (p *plan) anyTime(within time.Duration) time.Duration {
	return time.Duration(p.rng.Int64N(int64(within)))
}

// newPod is a Pod that did not exist before.
func (p *plan) newPod() corev1.ObjectReference {
	p.nextPod++
	return p.pod(p.nextPod)
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// rollout replaces all Pods of the cluster within an hour: 125 Pods per second on 15,000 nodes, which is what
// a scheduler places. Each replaced Pod is reported nine times: by the kubelet that starts it, by the one that
// ends the old one, by the scheduler and by the controllers of its owners.
func rollout(p *plan) error {
	rs, err := p.controller(p.ctx, replicaSetController)
	if err != nil {
		return err
	}
	deployments, err := p.controller(p.ctx, deploymentController)
	if err != nil {
		return err
	}
	binder, err := p.controller(p.ctx, scheduler)
	if err != nil {
		return err
	}
	pods := p.nodes * podsPerNode / int(time.Hour/window)
	for i := range pods {
		from, to := p.rng.IntN(p.nodes), p.rng.IntN(p.nodes)
		old, err := p.kubelet(p.ctx, from)
		if err != nil {
			return err
		}
		kubelet, err := p.kubelet(p.ctx, to)
		if err != nil {
			return err
		}
		at := window * time.Duration(i) / time.Duration(pods)
		ended, pod := p.pod(from*podsPerNode+p.rng.IntN(podsPerNode)), p.newPod()
		set := owner("ReplicaSet", pod.Namespace, i/podsPerReplicaSet)
		p.add(at, deployments, owner("Deployment", pod.Namespace, i/podsPerReplicaSet), normal, "ScalingReplicaSet", "Scaled up replica set web-5d8f9c7b4 to %s", pod.Name)
		p.add(at, rs, set, normal, "SuccessfulCreate", "Created pod: %s", pod.Name)
		p.add(at+100*time.Millisecond, binder, pod, normal, "Scheduled", "Successfully assigned %s", pod.Name)
		// The image is pulled within seconds.
		for _, step := range []struct {
			after        time.Duration
			reason, text string
		}{
			{time.Second, "Pulling", `Pulling image "registry.example/web:v1.2.3"`},
			{3 * time.Second, "Pulled", `Successfully pulled image "registry.example/web:v1.2.3" in 2.1s (2.1s including waiting)`},
			{3200 * time.Millisecond, "Created", "Container created"},
			{3400 * time.Millisecond, "Started", "Container started"},
		} {
			p.add(at+step.after, kubelet, container(pod), normal, step.reason, step.text, "")
		}
		p.add(at+4*time.Second, rs, set, normal, "SuccessfulDelete", "Deleted pod: %s", ended.Name)
		p.add(at+4*time.Second, old, container(ended), normal, "Killing", "Stopping container app", "")
	}
	return nil
}

func owner(kind, namespace string, number int) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: kind, APIVersion: "apps/v1", Namespace: namespace, Name: "web",
		UID: types.UID(kind + "-" + time.Duration(number).String()),
	}
}

// The node lifecycle controller marks nodes and Pods with eight workers (nodeUpdateWorkerSize), each of which
// waits for one write after the other: at 16 ms these are 500 per second.
const nodeControllerRate = 500

// zoneOutage is the minute after a third of the nodes has not reported for --node-monitor-grace-period. The
// node lifecycle controller reports each of them and each of its Pods. On the other nodes, one Pod in ten
// depends on what was lost: its readiness probe fails every ten seconds.
func zoneOutage(p *plan) error {
	controller, err := p.controller(p.ctx, nodeController)
	if err != nil {
		return err
	}
	lost := p.nodes / 3
	every := max(time.Second/nodeControllerRate, time.Minute/time.Duration(lost*(1+podsPerNode)))
	for i := range lost * (1 + podsPerNode) {
		at, node, n := every*time.Duration(i), i/(1+podsPerNode), i%(1+podsPerNode)
		if n == 0 {
			about := corev1.ObjectReference{Kind: "Node", Name: nodeName(node), UID: types.UID(nodeName(node))}
			p.add(at, controller, about, normal, "NodeNotReady", "Node %s status is now: NodeNotReady", nodeName(node))
			continue
		}
		p.add(at, controller, p.pod(node*podsPerNode+n-1), warning, "NodeNotReady", "Node is not ready", "")
	}
	for node := lost; node < p.nodes; node++ {
		kubelet, err := p.kubelet(p.ctx, node)
		if err != nil {
			return err
		}
		for n := range podsPerNode / 10 {
			for at := p.anyTime(10 * time.Second); at < window; at += 10 * time.Second {
				p.add(at, kubelet, container(p.pod(node*podsPerNode+n)), warning, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", "")
			}
		}
	}
	return nil
}

// registryDown is the minute in which two Pods of each node start, after a registry has ceased to answer. Each
// attempt to pull is reported three times, and twice when the kubelet sees that it must wait: 10 s, 20 s, 40 s
// (imageBackOffPeriod, MaxImageBackOff), each with a jitter of up to a half (completeWork of pod_workers.go).
func registryDown(p *plan) error {
	const (
		image = `"registry.example/web:v1.2.3"`
		cause = `failed to pull and unpack image ` + image + `: failed to resolve reference ` + image + `: failed to do request: Head "https://registry.example/v2/web/manifests/v1.2.3": dial tcp 192.0.2.10:443: i/o timeout`
	)
	for node := range p.nodes {
		kubelet, err := p.kubelet(p.ctx, node)
		if err != nil {
			return err
		}
		for range 2 {
			app := container(p.newPod())
			wait := 10 * time.Second
			for at := p.anyTime(time.Minute); at < window; {
				p.add(at, kubelet, app, normal, "Pulling", "Pulling image "+image, "")
				p.add(at+time.Second, kubelet, app, warning, "Failed", "Failed to pull image "+image+": "+cause, "")
				p.add(at+time.Second, kubelet, app, warning, "Failed", "Error: ErrImagePull", "")
				p.add(at+2*time.Second, kubelet, app, normal, "BackOff", "Back-off pulling image "+image, "")
				p.add(at+2*time.Second, kubelet, app, warning, "Failed", "Error: ImagePullBackOff", "")
				at += wait + p.anyTime(wait/2)
				wait = min(2*wait, 300*time.Second)
			}
		}
	}
	return nil
}
