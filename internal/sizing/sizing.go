// Package sizing says how much memory an eventd may take, and how much it may
// ask of an apiserver, with given options. It is for those who run it, and for
// the tests of what deploy/ gives it.
package sizing

import (
	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/intake"
)

const (
	kib = 1 << 10
	mib = 1 << 20

	// processBytes is what a process takes that has nothing to do.
	processBytes = 32 * mib
	// requestBytes is what a request with a usual Event takes, beside its body.
	requestBytes = 4 * kib
	// strangerBytes is the same while it waits for the review of its caller.
	strangerBytes = 16 * kib
	// copiesOfABody are the one that was read, the one that the handler has read of
	// it, the one that was decoded, and what reading left over.
	// TestRequestsThatWaitTakeNoMoreThanIsSaid measures them, with the headers.
	copiesOfABody = 4
	// unwrittenAnswers is a limit of pkg/intake: maxUnwrittenBytes. So is credentials,
	// of the tokens and certificates that were accepted, and rejected, lately.
	unwrittenAnswers = 32 * mib
	credentials      = 5 * mib
	// usualConnections is a cluster in which so many clients report to one replica.
	usualConnections = 1000
	// usualDecoding is for as many usual bodies as are decoded at once.
	usualDecoding = 4 * mib
	// viewBytes is what is remembered of a usual Event that a client has posted:
	// pkg/intake, Options.MaxViewBytes.
	viewBytes = 2 * kib
	// occurrenceBytes is a usual occurrence in a queue: pkg/broadcaster,
	// DefaultCapacity.
	occurrenceBytes = 512
	// A subject with one series, of a tenant that has no other, and each series and
	// group that it may have at most: pkg/correlator, BenchmarkMemory.
	subjectBytes, subjectSeriesBytes = 420, 256
	// seriesBytes is what a series in a sink takes, without what it owes:
	// pkg/sink, Options.MaxIdleSeries.
	seriesBytes = 1 * kib
	// writeBytes is what a request to the apiserver takes: its goroutines, and
	// its part of a connection.
	writeBytes = 32 * kib
)

// Part is one thing that takes memory.
type Part struct {
	What string
	// Flags are those that bound it.
	Flags []string
	// Usual is what it takes when it is full of usual Events, and Most what it
	// takes whatever it is full of.
	Usual, Most int64
}

// Memory returns what takes memory. Each part is bounded by itself; they are
// rarely full at once.
func Memory(o *app.Options) []Part {
	p, requests := &o.Pipeline, int64(o.MaxRequestsInFlight)
	bodies := requests * copiesOfABody * o.Intake.MaxBodyBytes
	views := o.Intake.MaxViewBytes
	connections := int64(o.MaxConnections)
	subjects := int64(p.Correlator.CacheSize)
	subjectMost := subjectBytes + int64(p.Correlator.MaxSeries)*subjectSeriesBytes
	return []Part{
		same("the process itself", processBytes),
		{"connections", []string{"max-connections"}, min(usualConnections, connections) * app.ConnectionBytes, connections * app.MaxConnectionBytes},
		{"requests being answered", []string{"max-requests-inflight", "max-request-body-bytes"}, requests * (requestBytes + kib), requests*(requestBytes+intake.HeaderBytes) + bodies},
		// As many requests of callers that are not known may be in flight beside those
		// of known ones. Nothing reads their bodies.
		{"requests of strangers", []string{"max-requests-inflight"}, requests * kib, requests * (strangerBytes + intake.HeaderBytes + intake.UploadBufferBytes)},
		{"bodies being decoded", []string{"max-decode-bytes"}, min(usualDecoding, o.Intake.MaxDecodeBytes), decoding(&o.Intake)},
		{"answers being written", nil, requests * kib, unwrittenAnswers},
		same("credentials of callers", credentials),
		{"names that clients posted", []string{"max-client-names"}, min(int64(o.Intake.MaxNames)*viewBytes, views), views},
		same("occurrences in the queue", int64(p.QueueCapacity)*occurrenceBytes, "queue-capacity"),
		{"subjects, and their series and groups", []string{"max-subjects", "max-series-per-subject"}, subjects * subjectBytes, subjects * subjectMost},
		same("series that are owed", int64(p.Sink.MaxPendingSeries)*seriesBytes, "max-pending-series"),
		same("occurrences that are owed", p.Sink.MaxPendingBytes, "max-pending-bytes"),
		same("series that are quiet", int64(p.Sink.MaxIdleSeries)*seriesBytes, "max-idle-series"),
		same("requests to the apiserver", int64(p.Sink.Concurrency)*writeBytes, "max-concurrent-writes"),
	}
}

// decoding is the budget, or half of it and one body that takes more than the other
// half: each body may be decoded, alone.
func decoding(o *intake.Options) int64 {
	return max(o.MaxDecodeBytes, o.MaxDecodeBytes/2+intake.MaxDecodeBytesOf(o.MaxBodyBytes))
}

func same(what string, bytes int64, flags ...string) Part { return Part{what, flags, bytes, bytes} }

// Sum is what all parts take together.
func Sum(parts []Part) (usual, most int64) {
	for _, p := range parts {
		usual += p.Usual
		most += p.Most
	}
	return usual, most
}

// Advice is what to give to a container so that it is not killed for its memory,
// whatever eventd is sent.
type Advice struct {
	GoMemLimit, ContainerLimit int64
}

// Advise leaves an eighth to what is not collected yet, and another one to what
// the Go runtime does not count; both are rounded up to 32 MiB.
func Advise(parts []Part) Advice {
	_, most := Sum(parts)
	soft := roundUp(most + most/8)
	return Advice{soft, roundUp(soft + soft/8)}
}

func roundUp(bytes int64) int64 {
	const unit = 32 * mib
	return (bytes + unit - 1) / unit * unit
}

// Rate is how much an eventd writes, at most.
type Rate struct {
	PerSecond, Burst, AtOnce float64
	// SubjectBurst and SubjectPerHour are for one source and one object.
	SubjectBurst, SubjectPerHour float64
	// StoredBytes is what the Events take in etcd if all writes are creates, for
	// as long as Events are kept.
	StoredBytes float64
}

const (
	// storedEventBytes is a usual Event in etcd, with eventd's annotations.
	storedEventBytes = 1.5 * kib
	// eventTTLSeconds is kube-apiserver's default of --event-ttl.
	eventTTLSeconds = 3600
)

// Writes returns the rate of writes that o allows. What is unlimited is infinite.
func Writes(o *app.Options) Rate {
	p := &o.Pipeline
	return Rate{
		PerSecond: p.Sink.QPS, Burst: float64(p.Sink.Burst), AtOnce: float64(p.Sink.Concurrency),
		SubjectBurst: float64(p.Correlator.Burst), SubjectPerHour: p.Correlator.QPS * 3600,
		StoredBytes: p.Sink.QPS * eventTTLSeconds * storedEventBytes,
	}
}
