package app

import (
	"context"
	"crypto/rand"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
func (p *process) elect(ctx context.Context, cluster *rest.Config) error {
	options := p.options.electionOptions()
	if err := p.setLock(ctx, &options, cluster); err != nil {
		return err
	}
	options.OnNewLeader = func(leader election.Leader) { p.leaderChanged(ctx, leader) }
	options.Registerer = p.registry
	elector, err := election.New(options)
	if err != nil {
		return err
	}
	p.elector, p.gate = elector, intake.NewGate(elector.Leading, handoverPatience)
	if p.relay, err = p.newRelay(); err != nil {
		return err
	}
	p.standing = &standing{
		identity: elector.Identity(), leader: elector.Leader, leading: elector.Leading,
		fit: p.relay.Check, patience: options.LeaseDuration,
	}
	return nil
}

func (p *process) newRelay() (*intake.Relay, error) {
	reviewer, err := p.options.newReviewer()
	if err != nil {
		return nil, err
	}
	options := intake.DefaultRelayOptions()
	options.Gate, options.Reviewer = p.gate, reviewer
	options.TokenFile, options.Audience = p.options.LeaderElection.PeerTokenFile, p.options.LeaderElection.PeerAudience
	options.LeaderRenewed, options.UnreachableAfter = p.elector.Renewed, p.options.LeaderElection.LeaseDuration/2
	options.Registerer = p.registry
	return intake.NewRelay(options)
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
func (p *process) setLock(ctx context.Context, options *election.Options, cluster *rest.Config) error {
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
			return election.Announcement{Address: address, CertificateSHA256: certificateSHA256(ctx, p.serving.info)}
		},
		Recorder: p.pipe.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "eventd", Host: hostName()}),
	}
	options.Watch = (&election.LeaseWatch{Namespace: namespace, Name: name, Client: client}).Watch
	return nil
}

// certificateSHA256 is the fingerprint of the certificate that is served now:
// its file may have changed. Without one, nobody passes anything on to here.
func certificateSHA256(ctx context.Context, info *server.SecureServingInfo) string {
	chain, _ := info.Cert.CurrentCertKeyContent()
	leaf, err := firstCertificate(chain)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The serving certificate cannot be announced")
		return ""
	}
	return intake.Fingerprint(leaf)
}

// leaderChanged is told whenever somebody else leads, or nobody.
func (p *process) leaderChanged(ctx context.Context, leader election.Leader) {
	p.standing.leaderChanged(leader)
	logger := klog.FromContext(ctx)
	switch {
	case leader.Identity == "":
		logger.Info("Nobody is known to lead")
		p.relay.SetLeader("", "")
	case leader.Identity == p.elector.Identity(): // the elector says so
		p.relay.SetLeader("", "")
	default:
		logger = logger.WithValues("leader", leader.Identity, "address", leader.Address)
		if leader.Address == "" || leader.CertificateSHA256 == "" {
			logger.Error(nil, "Another replica leads, and does not say where it serves with which certificate: nothing can be passed on to it")
		} else {
			logger.Info("Another replica leads")
		}
		p.relay.SetLeader(leader.Address, leader.CertificateSHA256)
	}
}
