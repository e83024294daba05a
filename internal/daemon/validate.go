package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/sink"
)

// Validate returns everything that is wrong with o as one error of one line,
// in the words of the command line.
func (o *Options) Validate() error {
	var v violations
	if o.LeaderElect {
		v.add("--leader-elect: leader election is not built yet; --leader-elect=false is the only mode")
	}
	v.addIf(o.ShutdownGracePeriod <= 0, "--shutdown-grace-period must be greater than 0, got %s", o.ShutdownGracePeriod)
	o.validateServing(&v)
	o.validateIntake(&v)
	o.validateCorrelation(&v)
	o.validateWriting(&v)
	for _, err := range logsapi.Validate(o.Logs, nil, nil) {
		v.add("%s: %s", loggingFlag(err.Field), err.ErrorBody())
	}
	return v.err()
}

// loggingFlag is the flag of a field of the logging configuration.
func loggingFlag(field string) string {
	switch field {
	case "format":
		return "--logging-format"
	case "flushFrequency":
		return "--log-flush-frequency"
	case "verbosity":
		return "-v"
	default:
		return "logging " + field
	}
}

func (o *Options) validateServing(v *violations) {
	serving := o.SecureServing
	v.addIf(serving.BindAddress == nil, "--bind-address must be an IP address")
	// Not the options' own check of the port, for which 0 means "do not serve".
	v.addIf(serving.BindPort < 0 || serving.BindPort > math.MaxUint16, "--secure-port must be between 0 and %d, got %d", math.MaxUint16, serving.BindPort)
	pair := serving.ServerCert.CertKey
	v.addIf((pair.CertFile == "") != (pair.KeyFile == ""), "--tls-cert-file and --tls-private-key-file must be given together")
	v.addIf(serving.HTTP2MaxStreamsPerConnection < 0, "--http2-max-streams-per-connection must not be negative, got %d", serving.HTTP2MaxStreamsPerConnection)
	if _, err := cliflag.TLSVersion(serving.MinTLSVersion); err != nil {
		v.add("--tls-min-version: %v", err)
	}
	if _, err := cliflag.TLSCipherSuites(serving.CipherSuites); err != nil {
		v.add("--tls-cipher-suites: %v", err)
	}
	if _, err := cliflag.TLSCurvePreferences(serving.CurvePreferences); err != nil {
		v.add("--tls-curve-preferences: %v", err)
	}
	for _, err := range append(o.Authentication.Validate(), o.Authorization.Validate()...) {
		v.add("%v", err)
	}
}

func (o *Options) validateIntake(v *violations) {
	atLeast(v, "--max-request-body-bytes", o.Intake.MaxBodyBytes, 1)
	atLeast(v, "--max-client-names", o.Intake.MaxNames, 1)
	atLeast(v, "--max-requests-inflight", o.MaxRequestsInFlight, 1)
}

func (o *Options) validateCorrelation(v *violations) {
	c := &o.Pipeline.Correlator
	atLeast(v, "--budget-burst", c.Burst, 1)
	v.addIf(!(c.QPS > 0), `--budget-qps must be greater than 0, or "unlimited", got %v`, c.QPS)
	atLeast(v, "--aggregate-max-messages", c.MaxMessages, 1)
	v.addIf(c.Interval <= 0, "--aggregate-interval must be greater than 0, got %s", c.Interval)
	v.addIf(c.Heartbeat <= 0 || c.Heartbeat > correlator.MaxHeartbeat, "--series-heartbeat must be greater than 0 and at most %s, got %s", correlator.MaxHeartbeat, c.Heartbeat)
	atLeast(v, "--max-subjects", c.CacheSize, 1)
	atLeast(v, "--max-series-per-subject", c.MaxSeries, 1)
}

func (o *Options) validateWriting(v *violations) {
	s := &o.Pipeline.Sink
	atLeast(v, "--queue-capacity", o.Pipeline.QueueCapacity, 1)
	v.addIf(s.Concurrency < 1 || s.Concurrency > sink.MaxConcurrency, "--max-concurrent-writes must be between 1 and %d, got %d", sink.MaxConcurrency, s.Concurrency)
	atLeast(v, "--min-concurrent-writes", s.MinConcurrency, 1)
	v.addIf(s.SlowAnswer <= 0, "--slow-answer must be greater than 0, got %s", s.SlowAnswer)
	v.addIf(s.NamespaceRefusedFor < 0, "--namespace-refused-for must not be negative, got %s", s.NamespaceRefusedFor)
	// Negated, so that NaN is refused too.
	v.addIf(!(s.QPS > 0), `--kube-api-qps must be greater than 0, or "unlimited", got %v`, s.QPS)
	atLeast(v, "--kube-api-burst", s.Burst, 1)
	v.addIf(s.RequestTimeout <= 0, "--write-timeout must be greater than 0, got %s", s.RequestTimeout)
	v.addIf(s.RetryBaseDelay <= 0, "--retry-base-delay must be greater than 0, got %s", s.RetryBaseDelay)
	v.addIf(s.RetryMaxDelay < s.RetryBaseDelay, "--retry-max-delay must not be less than --retry-base-delay (%s), got %s", s.RetryBaseDelay, s.RetryMaxDelay)
	v.addIf(s.RetryFor <= 0, "--retry-for must be greater than 0, got %s", s.RetryFor)
	atLeast(v, "--max-pending-series", s.MaxPendingSeries, 1)
	atLeast(v, "--max-pending-bytes", s.MaxPendingBytes, 1)
	v.addIf(s.ForbiddenFor < 0, "--forbidden-for must not be negative, got %s", s.ForbiddenFor)
	atLeast(v, "--max-idle-series", s.MaxIdleSeries, 1)
}

func atLeast[N cmp.Ordered](v *violations, flag string, got, least N) {
	v.addIf(got < least, "%s must be at least %v, got %v", flag, least, got)
}

// violations collects what is wrong.
type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, oneLine(fmt.Sprintf(format, args...)))
}

func (v *violations) addIf(wrong bool, format string, args ...any) {
	if wrong {
		v.add(format, args...)
	}
}

func (v violations) err() error {
	if len(v) == 0 {
		return nil
	}
	return errors.New(strings.Join(v, "; "))
}

// oneLine keeps a message from being broken over several lines by what it
// quotes.
func oneLine(message string) string {
	return strings.Join(strings.FieldsFunc(message, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
