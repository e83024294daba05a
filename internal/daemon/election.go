package daemon

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
)

// hostName is what this machine, or Pod, is called.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// newIdentity is what this process is called in the Lease. Processes of the same
// host, and of the same Pod before and after a restart, are not the same.
func newIdentity() string {
	return hostName() + "_" + strings.ToLower(rand.Text()[:8])
}

// elect makes the elector, and the relay to whoever it finds to lead.
func (p *process) elect(cluster *rest.Config) error {
	options := p.options.electionOptions()
	if err := p.setLock(&options, cluster); err != nil {
		return err
	}
	options.OnNewLeader = p.leaderChanged
	options.Registerer = p.registry
	elector, err := election.New(options)
	if err != nil {
		return err
	}
	p.elector, p.standing = elector, &standing{patience: options.LeaseDuration}
	p.gate = intake.NewGate(elector.Leading, handoverPatience)
	reviewer, err := p.options.newReviewer()
	if err != nil {
		return err
	}
	relay := intake.DefaultRelayOptions()
	relay.Gate, relay.Reviewer = p.gate, reviewer
	relay.TokenFile, relay.Audience = p.options.LeaderElection.PeerTokenFile, p.options.LeaderElection.PeerAudience
	relay.Registerer = p.registry
	p.relay, err = intake.NewRelay(relay)
	return err
}

// electionOptions are those of the elector that are chosen by flags.
func (o *Options) electionOptions() election.Options {
	options := election.DefaultOptions()
	options.LeaseDuration = o.LeaderElection.LeaseDuration
	options.RenewDeadline = o.LeaderElection.RenewDeadline
	options.RetryPeriod = o.LeaderElection.RetryPeriod
	// Two requests that hang leave time for more before the deadline, as by default.
	options.RequestTimeout = options.RenewDeadline / 4
	options.ReleaseTimeout = min(options.ReleaseTimeout, o.ShutdownGracePeriod/4)
	options.OnLost = o.LeaderElection.OnLost
	return options
}

// setLock has the Lease hold who leads, and be watched, through connections that
// nothing else uses.
func (p *process) setLock(options *election.Options, cluster *rest.Config) error {
	address, err := p.options.advertised(p.serving.info.Listener.Addr())
	if err != nil {
		return err
	}
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent() + " leader-election"
	client, err := election.NewLeaseClient(config, options.RequestTimeout)
	if err != nil {
		return err
	}
	namespace, name := p.options.LeaderElection.ResourceNamespace, p.options.LeaderElection.ResourceName
	options.Lock = &election.LeaseLock{
		Namespace: namespace, Name: name,
		Holder: newIdentity(),
		Client: client,
		Labels: map[string]string{"app.kubernetes.io/name": "eventd"},
		Announce: func() election.Announcement {
			return election.Announcement{Address: address, CertificateSHA256: certificateSHA256(p.serving.info)}
		},
		Recorder: p.pipe.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "eventd", Host: hostName()}),
	}
	options.Watch = (&election.LeaseWatch{Namespace: namespace, Name: name, Client: client}).Watch
	return nil
}

// certificateSHA256 is the fingerprint of the certificate that is served now:
// its file may have changed. Without one, nobody passes anything on to here.
func certificateSHA256(info *server.SecureServingInfo) string {
	chain, _ := info.Cert.CurrentCertKeyContent()
	leaf, err := firstCertificate(chain)
	if err != nil {
		klog.Background().Error(err, "The serving certificate cannot be announced")
		return ""
	}
	return intake.Fingerprint(leaf)
}

// leaderChanged is told whenever somebody else leads, or nobody.
func (p *process) leaderChanged(leader election.Leader) {
	p.standing.leaderChanged(leader)
	logger := klog.Background()
	switch leader.Identity {
	case "":
		logger.Info("Nobody is known to lead")
		p.relay.SetLeader("", "")
	case p.elector.Identity(): // the elector says so
		p.relay.SetLeader("", "")
	default:
		logger.Info("Another replica leads", "leader", leader.Identity, "address", leader.Address)
		p.relay.SetLeader(leader.Address, leader.CertificateSHA256)
	}
}

// advertised is where other replicas reach what listens on address.
func (o *Options) advertised(address net.Addr) (string, error) {
	listening, ok := address.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("not a TCP address: %s", address)
	}
	host, port, err := splitAdvertiseAddress(o.LeaderElection.AdvertiseAddress)
	if err != nil {
		return "", err
	}
	if port == "" {
		port = strconv.Itoa(listening.Port)
	}
	if host == "" {
		if host, err = reachable(listening.IP); err != nil {
			return "", err
		}
	}
	return net.JoinHostPort(host, port), nil
}

// reachable is the address that is bound to, or the host's own if it is bound to
// all it has.
func reachable(bound net.IP) (string, error) {
	if !bound.IsUnspecified() {
		return bound.String(), nil
	}
	own, err := utilnet.ChooseHostInterface()
	if err != nil {
		return "", fmt.Errorf("finding the address at which other replicas reach this one, which --advertise-address can say: %w", err)
	}
	return own.String(), nil
}
