package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/fakeapiserver"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
)

// row is what was measured of one situation in one cluster.
type row struct {
	Situation string
	Nodes     int
	Limits    string

	// Reported is what reporters send in a second of the situation, each Event once.
	Reported float64
	// Stretch is by how much longer than in the cluster the situation took here.
	Stretch float64
	// Offered is the same in a second here, Answered the part of it that was answered with success.
	Offered, Answered float64
	// CPU is seconds of the leader per answered Event.
	CPU float64
	// PeakBytes is the peak of the leader's resident memory, Connections the number of those open at the end.
	PeakBytes, Connections float64
	// Writes and Reviews are requests to the apiserver per answered Event. NeededReviews are those that a second of
	// the situation needs.
	Writes, Reviews, NeededReviews float64
	// Refused are the requests that were answered 429, by reason, each attempt by itself.
	Refused map[string]float64
	// Dropped are Events that eventd has accepted and not written, Pending those that it had yet to write.
	Dropped, Pending float64
	// Overflowed are Events that reporters dropped, since their queues were full.
	Overflowed float64
}

// String has all figures, also those that the table leaves out.
func (r row) String() string {
	return fmt.Sprintf("reported %.0f/s, offered %.0f/s (stretch %.1f), answered %.1f %%, refused %v, %.0f µs of CPU and %.2f writes and %.2f reviews each (needs %.0f/s), "+
		"%.0f MiB, %.0f connections, dropped %.0f, pending %.0f, dropped by reporters %.0f", r.Reported, r.Offered, r.Stretch, 100*r.Answered, r.Refused,
		1e6*r.CPU, r.Writes, r.Reviews, r.NeededReviews, r.PeakBytes/(1<<20), r.Connections, r.Dropped, r.Pending, r.Overflowed)
}

// cores that the situation takes in a cluster.
func (r row) cores() float64 { return r.CPU * r.Reported }

// projected reports whether the cores were not measured at this rate.
func (r row) projected() bool { return r.Stretch > 1 || r.Answered < 0.99 }

// eventd is a running leader.
type eventd struct {
	*replica.Replica
	admin     *rest.Config
	apiserver *fakeapiserver.Server
	authority *authority
}

// withEventd runs a leader against an apiserver of its own.
func withEventd(ctx context.Context, flags []string, do func(*eventd) error) (err error) {
	dir, err := os.MkdirTemp("", "scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a, err := newAuthority()
	if err != nil {
		return err
	}
	const peerToken = "token-of-eventd"
	tokens := map[string]fakeapiserver.Token{
		peerToken: {User: "system:serviceaccount:kube-system:eventd", Groups: []string{"system:serviceaccounts"}, Audiences: []string{"eventd"}},
	}
	for name, token := range controllers {
		tokens[token] = fakeapiserver.Token{User: "system:serviceaccount:kube-system:" + name, Groups: []string{"system:serviceaccounts"}}
	}
	apiserver := fakeapiserver.Start(fakeapiserver.Options{ClientCA: a.pem(), Tokens: tokens})
	defer apiserver.Close()
	admin, err := a.issue("kubernetes-admin", "system:masters")
	if err != nil {
		return err
	}
	cert, key, err := a.pemOf(admin)
	if err != nil {
		return err
	}
	r, err := replica.Start(ctx, replica.Options{
		Binary: *binary, Credentials: apiserver.Config(), PeerToken: peerToken, Dir: dir, Flags: flags,
		Env: []string{"GOMEMLIMIT=3040MiB"}, // as in deploy/
	})
	if err != nil {
		return err
	}
	defer r.Kill()
	e := &eventd{
		Replica: r, apiserver: apiserver, authority: a,
		admin: &rest.Config{QPS: -1, TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}},
	}
	if err := await.Success(ctx, time.Minute, func() error {
		m, err := r.Metrics(ctx, e.admin)
		if err == nil && m.Sum("eventd_election_leading") != 1 {
			return errors.New("eventd does not lead")
		}
		return err
	}); err != nil {
		return err
	}
	return do(e)
}

