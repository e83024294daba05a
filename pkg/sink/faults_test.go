package sink

import (
	"testing"
	"time"

	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/testenv"
)

// An apiserver that is away for a while, and comes back without the Events, costs
// nothing that was still owed.
func TestApiserverThatIsAwayCostsNothing(t *testing.T) {
	shared := testenv.Shared(t)
	namespace := shared.Namespace(t)
	proxy := faultproxy.New(t, shared.Config(), 1)
	o := unlimited()
	o.RetryMaxDelay = 200 * time.Millisecond
	b := newBench(t, namespace, clientFor(t, proxy.Config()), o)
	const series, rounds = 50, 20
	for i := range series {
		b.record(i)
	}
	if left := b.Flush(t.Context()); left.Series != 0 {
		t.Fatal(left)
	}
	proxy.Pause()
	for i := range series * rounds {
		b.record(i % series)
	}
	if p := b.Pending(); p.Series != series || p.Occurrences != series*rounds {
		t.Errorf("pending %+v", p)
	}
	if err := proxy.Resume(); err != nil {
		t.Fatal(err)
	}
	totals := b.close()
	if totals.Written() != totals.Recorded {
		t.Errorf("recorded %d, settled as %v", totals.Recorded, totals.Outcomes)
	}
	wantStored(t, namespace, series, series*(rounds+1))
}
