package delivery

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
)

// durationBuckets are upper bounds in seconds: from a receiver on the same node to the default
// timeout.
var durationBuckets = [...]float64{0.005, 0.025, 0.1, 0.5, 2.5, 10}

// histogram counts durations of attempts. Unlike one of the client library, it ends with its
// receiver.
type histogram struct {
	buckets [len(durationBuckets)]uint64 // cumulative
	count   uint64
	sum     float64
}

func (h *histogram) observe(d time.Duration) {
	h.count++
	h.sum += d.Seconds()
	for i, bound := range durationBuckets {
		if d.Seconds() <= bound {
			h.buckets[i]++
		}
	}
}

func (h *histogram) cumulative() map[float64]uint64 {
	out := make(map[float64]uint64, len(durationBuckets))
	for i, bound := range durationBuckets {
		out[bound] = h.buckets[i]
	}
	return out
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("eventd_receiver_"+name, help, append([]string{"receiver"}, labels...), nil)
}

var (
	observedDesc   = describe("observed_versions_total", "Versions of Events observed for a receiver.")
	deliveredDesc  = describe("delivered_versions_total", "Versions of Events that a receiver has acknowledged.")
	filteredDesc   = describe("filtered_versions_total", "Versions of Events that a receiver does not get, by the route that decided so; empty if no route matched.", "route")
	supersededDesc = describe("superseded_versions_total", "Versions of Events that left the buffer unread. What is still stored of them is observed again.")
	givenUpDesc    = describe("given_up_versions_total", "Versions of Events that were not delivered, by reason: rejected (by the destination).", "reason")
	handedOverDesc = describe("handed_over_versions_total", "Versions of Events left to the next leader, or to the receiver's next configuration.")
	pendingDesc    = describe("pending_versions", "Versions of Events that were observed and are not settled.")
	summariesDesc  = describe("summaries_total", "Summaries of throttled versions, which are filtered, by result: delivered, rejected (by the destination), lost (with the term or the configuration of the receiver, or by a change of the routes).", "result")
	waitingDesc    = describe("pending_summaries", "Summaries of throttled versions whose interval has not ended, or that are not settled.")
	lagDesc        = describe("lag_seconds", "Age of the oldest pending version, since it was observed.")
	stateDesc      = describe("state", "1 for what a receiver does, otherwise 0: standby (this replica does not lead), starting, waiting (everything is delivered), sending, backing_off (after a failure), hanging (a call ignores its timeout, and nothing is sent until it returns), paused (by the configuration).", "state")
	gapsDesc       = describe("gaps_total", "Times that the apiserver no longer had versions that may not have been read.")
	restoresDesc   = describe("restores_total", "Times that everything was delivered again, because etcd was restored from a backup.")
	openErrorsDesc = describe("start_failures_total", "Failed attempts to start a receiver.")
	attemptsDesc   = describe("send_attempts_total", "Attempts to send a batch by result.", "result")
	durationDesc   = describe("send_duration_seconds", "Duration of attempts to send a batch.")
)

// states are those that a receiver can have.
var states = []State{StateStandby, StateStarting, StateWaiting, StateSending, StateBackingOff, StateHanging, StatePaused}

// givenUpRejected is the reason of versions that the destination refuses for good.
const givenUpRejected = "rejected"

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		observedDesc, deliveredDesc, filteredDesc, supersededDesc, givenUpDesc, handedOverDesc, pendingDesc, lagDesc,
		summariesDesc, waitingDesc,
		stateDesc, gapsDesc, restoresDesc, openErrorsDesc, attemptsDesc, durationDesc,
	} {
		out <- d
	}
}

// collector exports the accounts of the receivers.
type collector struct{ delivery *Delivery }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, a := range c.delivery.listAccounts() {
		for _, m := range a.metrics() { // sent without its mutex, which the worker needs
			out <- m
		}
	}
}

// metrics returns the metrics of an account as it is at one moment.
func (a *account) metrics() (out []prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(d, kind, value, append([]string{a.name}, labels...)...))
	}
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		add(d, prometheus.CounterValue, float64(n), labels...)
	}
	t := a.readTotals()
	count(observedDesc, t.Observed)
	count(deliveredDesc, t.Delivered)
	for route, n := range t.Filtered {
		count(filteredDesc, n, route)
	}
	count(supersededDesc, t.Superseded)
	count(givenUpDesc, t.Rejected, givenUpRejected)
	count(handedOverDesc, t.HandedOver)
	count(gapsDesc, a.gaps)
	count(restoresDesc, a.restores)
	count(openErrorsDesc, a.openErrors)
	for r, n := range a.attempts {
		count(attemptsDesc, n, string(r))
	}
	count(summariesDesc, t.Summaries.Delivered, "delivered")
	count(summariesDesc, t.Summaries.Rejected, "rejected")
	count(summariesDesc, t.Summaries.Lost, "lost")
	add(waitingDesc, prometheus.GaugeValue, float64(t.Summaries.Pending))
	add(pendingDesc, prometheus.GaugeValue, float64(t.Pending))
	add(lagDesc, prometheus.GaugeValue, a.lag(time.Now()).Seconds())
	for _, s := range states {
		add(stateDesc, prometheus.GaugeValue, instrument.Bool(s == a.state), string(s))
	}
	return append(out, prometheus.MustNewConstHistogram(durationDesc, a.duration.count, a.duration.sum, a.duration.cumulative(), a.name))
}

// cursorMetrics are the metrics of the ConfigMap.
type cursorMetrics struct {
	writes, failed, readsFailed, unreadable, created prometheus.Counter
}

// newMetrics registers the metrics of a Delivery; a nil registerer leaves them out.
func newMetrics(d *Delivery, r prometheus.Registerer) (*cursorMetrics, error) {
	set := instrument.New(r)
	set.Add(collector{d})
	return &cursorMetrics{
		writes:      set.Counter("eventd_cursors_writes_total", "Writes of the cursors of all receivers."),
		failed:      set.Counter("eventd_cursors_writes_failed_total", "Writes of the cursors that failed, or have no answer."),
		readsFailed: set.Counter("eventd_cursors_reads_failed_total", "Reads of the cursors at the start of a term that failed. Nothing is delivered until one succeeds."),
		unreadable:  set.Counter("eventd_cursors_unreadable_total", "Stored cursors that could not be decoded. Their receivers start as new ones."),
		created:     set.Counter("eventd_cursors_created_total", "Times that the ConfigMap of the cursors did not exist at the start of a term. All receivers started as new ones."),
	}, set.Err()
}
