package app

import (
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/pipeline"
)

// DefaultPort is next to those of the kube components (10250 to 10260) and is
// none of theirs.
const DefaultPort = 10280

// Options is all that can be chosen when an eventd is started. Make it with
// NewOptions, have flags write into it with Flags, and check it with Validate.
type Options struct {
	// Kubeconfig leads to the apiserver that is written to; empty means the
	// cluster that this process is a Pod of.
	Kubeconfig string

	// SecureServing, Authentication and Authorization are those of every kube
	// component, with one difference: port 0 takes a free port.
	SecureServing  *options.SecureServingOptions
	Authentication *options.DelegatingAuthenticationOptions
	Authorization  *options.DelegatingAuthorizationOptions

	// MaxConnections bounds how many connections are open at once.
	MaxConnections int

	// EndpointKubeconfig, if not empty, is written when requests are served.
	EndpointKubeconfig string

	// Intake says what a request may be; its Record and Registerer are set by
	// the daemon. MaxRequestsInFlight bounds how many are answered at once.
	Intake              intake.Options
	MaxRequestsInFlight int

	// Pipeline says what is written and how; its Registerer is set by the daemon.
	Pipeline pipeline.Options

	// LeaderElect is whether this is one of several replicas, of which one leads.
	LeaderElect    bool
	LeaderElection LeaderElection

	// ShutdownGracePeriod bounds the time from the signal to the exit.
	// ShutdownDelay is for how much of it the process goes on serving in any case.
	ShutdownGracePeriod time.Duration
	ShutdownDelay       time.Duration

	Logs *logs.Options
}

// LeaderElection says how it is decided who leads, and how the others reach who
// does.
type LeaderElection struct {
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ResourceNamespace and ResourceName are those of the Lease.
	ResourceNamespace, ResourceName string
	OnLost                          election.OnLost

	// PeerTokenFile holds the token that a replica shows to the leader, and
	// PeerAudience is whom that token is for.
	PeerTokenFile, PeerAudience string
	// AdvertiseAddress is where other replicas reach this one: HOST or
	// HOST:PORT. What is left out is found out.
	AdvertiseAddress string
}

// defaultPeerTokenFile is where a projected volume holds the token in deploy/.
const defaultPeerTokenFile = "/var/run/secrets/eventd/token/token"

// newLeaderElection returns the defaults, which are those of kube components
// where they have the same.
func newLeaderElection() LeaderElection {
	defaults := election.DefaultOptions()
	return LeaderElection{
		LeaseDuration:     defaults.LeaseDuration,
		RenewDeadline:     defaults.RenewDeadline,
		RetryPeriod:       defaults.RetryPeriod,
		ResourceNamespace: metav1.NamespaceSystem,
		ResourceName:      "eventd",
		OnLost:            defaults.OnLost,
		PeerTokenFile:     defaultPeerTokenFile,
		PeerAudience:      "eventd",
	}
}

// defaultMaxConnections is for a cluster whose nodes all report to one replica.
const defaultMaxConnections = 2048

// NewOptions returns the defaults. They are valid in a Pod of deploy/; elsewhere
// there is no token to show to other replicas.
func NewOptions() *Options {
	o := &Options{
		SecureServing:       options.NewSecureServingOptions(),
		Authentication:      options.NewDelegatingAuthenticationOptions(),
		Authorization:       options.NewDelegatingAuthorizationOptions(),
		MaxConnections:      defaultMaxConnections,
		Intake:              intake.DefaultOptions(),
		MaxRequestsInFlight: intake.DefaultMaxInFlight,
		Pipeline:            pipeline.DefaultOptions(),
		LeaderElect:         true,
		LeaderElection:      newLeaderElection(),
		ShutdownGracePeriod: 30 * time.Second,
		Logs:                logsapi.NewLoggingConfiguration(),
	}
	// A cluster has more subjects than a controller.
	o.Pipeline.Correlator.CacheSize = 16_384
	o.SecureServing.BindAddress = net.IPv4zero
	o.SecureServing.BindPort = DefaultPort
	// Without a directory the self-made certificate stays in memory.
	o.SecureServing.ServerCert.CertDirectory = ""
	o.SecureServing.ServerCert.PairName = "eventd"
	return o
}
