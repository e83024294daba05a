// Package sizing calculates the memory of an eventd process, and its rate of writes, from its
// options. Command hack/sizing prints the results, and test/deploy compares them with the
// limits in deploy/.
package sizing

import (
	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver/counters"
	"github.com/eventd/eventd/pkg/sink"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	// processBytes is the size of an idle process.
	processBytes = 32 * mib
	// requestBytes is the size of a request with a usual Event, without its body, and stackBytes that of the
	// stacks of its goroutines (growStack in pkg/intake; the handlers of k8s.io/apiserver use as much).
	requestBytes, stackBytes = 12 * kib, 32 * kib
	// unknownCallerBytes is the size of a request during the review of its caller.
	unknownCallerBytes = 8 * kib
	// batchedEvents is maxBatched of pkg/intake, and batchedEventBytes the size of each, without its part of the body.
	batchedEvents, batchedEventBytes = 3 << 10, 4 * kib
	// credentials is the size of the caches of accepted and rejected credentials (pkg/intake).
	credentials = 6 * mib
	// usualConnections is the number of clients of a replica in a usual cluster.
	usualConnections = 1000
	// usualDecoding is the size of usual bodies that are decoded at once.
	usualDecoding = 4 * mib
	// viewBytes is the size of a usual Event that a client posted (pkg/intake,
	// Options.MaxViewBytes).
	viewBytes = 2 * kib
	// occurrenceBytes is the size of a usual occurrence in a queue (pkg/pipeline,
	// Options.QueueCapacity).
	occurrenceBytes = 512
	// subjectBytes is the size of a subject with one series, the only one of its tenant. Each further series, with a
	// group, counts as one more, and takes less (pkg/correlator, BenchmarkMemory).
	subjectBytes = 288
	// seriesBytes is the size of a pending series in a sink, without its occurrences.
	seriesBytes = 1 * kib
	// writeBytes is the size of a request to the apiserver: its goroutines, and its
	// part of a connection.
	writeBytes = 32 * kib
	// sessions is maxSessions of pkg/intake, and backlogBytes maxBacklog of
	// pkg/sink/internal/replication: the changes that one follower has not acknowledged.
	sessions, backlogBytes = 4, 4 * mib
	// totals is maxTotals there: of clients that count by themselves.
	totals = 8 * mib
	// usualBacklogs is that of two followers, of a few milliseconds.
	usualBacklogs = 2 * mib
	// readerBytes is what a receiver may have read, 1 MiB and the largest version, and a request with as much, twice
	// while it is encoded (pkg/observer, fetchBytes; pkg/delivery, maxRequestBytes).
	// usualReaderBytes is a block of the buffer, decoded.
	readerBytes, usualReaderBytes = 6 * mib, 2 * mib
	// versionBytes is what the largest version takes while it is decoded, before its labels are cut, and pageBytes a
	// page of such: ten times its size (pkg/observer, maxPageBytes). fetches are the watches of readers, which read
	// as much at once as one page does (maxFetches).
	versionBytes, pageBytes, fetches = 15 * mib, 20 * mib, 2
	usualReceivers                   = 2
	// seriesOfMetricBytes is the size of a series of a metric of the configuration, with 8 labels of
	// the maximum size (pkg/receiver/counters), and of what a scrape makes of it. usualSeries is the
	// number of series of usual metrics, and usualSeriesOfMetricBytes their size.
	seriesOfMetricBytes, usualSeriesOfMetricBytes, usualSeries = 2816, 1 * kib, 5000
	// queryBytes is the size of queries: unread answers, those that are encoded (pkg/intake, maxUnreadQueryBytes,
	// querySeats), and watches with their buffers. usualQueryBytes is that of some pages and tails.
	queryBytes, usualQueryBytes = (8 + 4*21/4 + 64/8) * mib, 4 * mib
	// historyReadBytes is what is beside the history itself: the buffer of its observer, a run that is encoded,
	// blocks that are decoded at once, results, what tails have decoded, and what they read at once (pkg/history;
	// pkg/query, tailBatch).
	historyReadBytes, usualHistoryReadBytes = (8 + 4 + 2*8 + 16 + 8 + 11) * mib, 8 * mib
	// knownEventBytes is the size of the count of an Event that metrics remember.
	knownEventBytes = 192
)

