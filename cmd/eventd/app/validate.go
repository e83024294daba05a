package app

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/pkg/trail"
)

// Validate returns all violations as one error of one line. Each names its flag.
func (o *Options) Validate() error {
	var v violations
	o.validateRole(&v)
	o.validateLifecycle(&v)
	if o.LeaderElect {
		o.LeaderElection.validate(&v)
	}
	o.validateServing(&v)
	o.validateServingCA(&v)
	o.validateEndpoint(&v)
	o.validateIntake(&v)
	o.validateCorrelation(&v)
	o.validateWriting(&v)
	o.validateDelivery(&v)
	o.validateQueries(&v)
	o.validateVerbosity(&v)
	for _, err := range logsapi.Validate(o.Logs, nil, nil) {
		v.add("%s: %s", loggingFlag(err.Field), err.ErrorBody())
	}
	return v.err()
}

// loggingFlag returns the flag of a field of the logging configuration.
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

func (o *Options) validateLifecycle(v *violations) {
	// A shorter period cannot be divided among the steps of a shutdown.
	atLeast(v, "--shutdown-grace-period", o.ShutdownGracePeriod, time.Millisecond)
	v.addIf(o.ShutdownDelay < 0, "--shutdown-delay-duration must not be negative, got %s", o.ShutdownDelay)
	v.addIf(o.ShutdownDelay > 0 && o.ShutdownDelay >= o.ShutdownGracePeriod,
		"--shutdown-delay-duration must be less than --shutdown-grace-period (%s), got %s", o.ShutdownGracePeriod, o.ShutdownDelay)
}

func (o *Options) validateQueries(v *violations) {
	v.addIf(o.HistoryBytes != 0 && o.HistoryBytes < history.MinMaxBytes,
		"--history-bytes must be 0, or at least %s, got %s", bytesValue(new(int64(history.MinMaxBytes))), bytesValue(&o.HistoryBytes))
	v.addIf(o.TrailBytes != 0 && o.TrailBytes < trail.MinMaxBytes,
		"--trail-bytes must be 0, or at least %s, got %s", bytesValue(new(int64(trail.MinMaxBytes))), bytesValue(&o.TrailBytes))
}

func (l *LeaderElection) validate(v *violations) {
	l.validateTiming(v)
	if l.ResourceName != "" {
		for _, message := range validation.IsDNS1123Subdomain(l.ResourceName) {
			v.add("--leader-elect-resource-name: %q: %s", l.ResourceName, message)
		}
	}
	for _, message := range validation.IsDNS1123Label(l.ResourceNamespace) {
		v.add("--leader-elect-resource-namespace: %q: %s", l.ResourceNamespace, message)
	}
	v.addIf(l.PeerTokenFile == "", "--peer-token-file must not be empty")
	v.addIf(l.PeerAudience == "", "--peer-audience must not be empty")
	if _, _, err := splitAdvertiseAddress(l.AdvertiseAddress); err != nil {
		v.add("--advertise-address %q: %v", l.AdvertiseAddress, err)
	}
}

func (l *LeaderElection) validateTiming(v *violations) {
	v.addIf(l.LeaseDuration <= 0 || l.LeaseDuration%time.Second != 0 || l.LeaseDuration/time.Second > math.MaxInt32,
		"--leader-elect-lease-duration must be a whole number of seconds, and at least 1s, got %s", l.LeaseDuration)
	// A shorter period rounds other times to 0.
	atLeast(v, "--leader-elect-retry-period", l.RetryPeriod, time.Millisecond)
	v.addIf(l.LeaseDuration <= l.RenewDeadline, "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline (%s), got %s", l.RenewDeadline, l.LeaseDuration)
	v.addIf(float64(l.RenewDeadline) <= election.JitterFactor*float64(l.RetryPeriod),
		"--leader-elect-renew-deadline must be greater than %v times --leader-elect-retry-period (%s), got %s", election.JitterFactor, l.RetryPeriod, l.RenewDeadline)
}

// splitAdvertiseAddress splits HOST or HOST:PORT. Missing parts are empty.
func splitAdvertiseAddress(address string) (host, port string, err error) {
	switch inner, bracketed := strings.CutPrefix(address, "["); {
	case address == "":
		return "", "", nil
	case net.ParseIP(address) != nil:
		host = address
	case bracketed && net.ParseIP(strings.TrimSuffix(inner, "]")) != nil:
		host = strings.TrimSuffix(inner, "]")
	case strings.Contains(address, ":"):
		if host, port, err = net.SplitHostPort(address); err != nil {
			return "", "", errors.New("must be HOST or HOST:PORT")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", fmt.Errorf("the port must be between 1 and %d", math.MaxUint16)
		}
	default:
		host = address
	}
	return host, port, checkAdvertisedHost(host)
}

