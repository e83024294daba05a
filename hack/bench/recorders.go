package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/eventd/eventd/hack/bench/internal/timing"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

// reporting is how unmodified recorders of client-go with default options report, each
// over a connection of its own, with a token as in a Pod.
type reporting struct {
	name      string
	recorders int
	perSecond int // occurrences, of all together
	repeats   int // of the first occurrence of each series; client-go patches the count
	turns     int
	start     func(*connection) (report func(*corev1.Pod), shutdown func())
	latency   *aim // of the median POST
}

const (
	reportedFor = 10 * time.Second
	// quiet is longer than client-go pauses before it repeats a request that was refused.
	quiet = 3 * time.Second
	// quietAfterFailure is longer than it pauses after all others.
	quietAfterFailure = 12 * time.Second
)

func reportings() []reporting {
	return []reporting{
		{name: "one recorder, 600/s", recorders: 1, perSecond: 600, turns: 3, start: startClassic},
		{name: "one recorder, 600/s, 9 of 10 repeats", recorders: 1, perSecond: 600, repeats: 9, turns: 1, start: startClassic},
		{name: "20 recorders, 60/s each", recorders: 20, perSecond: 1200, turns: 3, start: startClassic},
		{name: "one recorder of tools/events, 600/s", recorders: 1, perSecond: 600, turns: 1, start: startNewStyle},
		// The machine has little else to do.
		{name: "one recorder, 50/s", recorders: 1, perSecond: 50, turns: 1, start: startClassic, latency: below(0.0015, milliseconds)},
	}
}

func startClassic(c *connection) (func(*corev1.Pod), func()) {
	r, shutdown := startClientGo(c)
	return func(pod *corev1.Pod) { report(r, pod) }, shutdown
}

func startNewStyle(c *connection) (func(*corev1.Pod), func()) {
	ctx, cancel := context.WithCancel(context.Background())
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		panic(err) // only after its shutdown
	}
	r := b.NewRecorder(scheme.Scheme, "example.com/bench")
	return func(pod *corev1.Pod) {
			r.Eventf(pod, nil, corev1.EventTypeNormal, "Benched", "Benching", "Back-off restarting failed container app in pod %s", pod.Name)
		}, func() {
			cancel()
			b.Shutdown()
		}
}

func (r reporting) occurrences() int { return r.perSecond * int(reportedFor.Seconds()) }

// report has the recorders report about each of the objects, and returns what the POSTs
// took when no more are made.
func (r reporting) report(ctx context.Context, config *rest.Config, l load) (posts []time.Duration, err error) {
	var connections []*connection
	var reports []func(*corev1.Pod)
	for range r.recorders {
		c, err := connect(ctx, config)
		if err != nil {
			return nil, err
		}
		defer c.close()
		report, shutdown := r.start(c)
		defer shutdown()
		connections, reports = append(connections, c), append(reports, report)
	}
	err = timing.Paced(ctx, r.occurrences(), l.over, func(i int) { reports[i%len(reports)](l.objects[i%len(l.objects)]) })
	if err != nil {
		return nil, err
	}
	for made, pause := -1, quiet; made < len(posts); {
		made, posts = len(posts), nil
		if err := await.Sleep(ctx, pause); err != nil {
			return nil, err
		}
		for _, c := range connections {
			posts = append(posts, c.traffic.posted()...)
			if answers := c.traffic.snapshot(); answers[0] > 0 || answers[http.StatusInternalServerError] > 0 {
				pause = quietAfterFailure
			}
		}
	}
	slices.Sort(posts)
	return posts, nil
}

// to is the side that reports to a server. It returns what is stored when nothing is
// pending.
func (r reporting) to(server *rest.Config, both *replicas) side {
	return func(ctx context.Context, admin *rest.Config, l load) (effort, error) {
		posts, err := r.report(ctx, server, l)
		if err == nil {
			err = both.waitMetric(ctx, 0, "eventd_occurrences_pending")
		}
		client := kubernetes.NewForConfigOrDie(admin).CoreV1()
		sum := int64(0)
		for _, pod := range l.objects[:loadNamespaces] { // one in each
			list, listErr := client.Events(pod.Namespace).List(ctx, metav1.ListOptions{})
			if err = errors.Join(err, listErr); err != nil {
				return effort{}, err
			}
			for _, e := range list.Items {
				sum += stored.Count(&e)
			}
		}
		return effort{occurrences: r.occurrences(), written: int(sum), posts: posts}, nil
	}
}

// reportedBy compares recorders that report to the leader, or to the standby, of two
// replicas with those that report to the apiserver.
func reportedBy(r reporting) trial {
	const share, p50, p99 = ": share that is stored", ": POST, p50", ": POST, p99"
	var paths, works []string
	for _, path := range []string{"leader", "standby"} {
		name := r.name + " for 10 s, to the " + path
		paths, works = append(paths, name), append(works, name+share, name+p50, name+p99)
	}
	return trial{works: works, run: func(ctx context.Context, s *apiserver) (out []outcome, err error) {
		var efforts [][]effort
		err = withReplicas(ctx, s, replicated, func(both *replicas) (err error) {
			efforts, err = takeTurns(ctx, s, r.turns, r.occurrences()/(1+r.repeats), reportedFor,
				r.to(both.account, both), r.to(both.leader.Config(both.account), both), r.to(both.standby.Config(both.account), both))
			return err
		})
		if err != nil {
			return nil, err
		}
		// A recorder makes one request at a time, and one to a standby is forwarded.
		stored := []*aim{exactly(1, percent), atLeast(0.9, percent)}
		for i, path := range paths {
			row := func(work string, u unit, figure func(effort) float64, a *aim) {
				out = append(out, outcome{
					work: path + work, unit: u, eventd: of(efforts[1+i], figure),
					beside: "to the apiserver", other: of(efforts[0], figure), aim: a,
				})
			}
			row(share, percent, effort.share, stored[i])
			row(p50, milliseconds, effort.p50, r.latency)
			row(p99, milliseconds, effort.p99, nil)
		}
		return out, nil
	}}
}
