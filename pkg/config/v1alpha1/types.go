// Package v1alpha1 is the configuration file of eventd: rules about what clients report, receivers,
// routes to them, and metrics of what is stored.
// Load decodes, completes and validates it. A configuration that is in use is not changed.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kind and version of the file.
const (
	APIVersion = "config.eventd.io/v1alpha1"
	Kind       = "EventdConfiguration"
)

// EventdConfiguration is the content of the file.
type EventdConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Intake has the rules about what clients report to eventd. They are evaluated in order. The
	// first that matches, and is no dry run, decides. There are at most 64.
	Intake []IntakeRule `json:"intake,omitempty"`
	// Receivers are where Events are delivered. There are at most 16.
	Receivers []Receiver `json:"receivers,omitempty"`
	// Routes decide which Events a receiver gets. They are evaluated in order. The first that
	// matches ends the evaluation, unless it says continue. An Event that no route matches is
	// not delivered. Without routes, every receiver gets every Event. There are at most 256.
	Routes []Route `json:"routes,omitempty"`
	// Metrics count what is stored, whoever wrote it. There are at most 64, with at most 8000
	// series together.
	Metrics []Metric `json:"metrics,omitempty"`
}

// IntakeRule drops occurrences that clients report, or gives them another budget. Exactly one of
// drop and budget is set.
type IntakeRule struct {
	// Name identifies the rule in metrics, as the reason of what it drops, and in the output of
	// "eventd config test". It is a unique DNS label.
	Name string `json:"name"`
	// Match is a CEL expression on event, of at most 10 KiB. "true" matches every Event.
	Match string `json:"match"`
	// Drop has eventd answer as if it accepted what matches, and not write it.
	Drop bool `json:"drop,omitempty"`
	// Budget replaces --budget-burst and --budget-qps for what matches.
	Budget *Budget `json:"budget,omitempty"`
	// DryRun counts what the rule would do, and does not do it: the rules after it are evaluated
	// as if it did not match. false is the default.
	DryRun bool `json:"dryRun,omitempty"`
}

// Budget is a token bucket for the writes of one user and source about one object and type. Only
// what matches the rule uses it.
type Budget struct {
	// Burst is the maximum burst of writes, at least 1.
	Burst int32 `json:"burst"`
	// QPS is the number of writes per second after the burst: a number greater than 0, a fraction
	// such as 1/300, or unlimited.
	QPS Rate `json:"qps"`
}

// StartFrom is where a receiver without a cursor begins.
type StartFrom string

// The places where a receiver can begin.
const (
	// FromNow begins with what is stored after the receiver was added. It is the default.
	FromNow StartFrom = "Now"
	// FromOldest begins with everything that is stored.
	FromOldest StartFrom = "Oldest"
)

// Receiver is one destination. Exactly one of the destinations is set.
type Receiver struct {
	// Name identifies the receiver in routes, in metrics, and in the stored cursor: a receiver
	// with another name starts anew. It is a unique DNS label.
	Name string `json:"name"`
	// From is where a receiver without a cursor begins. Now is the default.
	From StartFrom `json:"from,omitempty"`
	// Paused stops the delivery. The cursor stays where it is. false is the default.
	Paused bool `json:"paused,omitempty"`
	// Redact lists fields that the receiver does not get, such as message or
	// metadata.annotations. The names are those of the match expressions; a single key is written
	// metadata.annotations["example.com/key"]. There are at most 64.
	Redact []string `json:"redact,omitempty"`
	// BatchSize is the maximum number of Events in a request, from 1 to 10000. 512 is the default.
	BatchSize *int32 `json:"batchSize,omitempty"`
	// Timeout limits an attempt to deliver a batch, from 100ms to 5m. 10s is the default. If a
	// batch takes several requests, another attempt goes on where it ended.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// OTLP delivers log records to an OpenTelemetry collector.
	OTLP *OTLP `json:"otlp,omitempty"`
	// CloudEvents delivers by HTTP.
	CloudEvents *CloudEvents `json:"cloudEvents,omitempty"`
	// JetStream delivers to a stream of NATS.
	JetStream *JetStream `json:"jetStream,omitempty"`
	// JSONLines writes to stdout or a file.
	JSONLines *JSONLines `json:"jsonLines,omitempty"`
}

// OTLPProtocol is a transport of OTLP.
type OTLPProtocol string

// The transports.
const (
	OTLPGRPC OTLPProtocol = "grpc"
	OTLPHTTP OTLPProtocol = "http"
)

// OTLP delivers log records to an OpenTelemetry collector, or to anything else that accepts OTLP.
type OTLP struct {
	// Protocol is grpc or http. grpc is the default.
	Protocol OTLPProtocol `json:"protocol,omitempty"`
	// Endpoint is HOST:PORT for grpc, and a URL for http, usually one that ends in /v1/logs.
	Endpoint string `json:"endpoint"`
	// Compression is gzip or none. gzip is the default.
	Compression string `json:"compression,omitempty"`
	// Connection is how the endpoint is reached. For http, the scheme of the URL says whether with TLS.
	Connection `json:",inline"`
}