func checkAdvertisedHost(host string) error {
	ip := net.ParseIP(host)
	if ip == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return errors.New("the host must be an IP address or a DNS name")
	}
	if ip.IsUnspecified() {
		return errors.New("the host must be reachable from other replicas, not unspecified")
	}
	return nil
}

func (o *Options) validateServing(v *violations) {
	serving := o.SecureServing
	v.addIf(o.LeaderElect && serving.DisableHTTP2Serving, "--disable-http2-serving must not be given with --leader-elect: replicas forward requests over HTTP/2")
	// One address may use a third, which another replica needs.
	atLeast(v, "--max-connections", o.MaxConnections, 100)
	v.addIf(serving.BindAddress == nil, "--bind-address must be an IP address")
	// SecureServing.Validate would accept 0 as "do not serve".
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

// maxVerbosity is the highest level at which client-go logs no bodies. From 8 on it
// logs TokenReviews, with the tokens of clients and of other replicas. Headers are
// logged from 7 on, with credentials masked.
const maxVerbosity = 7

func (o *Options) validateVerbosity(v *violations) {
	v.addIf(o.Logs.Verbosity > maxVerbosity && o.Logs.Verbosity <= math.MaxInt32, "--v must be at most %d, got %d: above it the tokens of clients are logged", maxVerbosity, o.Logs.Verbosity)
	for _, item := range o.Logs.VModule {
		v.addIf(item.Verbosity > maxVerbosity, "--vmodule must have levels of at most %d, got %s=%d: above it the tokens of clients are logged", maxVerbosity, item.FilePattern, item.Verbosity)
	}
}

// validateEndpoint checks that the file that eventd writes and removes is not one of its
// kubeconfigs.
func (o *Options) validateEndpoint(v *violations) {
	if o.EndpointKubeconfig == "" {
		return
	}
	for _, given := range []struct{ flag, file string }{
		{"--kubeconfig", o.Kubeconfig},
		{"--authentication-kubeconfig", o.Authentication.RemoteKubeConfigFile},
		{"--authorization-kubeconfig", o.Authorization.RemoteKubeConfigFile},
	} {
		v.addIf(isSameFile(o.EndpointKubeconfig, given.file),
			"--endpoint-kubeconfig must not be the file of %s: eventd writes and removes it", given.flag)
	}
}

func isSameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (o *Options) validateIntake(v *violations) {
	atLeast(v, "--max-request-body-bytes", o.Intake.MaxBodyBytes, 1)
	atLeast(v, "--max-decode-bytes", o.Intake.MaxDecodeBytes, 1)
	atLeast(v, "--max-client-names", o.Intake.MaxNames, 1)
	atLeast(v, "--max-requests-inflight", o.MaxRequestsInFlight, 1)
	v.addIf(!(o.AccessReviewQPS > 0), `--access-review-qps must be greater than 0, or "unlimited", got %v`, o.AccessReviewQPS)
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
	// Negated, so that NaN is invalid too.
	v.addIf(!(s.QPS > 0), `--kube-api-qps must be greater than 0, or "unlimited", got %v`, s.QPS)
	atLeast(v, "--kube-api-burst", s.Burst, 1)
	v.addIf(s.RequestTimeout <= 0, "--write-timeout must be greater than 0, got %s", s.RequestTimeout)
	v.addIf(s.RetryBaseDelay <= 0, "--retry-base-delay must be greater than 0, got %s", s.RetryBaseDelay)
	v.addIf(s.RetryMaxDelay < s.RetryBaseDelay, "--retry-max-delay must not be less than --retry-base-delay (%s), got %s", s.RetryBaseDelay, s.RetryMaxDelay)
	v.addIf(s.RetryFor <= 0, "--retry-for must be greater than 0, got %s", s.RetryFor)
	atLeast(v, "--max-pending-series", s.MaxPendingSeries, 1)
	atLeast(v, "--max-pending-bytes", s.MaxPendingBytes, 1)
	v.addIf(o.MaxHeldBytes < 0, "--max-held-bytes must not be negative, got %d", o.MaxHeldBytes)
	v.addIf(s.ForbiddenFor < 0, "--forbidden-for must not be negative, got %s", s.ForbiddenFor)
	atLeast(v, "--max-idle-series", s.MaxIdleSeries, 1)
}

// maxClusterName limits the name of the cluster, which is in every record.
const maxClusterName = 253

func (o *Options) validateDelivery(v *violations) {
	name := o.ClusterName
	unprintable := strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
	v.addIf(unprintable || name != strings.TrimSpace(name) || len(name) > maxClusterName,
		"--cluster-name must be printable, without spaces at its ends, and at most %d bytes, got %q", maxClusterName, name)
}

func atLeast[N cmp.Ordered](v *violations, flag string, got, least N) {
	v.addIf(got < least, "%s must be at least %v, got %v", flag, least, got)
}

// violations is a list of errors.
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

// oneLine removes line breaks, which may be in quoted values.
func oneLine(message string) string {
	return strings.Join(strings.FieldsFunc(message, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