// Part is a part of the memory.
type Part struct {
	What string
	// Flags are the flags that limit it.
	Flags []string
	// Usual is its size in bytes when it is full of usual Events, Most its upper bound.
	Usual, Most int64
}

// Memory returns the parts of the memory of a process, by its role. They are rarely full at the same time.
func Memory(o *app.Options) []Part {
	parts := shared(o)
	if o.Takes() {
		parts = append(parts, taken(o)...)
	}
	if o.Observes() {
		parts = append(parts, observed(o)...)
	}
	return parts
}

// shared returns the parts that each role has.
func shared(o *app.Options) []Part {
	requests, connections := int64(o.MaxRequestsInFlight), int64(o.MaxConnections)
	unknown := max(1, 2*requests/3)
	// However large they are, a quarter of the requests in flight is the most that one counts as.
	bodies := 4 * 4 * o.Intake.MaxBodyBytes
	if !o.Takes() {
		bodies = 0
	}
	parts := []Part{
		same("the process itself", processBytes),
		{"connections", []string{"max-connections"}, min(usualConnections, connections) * app.ConnectionBytes, connections * app.MaxConnectionBytes},
		{"requests being answered", []string{"max-requests-inflight"}, requests * (requestBytes + stackBytes + kib), requests*(requestBytes+stackBytes) + max(requests*intake.RequestBytes, bodies)},
		{"requests of unknown callers", []string{"max-requests-inflight"}, unknown * kib, unknown * (unknownCallerBytes + stackBytes + intake.RequestBytes)},
		{"answers being written", nil, requests * kib, o.UnreadBytes()},
		same("credentials of callers", credentials),
		{"queries", nil, usualQueryBytes, queryBytes},
	}
	if o.TrailBytes > 0 {
		parts = append(parts, same("the trail", o.TrailBytes, "trail-bytes"))
	}
	return parts
}

// taken returns the parts of what takes and writes reports.
func taken(o *app.Options) []Part {
	p, views := &o.Pipeline, o.Intake.MaxViewBytes
	subjects := int64(p.Correlator.CacheSize)
	return []Part{
		{"bodies being decoded", []string{"max-decode-bytes"}, min(usualDecoding, o.Intake.MaxDecodeBytes), decoding(&o.Intake)},
		same("Events of batches", batchedEvents*batchedEventBytes),
		{"names that clients posted", []string{"max-client-names"}, min(int64(o.Intake.MaxNames)*viewBytes, views), views},
		same("occurrences in the queue", int64(p.QueueCapacity)*occurrenceBytes, "queue-capacity"),
		same("subjects, and their series and groups", subjects*subjectBytes, "max-subjects"),
		same("pending series", int64(p.Sink.MaxPendingSeries)*seriesBytes, "max-pending-series"),
		same("pending occurrences", p.Sink.MaxPendingBytes, "max-pending-bytes"),
		same("occurrences held for other replicas", o.HeldBytes(), "max-held-bytes", "max-pending-bytes", "max-pending-series"),
		same("those that a leader adopts", adopted(o), "max-held-bytes", "max-pending-bytes", "max-pending-series"),
		{"changes that others do not hold yet", nil, usualBacklogs, sessions * backlogBytes},
		same("totals that clients report", totals),
		same("idle series", int64(p.Sink.MaxIdleSeries)*sink.IdleSeriesBytes, "max-idle-series"),
		same("requests to the apiserver", int64(p.Sink.Concurrency)*3/2*writeBytes, "max-concurrent-writes"),
	}
}

