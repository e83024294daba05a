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

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/election"
)

// hostName returns the name of this machine, or of the Pod.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// newIdentity returns the holder name of this process. It is different for each
// process of a host, and after each restart of a Pod.
func newIdentity() string {
	return hostName() + "_" + strings.ToLower(rand.Text()[:8])
}

// elect creates the elector, the gate, and the relay to the leader.
func (p *process) elect(ctx context.Context, cluster *rest.Config) error {
	options := p.options.electionOptions()
	if err := p.setLock(ctx, &options, cluster); err != nil {
		return err
	}
	options.OnNewLeader = func(leader election.Leader) { p.setLeader(ctx, leader) }
	options.Registerer = ofRole(p.options.Role, p.registry)
	elector, err := election.New(options)
	if err != nil {
		return err
	}
	p.elector, p.gate = elector, relay.NewGate(elector.Leading, handoverTimeout)
	if p.relay, err = p.newRelay(); err != nil {
		return err
	}
	p.standing = &standing{
		identity: elector.Identity(), leader: elector.Leader, leading: elector.Leading,
		peerReady: p.relay.Check, maxLeaderless: options.LeaseDuration,
	}
	return nil
}

func (p *process) newRelay() (*relay.Relay, error) {
	reviewer, err := p.options.newReviewer()
	if err != nil {
		return nil, err
	}
	return relay.New(relay.Options{
		Identity: p.elector.Identity(), Gate: p.gate, Reviewer: reviewer,
		TokenFile: p.options.LeaderElection.PeerTokenFile, Audience: p.options.LeaderElection.PeerAudience,
		LeaderWait: relay.DefaultLeaderWait, LeaderRenewed: p.elector.Renewed, UnreachableAfter: p.options.LeaderElection.LeaseDuration / 2,
		MaxInFlight: p.options.MaxRequestsInFlight, Registerer: p.registry,
	})
}

// electionOptions returns the options of the elector that flags choose.
func (o *Options) electionOptions() election.Options {
	options := election.DefaultOptions()
	options.LeaseDuration = o.LeaderElection.LeaseDuration
	options.RenewDeadline = o.LeaderElection.RenewDeadline
	options.RetryPeriod = o.LeaderElection.RetryPeriod
	// Two hanging requests leave time for others before the deadline, as by default.
	options.RequestTimeout = options.RenewDeadline / 4
	options.ReleaseTimeout = min(options.ReleaseTimeout, o.ShutdownGracePeriod/4)
	options.OnLost = o.LeaderElection.OnLost
	return options
}

// setLock sets the Lease as the lock, and its watch, over connections of their own.
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
	namespace, name := p.options.LeaderElection.ResourceNamespace, p.options.LeaseName()
	identity := newIdentity()
	if file := p.options.LeaderElection.IdentityFile; file != "" {
		// Without the file, this process only has to wait for the lease.
		if p.identityFile, options.Ended, err = lockIdentity(file, identity); err != nil {
			klog.FromContext(ctx).Error(err, "Could not take over the identity file", "file", file)
		}
	}
	options.Lock = &election.LeaseLock{
		Namespace: namespace, Name: name,
		Holder: identity,
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

// certificateSHA256 returns the fingerprint of the present serving certificate, whose
// file may change. Without it, other replicas cannot forward requests to this one.
func certificateSHA256(ctx context.Context, info *server.SecureServingInfo) string {
	chain, _ := info.Cert.CurrentCertKeyContent()
	leaf, err := firstCertificate(chain)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not announce the serving certificate")
		return ""
	}
	return election.Fingerprint(leaf)
}

// setLeader is called when the leader has changed.
func (p *process) setLeader(ctx context.Context, leader election.Leader) {
	p.standing.setLeader(leader)
	p.queries.LeaderChanged()
	logger := klog.FromContext(ctx)
	other := leader.Announcement
	switch {
	case leader.Identity == "":
		logger.Info("No leader is known")
	case leader.Identity == p.elector.Identity(): // logged by the elector
		other = election.Announcement{}
	case other.Complete():
		logger.Info("Another replica leads", "leader", leader.Identity, "address", other.Address)
	default:
		logger.Error(nil, "Another replica leads, but announces no address or certificate: requests cannot be forwarded to it", "leader", leader.Identity, "address", other.Address)
	}
	p.relay.SetLeader(other)
}
