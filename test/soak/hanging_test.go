package soak

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

// patient are options with which a request hangs for longer than the whole test, so
// that other writes cannot have waited for its end. In a full run it times out, and
// hangs again.
func patient() sink.Options {
	o := sink.DefaultOptions()
	o.RequestTimeout = longrun.Either(o.RequestTimeout, time.Minute)
	return o
}

// others are recorded in rounds, while something hangs.
type others struct {
	w          *writer
	namespaces []string
	rounds     int
}

const othersInARound = 200

// round records an occurrence of each of some series, which are new in every second
// round, and waits until all are written. Then only the series that hang are pending.
func (o *others) round(t *testing.T, hanging int) {
	t.Helper()
	var written atomic.Int64
	for i := range othersInARound {
		o.w.record(o.namespaces[i%len(o.namespaces)], fmt.Sprintf("other-%d-%d", o.rounds/2, i), occurrence.CoreV1, 0, func(s occurrence.Settlement) {
			if !s.Counted() {
				t.Errorf("settled as %+v", s)
			}
			written.Add(1)
		})
	}
	await.Within(t, deadline(), "all are written while something else hangs", func() bool { return written.Load() == othersInARound })
	o.rounds++
	if p := o.w.Pending(); p.Series != hanging {
		t.Errorf("after round %d %d series are pending, of which %d hang", o.rounds, p.Series, hanging)
	}
}

// finish ends the sink, and checks what is stored.
func (o *others) finish(t *testing.T) {
	o.w.finish()
	wantStored(t, testenv.Shared(t), o.w.recorded)
}

// Requests of some series hang, before or after they take effect, and all others
// of the same namespace are written while they do.
func TestRequestsThatHangDelayNoOtherSeries(t *testing.T) {
	for _, fault := range []faultproxy.Fault{faultproxy.BeforeWrite(faultproxy.Hang), faultproxy.AfterWrite(faultproxy.Hang)} {
		for _, hanging := range longrun.Either([]int{1, 64, 128}, []int{16}) {
			t.Run(fmt.Sprintf("%d %s", hanging, fault), func(t *testing.T) { requestsHang(t, fault, hanging) })
		}
	}
}

func requestsHang(t *testing.T, fault faultproxy.Fault, hanging int) {
	proxy := newProxy(t, *firstSeed)
	proxy.SetRules(faultproxy.Rule{Match: faultproxy.Match{NamePrefix: "stuck-"}, Probability: 1, Fault: fault})
	namespace := testenv.Shared(t).Namespace(t)
	o := others{w: newWriter(t, proxy.Config(), patient()), namespaces: []string{namespace}}
	for i := range hanging {
		o.w.record(namespace, fmt.Sprint("stuck-", i), occurrence.CoreV1, 0, nil)
	}
	atOnce := min(hanging, mostInOneNamespace(sink.DefaultOptions()))
	await.Within(t, deadline(), "as many requests hang as may be made", func() bool { _, open := stuck(proxy); return open == atOnce })

	o.round(t, hanging)
	if begun, open := stuck(proxy); !*longrun.Full && (begun != hanging || open != hanging) {
		t.Errorf("of %d requests that hang for longer than the test takes %d are under way", begun, open)
	}
	for begun := 0; *longrun.Full && begun < 4*hanging; begun, _ = stuck(proxy) { // until each has timed out several times
		o.round(t, hanging)
	}

	proxy.SetRules()
	proxy.Pause() // ends the hangs
	if err := proxy.Resume(); err != nil {
		t.Fatal(err)
	}
	o.finish(t)
}

// mostInOneNamespace is the concurrency limit of one namespace while there are no
// requests in others.
func mostInOneNamespace(o sink.Options) int { return o.Concurrency * 3 / 4 }

// stuck counts the requests of series that hang, and those of them in flight.
func stuck(p *faultproxy.Proxy) (begun, open int) {
	for _, e := range p.Record() {
		if strings.HasPrefix(e.Name, "stuck-") {
			begun++
			if !e.Ended {
				open++
			}
		}
	}
	return begun, open
}

// In one namespace every write hangs in an admission webhook, and far more series are
// pending than there are concurrent requests. All others are written.
func TestNamespaceThatHangsDelaysNoOther(t *testing.T) {
	cluster := testenv.Shared(t)
	hanging := cluster.Namespace(t)
	hook := cluster.HangingWebhook(t, hanging)
	options := patient()
	o := others{w: newWriter(t, cluster.Config(), options), namespaces: []string{cluster.Namespace(t), cluster.Namespace(t)}}
	series := longrun.Either(8, 3) * options.Concurrency
	for i := range series {
		o.w.record(hanging, fmt.Sprint("stuck-", i), occurrence.CoreV1, 0, nil)
	}
	share := mostInOneNamespace(options)
	await.Within(t, deadline(), "the namespace has reached its concurrency limit", func() bool { return hook.Open() == share })

	o.round(t, series)
	if begun, ended := hook.Calls(); !*longrun.Full && (begun != share || ended != 0) {
		t.Errorf("%d calls of the webhook have begun and %d ended, though they take longer than the test; want %d", begun, ended, share)
	}
	for *longrun.Full && hook.Open() > 1 { // each timeout halves the limit of the namespace
		o.round(t, series)
	}

	hook.Release()
	o.finish(t)
}