// observed returns the parts of what observes, keeps and delivers what is stored.
func observed(o *app.Options) (parts []Part) {
	if o.HistoryBytes > 0 {
		parts = append(parts, same("observed Events", o.HistoryBytes, "history-bytes"),
			same("Events that are decoded for the history", pageBytes+versionBytes, "history-bytes"),
			Part{"what reads observed Events", []string{"history-bytes"}, usualHistoryReadBytes, historyReadBytes})
	}
	if o.ConfigFile == "" {
		return parts
	}
	return append(parts,
		same("versions that receivers have yet to read", observer.DefaultMaxBytes, "config"),
		same("Events that are decoded", max(pageBytes, fetches*versionBytes)+versionBytes, "config"),
		// One more reads for the metrics.
		Part{"what receivers read and send", []string{"config"}, usualReceivers * usualReaderBytes, (v1alpha1.MaxReceivers + 1) * readerBytes},
		Part{"groups of throttled Events", []string{"config"}, usualReceivers * delivery.MaxThrottleBytes, v1alpha1.MaxReceivers * delivery.MaxThrottleBytes},
		Part{"metrics of the configuration", []string{"config"}, usualSeries*usualSeriesOfMetricBytes + counters.MaxKnown*knownEventBytes, v1alpha1.MaxSeries*seriesOfMetricBytes + counters.MaxKnown*knownEventBytes},
	)
}

// adopted returns the memory of what a leader adopts from its holdings: of its series, and half of the rest, since it
// shares the Events.
func adopted(o *app.Options) int64 {
	held := o.HeldBytes()
	series := min(held, int64(o.Pipeline.Sink.MaxPendingSeries)*seriesBytes)
	return series + (held-series)/2
}

// decoding returns the limit, or half of it and the largest body: a body that exceeds the
// other half is decoded alone.
func decoding(o *intake.Options) int64 {
	return max(o.MaxDecodeBytes, o.MaxDecodeBytes/2+intake.MaxDecodeBytesOf(o.MaxBodyBytes))
}

func same(what string, bytes int64, flags ...string) Part { return Part{what, flags, bytes, bytes} }

// Sum returns the sums of all parts.
func Sum(parts []Part) (usual, most int64) {
	for _, p := range parts {
		usual += p.Usual
		most += p.Most
	}
	return usual, most
}

// Advice has the limits with which a container is not killed for its memory, in bytes.
type Advice struct {
	GoMemLimit, ContainerLimit int64
}

// Advise adds an eighth to the limit of the Go runtime, for garbage above it and memory that it does not count. As
// the parts are never full at the same time, the rest of the garbage has room below it.
func Advise(parts []Part) Advice {
	_, most := Sum(parts)
	soft := roundUp(most, 16*mib)
	return Advice{soft, roundUp(soft+soft/8, 32*mib)}
}

func roundUp(bytes, unit int64) int64 { return (bytes + unit - 1) / unit * unit }

// Rate has the limits of eventd's writes.
type Rate struct {
	PerSecond, Burst, AtOnce float64
	// SubjectBurst and SubjectPerHour are the limits of one source and object.
	SubjectBurst, SubjectPerHour float64
	// StoredBytes is the size of all Events in etcd, if every write is a create.
	StoredBytes float64
}

const (
	// storedEventBytes is the size of a usual Event in etcd, with eventd's annotations.
	storedEventBytes = 1.5 * kib
	// eventTTLSeconds is kube-apiserver's default of --event-ttl.
	eventTTLSeconds = 3600
)

// Writes returns the limits of o. Without a limit, a field is infinite.
func Writes(o *app.Options) Rate {
	p := &o.Pipeline
	return Rate{
		PerSecond: p.Sink.QPS, Burst: float64(p.Sink.Burst), AtOnce: float64(p.Sink.Concurrency),
		SubjectBurst: float64(p.Correlator.Burst), SubjectPerHour: p.Correlator.QPS * 3600,
		StoredBytes: p.Sink.QPS * eventTTLSeconds * storedEventBytes,
	}
}
