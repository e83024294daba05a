package app

import (
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/eventd/eventd/pkg/election"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := NewOptions().Validate(); err != nil {
		t.Error(err)
	}
}

// flagNames returns all flags as errors name them: "--name", "-v", or quoted.
func flagNames() (names []string) {
	sets := NewOptions().Flags()
	for _, fs := range sets.FlagSets {
		fs.VisitAll(func(f *pflag.Flag) {
			if f.Name == "v" {
				names = append(names, "-v")
				return
			}
			names = append(names, "--"+f.Name, `"`+f.Name+`"`)
		})
	}
	return names
}

func TestErrorsOfOptionsNameTheFlag(t *testing.T) {
	flags := flagNames()
	for _, test := range []struct {
		name  string
		spoil func(*Options)
		want  string
	}{
		{"grace period", func(o *Options) { o.ShutdownGracePeriod = 0 }, "--shutdown-grace-period must be at least 1ms, got 0s"},
		{"negative delay", func(o *Options) { o.ShutdownDelay = -1 }, "--shutdown-delay-duration must not be negative, got -1ns"},
		{"delay as long as the grace period", func(o *Options) { o.ShutdownDelay = o.ShutdownGracePeriod }, "--shutdown-delay-duration must be less than --shutdown-grace-period (30s), got 30s"},

		{"lease duration", func(o *Options) { o.LeaderElection.LeaseDuration = 15*time.Second + 1 }, "--leader-elect-lease-duration must be a whole number of seconds, and at least 1s, got 15.000000001s"},
		{"renew deadline after the lease duration", func(o *Options) { o.LeaderElection.RenewDeadline = 15 * time.Second }, "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline (15s), got 15s"},
		{"retry period too long for the renew deadline", func(o *Options) { o.LeaderElection.RetryPeriod = 9 * time.Second }, "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period (9s), got 10s"},
		{"no retry period", func(o *Options) { o.LeaderElection.RetryPeriod = 0 }, "--leader-elect-retry-period must be at least 1ms, got 0s"},
		{"times too short to divide", func(o *Options) {
			o.LeaderElection.RenewDeadline, o.LeaderElection.RetryPeriod = 3, 2
		}, "--leader-elect-retry-period must be at least 1ms, got 2ns"},
		{"name of the lease", func(o *Options) { o.LeaderElection.ResourceName = "Event D" }, `--leader-elect-resource-name: "Event D": a lowercase RFC 1123 subdomain`},
		{"namespace of the lease", func(o *Options) { o.LeaderElection.ResourceNamespace = "kube.system" }, `--leader-elect-resource-namespace: "kube.system": must not contain dots`},
		{"no token file", func(o *Options) { o.LeaderElection.PeerTokenFile = "" }, "--peer-token-file must not be empty"},
		{"no audience", func(o *Options) { o.LeaderElection.PeerAudience = "" }, "--peer-audience must not be empty"},
		{"advertised port", func(o *Options) { o.LeaderElection.AdvertiseAddress = "web:0" }, `--advertise-address "web:0": the port must be between 1 and 65535`},
		{"advertised host", func(o *Options) { o.LeaderElection.AdvertiseAddress = ":443" }, `--advertise-address ":443": the host must be an IP address or a DNS name`},
		{"advertised address", func(o *Options) { o.LeaderElection.AdvertiseAddress = "a:b:c" }, `--advertise-address "a:b:c": must be HOST or HOST:PORT`},
		{"advertised unspecified address", func(o *Options) { o.LeaderElection.AdvertiseAddress = "0.0.0.0" }, `--advertise-address "0.0.0.0": the host must be reachable from other replicas`},
		{"advertised unspecified IPv6 address", func(o *Options) { o.LeaderElection.AdvertiseAddress = "[::]:443" }, `--advertise-address "[::]:443": the host must be reachable from other replicas`},
		{"brackets about a name", func(o *Options) { o.LeaderElection.AdvertiseAddress = "[web]" }, `--advertise-address "[web]": the host must be an IP address or a DNS name`},

		{"replicas without HTTP/2", func(o *Options) { o.SecureServing.DisableHTTP2Serving = true }, "--disable-http2-serving must not be given with --leader-elect: "},
		{"connections", func(o *Options) { o.MaxConnections = 99 }, "--max-connections must be at least 100, got 99"},
		{"no address", func(o *Options) { o.SecureServing.BindAddress = nil }, "--bind-address must be an IP address"},
		{"negative port", func(o *Options) { o.SecureServing.BindPort = -1 }, "--secure-port must be between 0 and 65535, got -1"},
		{"port too large", func(o *Options) { o.SecureServing.BindPort = 65536 }, "--secure-port must be between 0 and 65535, got 65536"},
		{"certificate without key", func(o *Options) { o.SecureServing.ServerCert.CertKey.CertFile = "a.crt" }, "--tls-cert-file and --tls-private-key-file must be given together"},
		{"key without certificate", func(o *Options) { o.SecureServing.ServerCert.CertKey.KeyFile = "a.key" }, "--tls-cert-file and --tls-private-key-file must be given together"},
		{"endpoint file is the kubeconfig", func(o *Options) { o.Kubeconfig, o.EndpointKubeconfig = "a", "./a" }, "--endpoint-kubeconfig must not be the file of --kubeconfig: "},
		{"endpoint file is another kubeconfig", func(o *Options) {
			o.Authorization.RemoteKubeConfigFile, o.EndpointKubeconfig = "a", "a"
		}, "--endpoint-kubeconfig must not be the file of --authorization-kubeconfig: "},
		{"endpoint file is the kubeconfig under another name", func(o *Options) {
			o.Kubeconfig, o.EndpointKubeconfig = "validate.go", "../app/validate.go"
		}, "--endpoint-kubeconfig must not be the file of --kubeconfig: "},
		{"streams", func(o *Options) { o.SecureServing.HTTP2MaxStreamsPerConnection = -1 }, "--http2-max-streams-per-connection must not be negative, got -1"},
		{"TLS version", func(o *Options) { o.SecureServing.MinTLSVersion = "1.2" }, `--tls-min-version: unknown tls version "1.2"`},
		{"cipher suite", func(o *Options) { o.SecureServing.CipherSuites = []string{"ROT13"} }, "--tls-cipher-suites: Cipher suite ROT13"},
		{"curve", func(o *Options) { o.SecureServing.CurvePreferences = []int32{-1} }, "--tls-curve-preferences: "},
		{"empty header", func(o *Options) { o.Authentication.RequestHeader.UsernameHeaders = []string{" "} }, "requestheader-username-headers"},
		{"attempts of a TokenReview", func(o *Options) { o.Authentication.WebhookRetryBackoff.Steps = 0 }, "webhook retry"},
		{"attempts of a SubjectAccessReview", func(o *Options) { o.Authorization.WebhookRetryBackoff.Steps = 0 }, "webhook retry"},

		{"body size", func(o *Options) { o.Intake.MaxBodyBytes = 0 }, "--max-request-body-bytes must be at least 1, got 0"},
		{"decode bytes", func(o *Options) { o.Intake.MaxDecodeBytes = 0 }, "--max-decode-bytes must be at least 1, got 0"},
		{"verbosity", func(o *Options) { o.Logs.Verbosity = 8 }, "--v must be at most 7, got 8: above it the tokens of clients are logged"},
		{"verbosity of a file", func(o *Options) {
			o.Logs.VModule = logsapi.VModuleConfiguration{{FilePattern: "request", Verbosity: 8}}
		}, "--vmodule must have levels of at most 7, got request=8"},
		{"client names", func(o *Options) { o.Intake.MaxNames = 0 }, "--max-client-names must be at least 1, got 0"},
		{"requests in flight", func(o *Options) { o.MaxRequestsInFlight = 0 }, "--max-requests-inflight must be at least 1, got 0"},

		{"budget's burst", func(o *Options) { o.Pipeline.Correlator.Burst = 0 }, "--budget-burst must be at least 1, got 0"},
		{"budget's rate", func(o *Options) { o.Pipeline.Correlator.QPS = 0 }, `--budget-qps must be greater than 0, or "unlimited", got 0`},
		{"messages", func(o *Options) { o.Pipeline.Correlator.MaxMessages = 0 }, "--aggregate-max-messages must be at least 1, got 0"},
		{"interval", func(o *Options) { o.Pipeline.Correlator.Interval = 0 }, "--aggregate-interval must be greater than 0, got 0s"},
		{"heartbeat", func(o *Options) { o.Pipeline.Correlator.Heartbeat = 0 }, "--series-heartbeat must be greater than 0 and at most 24h0m0s, got 0s"},
		{"subjects", func(o *Options) { o.Pipeline.Correlator.CacheSize = 0 }, "--max-subjects must be at least 1, got 0"},
		{"series of a subject", func(o *Options) { o.Pipeline.Correlator.MaxSeries = 0 }, "--max-series-per-subject must be at least 1, got 0"},

		{"queue", func(o *Options) { o.Pipeline.QueueCapacity = 0 }, "--queue-capacity must be at least 1, got 0"},
		{"zero rate", func(o *Options) { o.Pipeline.Sink.QPS = 0 }, `--kube-api-qps must be greater than 0, or "unlimited", got 0`},
		{"negative rate", func(o *Options) { o.Pipeline.Sink.QPS = -1 }, `--kube-api-qps must be greater than 0, or "unlimited", got -1`},
		{"NaN rate", func(o *Options) { o.Pipeline.Sink.QPS = math.NaN() }, `--kube-api-qps must be greater than 0, or "unlimited", got NaN`},
		{"burst", func(o *Options) { o.Pipeline.Sink.Burst = 0 }, "--kube-api-burst must be at least 1, got 0"},
		{"concurrency", func(o *Options) { o.Pipeline.Sink.Concurrency = 0 }, "--max-concurrent-writes must be between 1 and 10000, got 0"},
		{"too much concurrency", func(o *Options) { o.Pipeline.Sink.Concurrency = 50_000_000 }, "--max-concurrent-writes must be between 1 and 10000, got 50000000"},
		{"minimum concurrency", func(o *Options) { o.Pipeline.Sink.MinConcurrency = 0 }, "--min-concurrent-writes must be at least 1, got 0"},
		{"slow answer", func(o *Options) { o.Pipeline.Sink.SlowAnswer = 0 }, "--slow-answer must be greater than 0, got 0s"},
		{"refused namespace", func(o *Options) { o.Pipeline.Sink.NamespaceRefusedFor = -1 }, "--namespace-refused-for must not be negative, got -1ns"},
		{"pending bytes", func(o *Options) { o.Pipeline.Sink.MaxPendingBytes = 0 }, "--max-pending-bytes must be at least 1, got 0"},
		{"forbidden for", func(o *Options) { o.Pipeline.Sink.ForbiddenFor = -1 }, "--forbidden-for must not be negative, got -1ns"},
		{"write timeout", func(o *Options) { o.Pipeline.Sink.RequestTimeout = 0 }, "--write-timeout must be greater than 0, got 0s"},
		{"base delay", func(o *Options) { o.Pipeline.Sink.RetryBaseDelay = 0 }, "--retry-base-delay must be greater than 0, got 0s"},
		{"maximum delay below the base delay", func(o *Options) {
			o.Pipeline.Sink.RetryBaseDelay, o.Pipeline.Sink.RetryMaxDelay = time.Second, time.Millisecond
		}, "--retry-max-delay must not be less than --retry-base-delay (1s), got 1ms"},
		{"retry period", func(o *Options) { o.Pipeline.Sink.RetryFor = 0 }, "--retry-for must be greater than 0, got 0s"},
		{"pending series", func(o *Options) { o.Pipeline.Sink.MaxPendingSeries = 0 }, "--max-pending-series must be at least 1, got 0"},
		{"idle series", func(o *Options) { o.Pipeline.Sink.MaxIdleSeries = 0 }, "--max-idle-series must be at least 1, got 0"},

		{"log format", func(o *Options) { o.Logs.Format = "xml" }, `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"log flushing", func(o *Options) { o.Logs.FlushFrequency.Duration.Duration = 0 }, "--log-flush-frequency: "},
		{"verbosity", func(o *Options) { o.Logs.Verbosity = math.MaxUint32 }, "-v: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := NewOptions()
			test.spoil(o)
			err := o.Validate()
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q in it", err, test.want)
			}
			// No flag sets the attempts of reviews.
			if !strings.Contains(test.want, "webhook retry") && !slices.ContainsFunc(flags, func(flag string) bool { return strings.Contains(err.Error(), flag) }) {
				t.Errorf("no flag is named: %q", err)
			}
			if strings.Contains(err.Error(), ";") {
				t.Errorf("one wrong option has more than one error: %q", err)
			}
		})
	}
}

func TestAllErrorsAreOneLine(t *testing.T) {
	o := NewOptions()
	o.LeaderElection.RetryPeriod = 0
	o.SecureServing.BindPort = -1
	o.SecureServing.BindAddress = net.IPv6loopback
	o.SecureServing.MinTLSVersion = "a\nb"
	err := o.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--leader-elect-retry-period", "--secure-port", "--tls-min-version"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to name %s", err, want)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("more than one line: %q", err)
	}
}

func TestElectionIsNotCheckedInAProcessThatRunsAlone(t *testing.T) {
	o := NewOptions()
	o.LeaderElect = false
	o.LeaderElection = LeaderElection{}
	o.SecureServing.DisableHTTP2Serving = true
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if err := o.checkPeerToken(); err != nil {
		t.Error(err)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	listening := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 10280}
	for given, want := range map[string]string{
		"":                  "10.1.2.3:10280",
		"web-1.example":     "web-1.example:10280",
		"web-1.example:443": "web-1.example:443",
		"192.0.2.1":         "192.0.2.1:10280",
		"192.0.2.1:443":     "192.0.2.1:443",
		"2001:db8::1":       "[2001:db8::1]:10280",
		"[2001:db8::1]":     "[2001:db8::1]:10280",
		"[2001:db8::1]:443": "[2001:db8::1]:443",
	} {
		o := NewOptions()
		o.LeaderElection.AdvertiseAddress = given
		if got, err := o.advertised(listening); err != nil || got != want {
			t.Errorf("--advertise-address=%s: %s %v, want %s", given, got, err, want)
		}
	}
}

// Which of the host's addresses it is depends on the host; that it is no use to
// others as it was bound does not.
func TestAdvertisedAddressIsTheHostsOwnIfAllAreBound(t *testing.T) {
	got, err := NewOptions().advertised(&net.TCPAddr{IP: net.IPv4zero, Port: 10280})
	if err != nil {
		if !strings.Contains(err.Error(), "--advertise-address") {
			t.Errorf("a host without an address of its own: %v", err)
		}
		return
	}
	host, port, err := net.SplitHostPort(got)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() || port != "10280" {
		t.Errorf("advertised: %q %v", got, err)
	}
}

// What the flags allow is valid for the election, whose errors do not name flags.
func TestShortestTimesAreValidForTheElection(t *testing.T) {
	o := NewOptions()
	o.ShutdownGracePeriod = time.Millisecond
	o.LeaderElection.RetryPeriod, o.LeaderElection.RenewDeadline = time.Millisecond, 1_200_001
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	options := o.electionOptions()
	options.Lock = &election.LeaseLock{Namespace: "shop", Name: "eventd", Holder: "a"}
	if err := options.Validate(); err != nil {
		t.Error(err)
	}
}
