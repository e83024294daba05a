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
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/pkg/trail"
)

// DefaultPort is near the ports of kube components (10250 to 10260), and is not one of
// them.
const DefaultPort = 10280

// Options of an eventd. Begin with NewOptions, set them by Flags, and call Validate.
type Options struct {
	// Kubeconfig of the apiserver that Events are written to. If empty, the in-cluster
	// configuration of the Pod is used.
	Kubeconfig string

	// Role is RoleAll, RoleIntake or RoleObserve.
	Role string

	// SecureServing, Authentication and Authorization are those of kube components, with
	// one difference: port 0 selects a free port.
	SecureServing  *options.SecureServingOptions
	Authentication *options.DelegatingAuthenticationOptions
	Authorization  *options.DelegatingAuthorizationOptions

	// MaxConnections limits the number of open connections.
	MaxConnections int

	// ServingCA is ServingCAManaged, or empty for a self-signed certificate or one in files.
	// ServingCADNSNames are further names of its certificates.
	ServingCA         string
	ServingCADNSNames []string

	// EndpointKubeconfig is optional: a file that is written when requests are served.
	EndpointKubeconfig string

	// Intake limits requests; its Record and Registerer are set by Run.
	// MaxRequestsInFlight limits their number.
	Intake              intake.Options
	MaxRequestsInFlight int
	// AccessReviewQPS limits the SubjectAccessReviews of reports.
	AccessReviewQPS float64

	// Pipeline: its Registerer is set by Run.
	Pipeline pipeline.Options

	// ConfigFile is the file of rules, receivers and routes. If empty, there are none.
	// ClusterName is the name of the cluster in what is delivered.
	ConfigFile, ClusterName string

	// HistoryBytes limits the history of this replica, and TrailBytes its trail; 0 is none.
	HistoryBytes, TrailBytes int64

	// MaxHeldBytes limits what this replica holds of what others have pending; 0 is HeldBytes.
	MaxHeldBytes int64

	// LeaderElect is true for one of several replicas.
	LeaderElect    bool
	LeaderElection LeaderElection

	// ShutdownGracePeriod limits the time from the signal to the exit. ShutdownDelay is
	// the part of it in which the process certainly serves.
	ShutdownGracePeriod time.Duration
	ShutdownDelay       time.Duration

	Logs *logs.Options
}

// LeaderElection configures the election, and how replicas reach each other.
type LeaderElection struct {
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ResourceNamespace and ResourceName of the Lease: see LeaseName.
	ResourceNamespace, ResourceName string
	OnLost                          election.OnLost
	// IdentityFile is locked by this process and has its identity: see lockIdentity. Optional.
	IdentityFile string

	// PeerTokenFile contains the token that authenticates this replica to others, and
	// PeerAudience is the audience of the token.
	PeerTokenFile, PeerAudience string
	// AdvertiseAddress is where other replicas reach this one: HOST or HOST:PORT. Parts
	// that are missing are taken from the listener.
	AdvertiseAddress string
}

// defaultPeerTokenFile is the path of the token in the Pods of deploy/.
const defaultPeerTokenFile = "/var/run/secrets/eventd/token/token"

// newLeaderElection returns the defaults. The timing is that of kube components.
func newLeaderElection() LeaderElection {
	defaults := election.DefaultOptions()
	return LeaderElection{
		LeaseDuration:     defaults.LeaseDuration,
		RenewDeadline:     defaults.RenewDeadline,
		RetryPeriod:       defaults.RetryPeriod,
		ResourceNamespace: metav1.NamespaceSystem,
		OnLost:            defaults.OnLost,
		PeerTokenFile:     defaultPeerTokenFile,
		PeerAudience:      "eventd",
	}
}

// defaultMaxConnections is what fits into the memory of deploy/: nearly one for each of 1,000 nodes.
const defaultMaxConnections = 980

// newPipeline returns the defaults of a process that writes the Events of a cluster. Those of
// package pipeline are for a controller.
func newPipeline() pipeline.Options {
	o := pipeline.DefaultOptions()
	// A cluster has more subjects than one controller.
	o.Correlator.CacheSize = 32_768
	o.Sink = sink.DefaultOptions()
	o.Sink.Acknowledge = sink.AcknowledgeReplicated
	return o
}

// NewOptions returns the defaults. They work in a Pod of deploy/; elsewhere there is no
// PeerTokenFile.
func NewOptions() *Options {
	o := &Options{
		Role:                RoleAll,
		SecureServing:       options.NewSecureServingOptions(),
		Authentication:      options.NewDelegatingAuthenticationOptions(),
		Authorization:       options.NewDelegatingAuthorizationOptions(),
		MaxConnections:      defaultMaxConnections,
		Intake:              intake.DefaultOptions(),
		MaxRequestsInFlight: intake.DefaultMaxInFlight,
		AccessReviewQPS:     intake.DefaultAccessReviewQPS,
		Pipeline:            newPipeline(),
		TrailBytes:          trail.DefaultMaxBytes,
		LeaderElect:         true,
		LeaderElection:      newLeaderElection(),
		ShutdownGracePeriod: 30 * time.Second,
		Logs:                logsapi.NewLoggingConfiguration(),
	}
	o.SecureServing.BindAddress = net.IPv4zero
	o.SecureServing.BindPort = DefaultPort
	// Without a directory the self-signed certificate stays in memory.
	o.SecureServing.ServerCert.CertDirectory = ""
	o.SecureServing.ServerCert.PairName = "eventd"
	return o
}