// CloudEvents delivers CloudEvents 1.0 by HTTP.
type CloudEvents struct {
	// URL is an http or https URL.
	URL string `json:"url"`
	// Batched sends a JSON array of Events in a request (content type
	// application/cloudevents-batch+json). Else, which is the default, each request has one.
	Batched bool `json:"batched,omitempty"`
	// Connection is how the URL is reached. Its scheme says whether with TLS.
	Connection `json:",inline"`
}

// JetStream delivers to a stream of NATS. The message ID is that of the version, so the stream
// removes repetitions within its duplicate window.
type JetStream struct {
	// URL is that of a server, such as tls://nats:4222, or of several, separated by commas.
	URL string `json:"url"`
	// Subject is the subject of the messages, without wildcards.
	Subject string `json:"subject"`
	// CredentialsFile is a file of NATS credentials.
	CredentialsFile string `json:"credentialsFile,omitempty"`
	// TLS is how the server is verified.
	TLS *TLS `json:"tls,omitempty"`
}

// JSONLines writes one JSON object per line.
type JSONLines struct {
	// Path is the file, which others rotate. If it is empty, lines go to stdout.
	Path string `json:"path,omitempty"`
}

// Connection is what connections by HTTP and gRPC have in common.
type Connection struct {
	// Insecure connects without TLS. It excludes tls. false is the default.
	Insecure bool `json:"insecure,omitempty"`
	// TLS is how the server is verified, and how the client authenticates.
	TLS *TLS `json:"tls,omitempty"`
	// Headers are sent with each request, in gRPC as metadata. There are at most 16.
	Headers []Header `json:"headers,omitempty"`
	// BearerTokenFile has the token of the header Authorization. It is read again when it changes.
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
}

// TLS is the configuration of a client. Its files are read again when they change.
type TLS struct {
	// CAFile verifies the server. Without it, the CAs of the system do.
	CAFile string `json:"caFile,omitempty"`
	// CertFile authenticates the client, with KeyFile.
	CertFile string `json:"certFile,omitempty"`
	// KeyFile has the private key of CertFile.
	KeyFile string `json:"keyFile,omitempty"`
	// ServerName replaces the host of the address in the verification.
	ServerName string `json:"serverName,omitempty"`
}

// Header is sent with each request. One of value and file is set.
type Header struct {
	// Name is that of the header. It is unique, whatever its case.
	Name string `json:"name"`
	// Value is what is sent.
	Value string `json:"value,omitempty"`
	// File has the value. It is read again when it changes.
	File string `json:"file,omitempty"`
}

// Route sends the Events that match to receivers.
type Route struct {
	// Name identifies the route in metrics and in the output of "eventd config test". It is a
	// unique DNS label.
	Name string `json:"name"`
	// Match is a CEL expression on event, of at most 10 KiB. Without one, every Event matches.
	Match string `json:"match,omitempty"`
	// Receivers are names. Without any, the Events that match are not delivered.
	Receivers []string `json:"receivers,omitempty"`
	// Continue evaluates the routes after this one too. false is the default.
	Continue bool `json:"continue,omitempty"`
	// Throttle limits what each receiver gets by this route.
	Throttle *Throttle `json:"throttle,omitempty"`
}

// Throttle limits how often a receiver gets Events of a group. The first one is delivered at once.
// Those within the interval after it are not: when it ends, a summary is, which is the latest of
// them with their number, and which begins another interval.
type Throttle struct {
	// Interval is from 1s to 24h.
	Interval *metav1.Duration `json:"interval"`
	// By lists the fields that make a group: fields that are strings, in the names of match
	// expressions, and single keys of labels and annotations. There are at most 8.
	// metadata.namespace, involvedObject.uid and reason are the default; for an object without a uid,
	// its API group, kind, namespace and name stand for it. Without
	// metadata.namespace, who may create Events in one namespace can take the place of those of
	// another one.
	By []string `json:"by,omitempty"`
}

// Metric counts occurrences of the Events that match: what each version adds to the count of its
// Event.
type Metric struct {
	// Name is the middle of eventd_rule_NAME_total. It is unique, and has lower-case letters,
	// digits and _.
	Name string `json:"name"`
	// Help is the description of the metric, of at most 1 KiB.
	Help string `json:"help,omitempty"`
	// Match is a CEL expression on event, as in routes. Without one, every Event matches.
	Match string `json:"match,omitempty"`
	// Labels are fields by the name of a label. The fields are those that throttle.by can have.
	// There are at most 8.
	Labels map[string]string `json:"labels,omitempty"`
	// MaxSeries is the maximum number of combinations of values of labels, from 1 to 8000. What
	// has further ones counts with the value other in every label. 500 is the default.
	MaxSeries *int32 `json:"maxSeries,omitempty"`
}
