package daemon

import (
	"net"
	"time"

	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"

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

	// EndpointKubeconfig, if not empty, is written when requests are served.
	EndpointKubeconfig string

	// Intake says what a request may be; its Record and Registerer are set by
	// the daemon. MaxRequestsInFlight bounds how many are answered at once.
	Intake              intake.Options
	MaxRequestsInFlight int

	// Pipeline says what is written and how; its Registerer is set by the daemon.
	Pipeline pipeline.Options

	// LeaderElect must be false: see Validate.
	LeaderElect bool

	// ShutdownGracePeriod bounds the time from the signal to the exit.
	ShutdownGracePeriod time.Duration

	Logs *logs.Options
}

// NewOptions returns the defaults. They are valid.
func NewOptions() *Options {
	o := &Options{
		SecureServing:       options.NewSecureServingOptions(),
		Authentication:      options.NewDelegatingAuthenticationOptions(),
		Authorization:       options.NewDelegatingAuthorizationOptions(),
		Intake:              intake.DefaultOptions(),
		MaxRequestsInFlight: intake.DefaultMaxInFlight,
		Pipeline:            pipeline.DefaultOptions(),
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