// limitedWindow is how much of a situation is simulated with the default limits: whether they are enough shows
// soon.
const limitedWindow = 8 * time.Second

// simulate runs a situation in a cluster. If this machine cannot report as much, it takes longer than there.
func (e *eventd) simulate(ctx context.Context, s situation, nodes int, limits string) (row, error) {
	c, err := newCluster(nodes, e.authority, e.Config(&rest.Config{}))
	if err != nil {
		return row{}, err
	}
	defer c.close()
	c.oneAddress = *oneAddress
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	occurrences, err := s.of(reporting, c)
	if err != nil {
		return row{}, err
	}
	length := window
	if limits == byDefault {
		length = limitedWindow
		occurrences = slices.DeleteFunc(occurrences, func(o occurrence) bool { return o.at >= length })
	}
	stretch := max(1, float64(len(occurrences))/length.Seconds()/(*ceiling))
	begin, before, err := e.usage(ctx)
	if err != nil {
		return row{}, err
	}
	var sending sync.WaitGroup
	took := time.Duration(stretch * float64(length))
	for i := range occurrences {
		o := &occurrences[i]
		if ahead := time.Until(begin.Add(time.Duration(stretch * float64(o.at)))); ahead > time.Millisecond {
			if err := await.Sleep(ctx, ahead); err != nil {
				return row{}, err
			}
		}
		o.by.report(reporting, &sending, event(o))
	}
	if err := await.Sleep(ctx, time.Until(begin.Add(took))); err != nil {
		return row{}, err
	}
	_, after, err := e.usage(ctx)
	if err != nil {
		return row{}, err
	}
	answered, due := float64(c.tally.answered.Load()), float64(c.tally.recorded.Load()-c.tally.skipped.Load())
	peak, err := e.peakBytes()
	stop()
	sending.Wait()
	out := row{
		Situation: s.name, Nodes: nodes, Limits: limits, Stretch: stretch,
		Reported: due / length.Seconds(), Offered: due / took.Seconds(), Answered: answered / due,
		CPU: (after.cpu - before.cpu) / answered, PeakBytes: peak, Connections: after.connections,
		Writes:        float64(after.counts.Writes()-before.counts.Writes()) / answered,
		Reviews:       float64(after.counts.AccessReviews-before.counts.AccessReviews+after.counts.TokenReviews-before.counts.TokenReviews) / answered,
		NeededReviews: neededReviews(occurrences) / length.Seconds(),
		Refused:       make(map[string]float64), Dropped: after.dropped, Pending: after.pending,
		Overflowed: float64(c.tally.overflowed.Load()),
	}
	for _, reason := range []string{"share", "strangers_share", "reviews", "seats"} {
		if n := after.metrics.Sum("eventd_intake_refused_total", "reason="+reason); n > 0 {
			out.Refused[reason] = n
		}
	}
	return out, err
}

// usage is what eventd has used and done so far.
type usage struct {
	cpu, connections, dropped, pending float64
	counts                             fakeapiserver.Counts
	metrics                            metrics.Metrics
}

// usage asks again while eventd has too many requests.
func (e *eventd) usage(ctx context.Context) (at time.Time, _ usage, err error) {
	var m metrics.Metrics
	err = await.Success(ctx, time.Minute, func() error {
		at = time.Now()
		m, err = e.Metrics(ctx, e.admin)
		return err
	})
	return at, usage{
		cpu: m.Sum("process_cpu_seconds_total"), connections: m.Sum("eventd_connections"),
		dropped: m.Sum("eventd_occurrences_settled_total", "outcome=dropped"), pending: m.Sum("eventd_occurrences_pending"),
		counts: e.apiserver.Counts(), metrics: m,
	}, err
}

// peakBytes is the peak of the resident memory, from /proc.
func (e *eventd) peakBytes() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib * (1 << 10), nil
		}
	}
	return 0, errors.New("/proc has no peak of the memory")
}
