package sizing

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/versions"
)

// Each of as many series as are remembered by default takes sink.IdleSeriesBytes at most, and each further
// occurrence of one is one request. The clients are kubelets that count by themselves. The correlator takes the same
// for any number of series, since it knows as many subjects as it may.
func TestLiveSeriesAreRememberedInFewBytesAndNeedOneRequestEach(t *testing.T) {
	const (
		series = 28_000
		rounds = 3
		batch  = 5000 // below all limits of what is pending
	)
	server := versions.New(series)
	o := app.NewOptions()
	o.Pipeline.Sink.QPS, o.Pipeline.Sink.Acknowledge = math.Inf(1), sink.AcknowledgeCommitted
	began := time.Now()
	at := func(round int) time.Time { return began.Add(time.Duration(round) * time.Minute) }
	empty := liveBytes()
	c, err := correlator.New(o.Pipeline.Correlator)
	if err != nil {
		t.Fatal(err)
	}
	for i := range series {
		c.Correlate(versions.PodEvent(i, 1, at(0)), at(0))
	}
	before := liveBytes()
	ends := ledger.New()
	s, err := sink.New(t.Context(), server, ends, o.Pipeline.Sink)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for round := 1; round <= rounds; round++ {
		for i := range series {
			reported := versions.PodEvent(i, int64(round), at(round))
			d := c.Correlate(reported, at(round))
			if s.Add(reported, d.Target, d.Delay); i%batch == batch-1 {
				s.Flush(t.Context())
			}
		}
	}
	s.Flush(t.Context())
	if totals := ends.Totals(); totals.Written() != rounds*series { // the server cannot be read
		t.Errorf("settled %v: series were forgotten, and read", totals.Outcomes)
	}
	took, subjects := float64(liveBytes()-before)/series, float64(before-empty)/series
	each := float64(server.Requests()) / (rounds * series)
	t.Logf("%.1f bytes in the sink, %.1f in the correlator, and %.3f requests for each", took, subjects, each)
	if took > sink.IdleSeriesBytes || took < sink.IdleSeriesBytes*2/3 || subjects*series > float64(part(o, "subjects, and their series and groups").Most) || each > 1.1 {
		t.Errorf("%.1f bytes in the sink, %.1f in the correlator, and %.2f requests for each", took, subjects, each)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(server)
}
