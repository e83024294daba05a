package app

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/lifecycle"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/pkg/trail"
)

// process is the parts of one eventd.
type process struct {
	options  *Options
	registry *prometheus.Registry
	shutdown *shutdown
	serving  *serving
	pipe     *pipeline.Pipeline
	intake   *intake.Intake
	handler  http.Handler
	// configuration and delivering are nil without --config.
	configuration *configuration
	delivering    *delivering
	// queries are answered from history and trail, which are nil without their flags. observer fills the
	// history.
	queries  *query.API
	history  *history.History
	trail    *trail.Trail
	observer *observer.Observer
	started  time.Time
	flags    map[string]string // those that differ from their defaults

	// The fields below are nil in a process that runs alone.

	elector *election.Elector
	// identityFile is nil without --leader-elect-identity-file.
	identityFile *fileutil.LockedFile
	gate         *relay.Gate
	relay        *relay.Relay
	standing     *standing
	holdings     *sink.Holdings
	replication  *replication
	followers    followers
}

// Run runs an eventd that writes to cluster. It returns when the start fails, or
// after a shutdown, which begins when ctx ends or the Lease is lost with
// --on-lost-lease=exit. It returns a runError unless nothing was started.
func Run(ctx context.Context, o *Options, cluster *rest.Config) error {
	limitLibraryErrors()
	// A killed process may have left a file that names its own port.
	o.removeEndpoint()
	p, err := newProcess(ctx, o, cluster)
	switch {
	case err != nil && ctx.Err() != nil: // the signal is the reason
		klog.FromContext(ctx).Info("Shutting down during the start", "reason", context.Cause(ctx).Error())
		return nil
	case err != nil:
		return err
	}
	defer p.close()
	if err := p.run(ctx); err != nil {
		return runError{err}
	}
	return nil
}

// run starts the parts, waits for the shutdown, and stops them, in the order of
// stream.components.
func (p *process) run(ctx context.Context) error {
	parts := &stream{shutdown: p.shutdown, startServing: p.startServing, drain: p.pipe.Shutdown}
	options := lifecycle.DefaultOptions()
	if p.elector != nil {
		parts.relay, parts.beginTerm = p.relay, p.beginTerm
		parts.report = func(ctx context.Context) { p.relay.Report(ctx, p.state) }
		if p.replication != nil {
			parts.gate, parts.replication = p.gate, p.replication
		}
		options.Elector = p.elector
		if p.options.LeaderElection.OnLost == election.StandBy {
			parts.flush = p.pipe.Flush
		}
	}
	options.Components = parts.components()
	if p.configuration != nil {
		// Last, so that it stops first: clients do not wait for it.
		options.Components = append(options.Components,
			lifecycle.Component{Name: "configuration", Run: p.configuration.follow})
	}
	if p.delivering != nil {
		options.Components = append(options.Components,
			lifecycle.Component{Name: "delivery", NeedsLeadership: true, Run: p.delivering.delivery.Run})
	}
	options.Components = append(options.Components, p.historyComponents()...)
	options.Components = append(options.Components, lifecycle.Component{Name: "queries", Run: p.queries.Run})
	options.StopGracePeriod = p.options.ShutdownGracePeriod
	options.Components = append(options.Components, p.serving.ca.components()...)
	manager, err := lifecycle.New(options)
	if err != nil {
		return err
	}
	err = manager.Run(ctx)
	parts.finish(ctx)
	p.logTotals(ctx)
	return err
}

// newProcess creates all parts, from the end of the pipeline towards its source. It
// listens, but accepts no connection. Errors of this machine are found before
// anything is logged.
func newProcess(ctx context.Context, o *Options, cluster *rest.Config) (_ *process, err error) {
	client, err := newSinkClient(cluster)
	if err != nil {
		return nil, err
	}
	p := &process{options: o, registry: newRegistry(o.Role), started: time.Now(), flags: o.changedFlags()}
	if p.serving, err = newServing(o, p.registry); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	klog.FromContext(ctx).Info("Starting eventd", "version", Version(), "apiserver", cluster.Host)
	if o.ServingCA == ServingCAManaged {
		if p.serving.ca, err = followServingCA(ctx, o, cluster, p.registry); err != nil {
			return nil, err
		}
	}
	if err = p.serving.delegate(ctx, o); err != nil {
		return nil, err
	}
	if err = p.newMemory(cluster); err != nil {
		return nil, err
	}
	if err = p.startPipeline(ctx, client); err != nil {
		return nil, err
	}
	if o.LeaderElect {
		if err = p.elect(ctx, cluster); err != nil {
			return nil, err
		}
	}
	if o.ConfigFile != "" {
		if err = p.configure(ctx, cluster); err != nil {
			return nil, err
		}
	}
	p.shutdown = newShutdown(ctx, o.ShutdownGracePeriod, o.ShutdownDelay)
	if r := p.replication; r != nil {
		r.pipe, r.relay, r.holdings, r.handoverUntil = p.pipe, p.relay, p.holdings, p.handoverUntil
	}
	if err = p.newQueries(); err != nil {
		return nil, err
	}
	p.handler, err = p.newHandler()
	return p, err
}

// beginTerm is called when this replica begins to lead.
func (p *process) beginTerm() {
	p.followers.begin()
	if p.trail != nil {
		p.trail.BeginTerm()
	}
}

