package app

import (
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/eventd/eventd/pkg/election"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := NewOptions().Validate(); err != nil {
		t.Error(err)
	}
}

// wantInvalid checks the error of one wrong option.
func wantInvalid(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("accepted, want %q", want)
	case !strings.Contains(err.Error(), want):
		t.Errorf("got %q, want %q in it", err, want)
	case strings.Contains(err.Error(), ";"):
		t.Errorf("one wrong option has more than one error: %q", err)
	}
}

func TestErrorsOfOptionsNameTheFlag(t *testing.T) {
	for _, test := range []struct{ value, problem, flags string }{
		{"0", "must be at least 1, got 0", `max-request-body-bytes max-decode-bytes max-client-names max-requests-inflight
			budget-burst aggregate-max-messages max-subjects max-series-per-subject queue-capacity kube-api-burst
			min-concurrent-writes max-pending-bytes max-pending-series max-idle-series`},
		{"0", `must be greater than 0, or "unlimited", got 0`, "budget-qps kube-api-qps access-review-qps"},
		{"-1", `must be greater than 0, or "unlimited", got -1`, "kube-api-qps"},
		{"0s", "must be greater than 0, got 0s", "aggregate-interval slow-answer write-timeout retry-base-delay retry-for"},
		{"0s", "must be greater than 0 and at most 24h0m0s, got 0s", "series-heartbeat"},
		{"0s", "must be at least 1ms, got 0s", "shutdown-grace-period leader-elect-retry-period"},
		{"-1ns", "must not be negative, got -1ns", "shutdown-delay-duration namespace-refused-for forbidden-for"},
		{"-1", "must not be negative, got -1", "http2-max-streams-per-connection max-held-bytes"},
		{"99", "must be at least 100, got 99", "max-connections"},
		{"-1", "must be between 0 and 65535, got -1", "secure-port"},
		{"65536", "must be between 0 and 65535, got 65536", "secure-port"},
		{"0", "must be between 1 and 10000, got 0", "max-concurrent-writes"},
		{"50000000", "must be between 1 and 10000, got 50000000", "max-concurrent-writes"},
		{"", "must not be empty", "peer-token-file peer-audience"},
		{"30s", "must be less than --shutdown-grace-period (30s), got 30s", "shutdown-delay-duration"},
		{"15.000000001s", "must be a whole number of seconds, and at least 1s, got 15.000000001s", "leader-elect-lease-duration"},
	} {
		for _, flag := range strings.Fields(test.flags) {
			_, err := optionsOf("--" + flag + "=" + test.value)
			wantInvalid(t, err, "--"+flag+" "+test.problem)
		}
	}
	for _, test := range []struct{ flags, want string }{
		{"--leader-elect-renew-deadline=15s", "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline (15s), got 15s"},
		{"--leader-elect-retry-period=9s", "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period (9s), got 10s"},
		{"--leader-elect-renew-deadline=3ns --leader-elect-retry-period=2ns", "--leader-elect-retry-period must be at least 1ms, got 2ns"},
		{"--leader-elect-resource-name=Event_D", `--leader-elect-resource-name: "Event_D": a lowercase RFC 1123 subdomain`},
		{"--leader-elect-resource-namespace=kube.system", `--leader-elect-resource-namespace: "kube.system": must not contain dots`},
		{"--advertise-address=web:0", `--advertise-address "web:0": the port must be between 1 and 65535`},
		{"--advertise-address=:443", `--advertise-address ":443": the host must be an IP address or a DNS name`},
		{"--advertise-address=[web]", `--advertise-address "[web]": the host must be an IP address or a DNS name`},
		{"--advertise-address=a:b:c", `--advertise-address "a:b:c": must be HOST or HOST:PORT`},
		{"--advertise-address=0.0.0.0", `--advertise-address "0.0.0.0": the host must be reachable from other replicas`},
		{"--advertise-address=[::]:443", `--advertise-address "[::]:443": the host must be reachable from other replicas`},
		{"--disable-http2-serving", "--disable-http2-serving must not be given with --leader-elect: "},
		{"--tls-cert-file=a.crt", "--tls-cert-file and --tls-private-key-file must be given together"},
		{"--tls-private-key-file=a.key", "--tls-cert-file and --tls-private-key-file must be given together"},
		{"--serving-ca=own", `--serving-ca must be empty or "managed", got "own"`},
		{"--serving-ca=managed --leader-elect=false", "--serving-ca=managed needs --leader-elect: the leader keeps the CA"},
		{"--serving-ca=managed --tls-cert-file=a.crt --tls-private-key-file=a.key", "--serving-ca=managed must not be given with --tls-cert-file"},
		{"--serving-ca=managed --serving-ca-dns-names=ok.example,not_ok", `--serving-ca-dns-names: "not_ok" is not a DNS name`},
		{"--serving-ca-dns-names=ok.example", "--serving-ca-dns-names needs --serving-ca=managed"},
		{"--kubeconfig=a --endpoint-kubeconfig=./a", "--endpoint-kubeconfig must not be the file of --kubeconfig: "},
		{"--kubeconfig=validate.go --endpoint-kubeconfig=../app/validate.go", "--endpoint-kubeconfig must not be the file of --kubeconfig: "},
		{"--authentication-kubeconfig=a --endpoint-kubeconfig=a", "--endpoint-kubeconfig must not be the file of --authentication-kubeconfig: "},
		{"--authorization-kubeconfig=a --endpoint-kubeconfig=a", "--endpoint-kubeconfig must not be the file of --authorization-kubeconfig: "},
		{"--tls-min-version=1.2", `--tls-min-version: unknown tls version "1.2"`},
		{"--tls-cipher-suites=ROT13", "--tls-cipher-suites: Cipher suite ROT13"},
		{"--tls-curve-preferences=-1", "--tls-curve-preferences: "},
		{"--v=8", "--v must be at most 7, got 8: above it the tokens of clients are logged"},
		{"--vmodule=request=8", "--vmodule must have levels of at most 7, got request=8"},
		{"--retry-base-delay=1s --retry-max-delay=1ms", "--retry-max-delay must not be less than --retry-base-delay (1s), got 1ms"},
		{"--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"--log-flush-frequency=0", "--log-flush-frequency: "},
		{"--role=both", `--role must be "all", "intake" or "observe", got "both"`},
		{"--role=intake --history-bytes=64Mi", "--history-bytes is a flag of --role=observe"},
		{"--role=intake --cluster-name=prod", "--cluster-name is a flag of --role=observe"},
		{"--role=observe --config=a --kube-api-qps=1", "--kube-api-qps is a flag of --role=intake"},
		{"--role=observe --config=a --max-held-bytes=1Mi", "--max-held-bytes is a flag of --role=intake"},
		{"--role=observe --config=a --budget-burst=1", "--budget-burst is a flag of --role=intake"},
		{"--role=observe --config=a --max-decode-bytes=1Mi", "--max-decode-bytes is a flag of --role=intake"},
		{"--role=observe --config=a --acknowledge=committed", "--acknowledge is a flag of --role=intake"},
		{"--role=observe", "--role=observe needs --config or --history-bytes"},
	} {
		_, err := optionsOf(strings.Fields(test.flags)...)
		wantInvalid(t, err, test.want)
	}
	for _, name := range []string{"prod-1\n", " prod-1", "prod\x00", "prod\xff", strings.Repeat("x", maxClusterName+1)} {
		_, err := optionsOf("--cluster-name=" + name)
		wantInvalid(t, err, "--cluster-name must be printable, without spaces at its ends, and at most 253 bytes, got ")
	}
	for want, spoil := range map[string]func(*Options){
		`--kube-api-qps must be greater than 0, or "unlimited", got NaN`: func(o *Options) { o.Pipeline.Sink.QPS = math.NaN() },
		"--bind-address must be an IP address":                           func(o *Options) { o.SecureServing.BindAddress = nil },
		"requestheader-username-headers":                                 func(o *Options) { o.Authentication.RequestHeader.UsernameHeaders = []string{" "} },
		"-v: ":                                                           func(o *Options) { o.Logs.Verbosity = math.MaxUint32 },
		// No flag sets the attempts of reviews.
		"number of webhook retry attempts must": func(o *Options) { o.Authentication.WebhookRetryBackoff.Steps = 0 },
		"webhook retry attempts must":           func(o *Options) { o.Authorization.WebhookRetryBackoff.Steps = 0 },
	} {
		o := NewOptions()
		spoil(o)
		wantInvalid(t, o.Validate(), want)
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

// parsed is the value of a flag, and how it is shown.
type parsed[T any] struct {
	value T
	shown string
}

// wantParsed sets a flag to texts that are valid, and to others, which must not change it.
func wantParsed[T int64 | float64](t *testing.T, flag func(*T) pflag.Value, valid map[string]parsed[T], invalid ...string) {
	t.Helper()
	for text, want := range valid {
		got := T(7)
		value := flag(&got)
		if err := value.Set(text); err != nil || got != want.value || value.String() != want.shown {
			t.Errorf("%q is %v, shown as %q (%v), want %v", text, got, value, err, want)
		}
	}
	for _, text := range invalid {
		got := T(7)
		if err := flag(&got).Set(text); err == nil || got != 7 {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestRateFlag(t *testing.T) {
	wantParsed(t, func(to *float64) pflag.Value { return rateValue(to) }, map[string]parsed[float64]{
		"1":         {1, "1"},
		"0.5":       {0.5, "0.5"},
		"1/300":     {1. / 300, "1/300"},
		"1/4":       {0.25, "1/4"},
		"2/3":       {2. / 3, "0.6666666666666666"},
		"unlimited": {math.Inf(1), "unlimited"},
		"0":         {0, "0"}, // Validate rejects these two
		"-3":        {-3, "-3"},
	}, "", "1/0", "0/0", "1/2/3", "1/s", "inf", "NaN", "1e999")
}

func TestBytesFlag(t *testing.T) {
	wantParsed(t, func(to *int64) pflag.Value { return bytesValue(to) }, map[string]parsed[int64]{
		"1":       {1, "1"},
		"1Mi":     {1 << 20, "1Mi"},
		"1048576": {1 << 20, "1Mi"},
		"2k":      {2000, "2000"},
		"0.5Ki":   {512, "512"},
	}, "", "1MiB", "1.5", "100E")
}