// startPipeline starts the pipeline of reports, or, without any, one for the Events of this process about its Lease.
func (p *process) startPipeline(ctx context.Context, client sink.Client) error {
	options := pipeline.DefaultOptions()
	if p.options.Takes() {
		options = p.options.Pipeline
		options.Registerer = p.registry
		if p.trail != nil {
			options.Trail = p.trail
		}
	}
	holdings, err := p.newHoldings(ctx)
	if err != nil {
		return err
	}
	p.holdings, options.Sink.Holdings = holdings, holdings
	if holdings != nil {
		p.replication = &replication{followers: &p.followers}
		options.Sink.OtherReplica = p.followers.mayFollow
	}
	if holdings == nil && options.Sink.Acknowledge == sink.AcknowledgeReplicated {
		options.Sink.Acknowledge = sink.AcknowledgeCommitted
	}
	// The pipeline is stopped by Shutdown, after the end of ctx.
	pipe, err := pipeline.New(context.WithoutCancel(ctx), options)
	if err != nil {
		return err
	}
	p.pipe = pipe
	return pipe.StartSink(client)
}

// newHandler puts the intake in front of the pipeline.
func (p *process) newHandler() (http.Handler, error) {
	options := p.options.Intake
	options.MaxUnreadBytes = p.options.UnreadBytes()
	options.Record = p.pipe.Record
	if p.configuration != nil && p.options.Takes() {
		options.Rules, options.Filter = p.configuration.intake.Decide, p.pipe.Filter
	}
	if p.trail != nil {
		options.DryRun = p.trail.DryRun
	}
	options.Registerer = p.registry
	in, err := intake.New(options)
	if err != nil {
		return nil, err
	}
	p.intake = in
	server := intake.ServerOptions{
		Intake:          in,
		Authenticator:   p.serving.authenticator,
		Authorizer:      p.serving.authorizer,
		QueryAuthorizer: p.serving.queryAuthorizer,
		ClientCA:        p.serving.verifyOptions,
		MaxInFlight:     p.options.MaxRequestsInFlight,
		Livez:           p.livez(),
		Readyz:          p.readyz(),
		Role:            p.standingName,
		Metrics:         promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry}),
		Paths:           p.zpages(),
		Queries:         p.queries,
		QueriesOnly:     !p.options.Takes(),

		ReviewTTL:       cacheTTL(p.options.Authentication.CacheTTL),
		AccessReviewQPS: p.options.AccessReviewQPS,
		AccessReviewTTL: cacheTTL(min(p.options.Authorization.AllowCacheTTL, p.options.Authorization.DenyCacheTTL)),
	}
	if p.relay != nil {
		server.Forwarder, server.ReplicaState = p.relay, p.followers.report
	}
	if p.replication != nil {
		server.Replication = p.replication.Serve
	}
	handler, err := intake.NewHandler(server)
	return withConnectionDraining(handler, p.shutdown.begun), err
}

// cacheTTL converts a flag to an option of the intake: 0 disables the cache here, and
// selects the default there.
func cacheTTL(ttl time.Duration) time.Duration { return cmp.Or(ttl, -1) }

// startServing serves requests, and then writes the endpoint kubeconfig.
func (p *process) startServing(ctx context.Context) (stop func() <-chan struct{}, err error) {
	stopServing, err := p.serving.start(p.handler, p.options.ShutdownGracePeriod, p.intake.Working)
	if err != nil {
		return nil, err
	}
	settled := time.AfterFunc(settlingTime, func() { releaseMemory(ctx) })
	stop = func() <-chan struct{} {
		settled.Stop()
		p.options.removeEndpoint()
		return stopServing()
	}
	if file := p.options.EndpointKubeconfig; file != "" {
		if err := writeEndpoint(file, p.serving.info); err != nil {
			<-stop()
			return nil, err
		}
	}
	releaseMemory(ctx)
	return stop, nil
}

// settlingTime is the time for what happens once after requests are served: the first
// election and the first probes.
const settlingTime = 5 * time.Second

// releaseMemory releases memory that only the start needs.
func releaseMemory(ctx context.Context) {
	if err := releaseStartupMemory(); err != nil {
		klog.FromContext(ctx).Info("Could not release startup memory", "err", err)
	}
}

func (o *Options) removeEndpoint() {
	if o.EndpointKubeconfig != "" {
		_ = os.Remove(o.EndpointKubeconfig)
	}
}

// logTotals logs the final counters, which can no longer be scraped.
func (p *process) logTotals(ctx context.Context) {
	totals := p.pipe.Totals()
	values := []any{"recorded", totals.Recorded, "adopted", totals.Adopted, "pending", totals.Pending()}
	for _, outcome := range occurrence.Outcomes {
		values = append(values, string(outcome), totals.Outcomes[outcome])
	}
	klog.FromContext(ctx).Info("Final accounts", values...)
}

// close ends parts that were never started.
func (p *process) close() {
	p.serving.close()
	if p.identityFile != nil {
		p.identityFile.Close()
	}
	if p.relay != nil {
		p.relay.Close()
	}
	if p.pipe != nil {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.pipe.Shutdown(over) // the error was returned before
	}
}
