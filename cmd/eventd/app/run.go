package app

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/lifecycle"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// process is what an eventd is made of.
type process struct {
	options  *Options
	registry *prometheus.Registry
	ending   *ending
	serving  *serving
	pipe     *pipeline.Pipeline
	intake   *intake.Intake
	handler  http.Handler

	// What follows is nil in a process that runs alone.

	elector  *election.Elector
	gate     *intake.Gate
	relay    *intake.Relay
	standing *standing
}

// Run is the life of an eventd that writes to cluster. It returns when ctx has
// ended and everything is shut down, when the start fails, or when the process
// has no more right to go on. The error says so, or what could not be written; it
// is a runError unless nothing had been started.
func Run(ctx context.Context, o *Options, cluster *rest.Config) error {
	quietErrors()
	// One that a killed process left behind would lead its readers astray.
	o.removeEndpoint()
	p, err := newProcess(ctx, o, cluster)
	switch {
	case err != nil && ctx.Err() != nil: // which is why, whatever it says
		klog.FromContext(ctx).Info("Shutting down before anything was started", "reason", context.Cause(ctx).Error())
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

// run starts the parts, waits for the end, and stops them: the orders of both
// are those of stream.components and of lifecycle.Manager.
func (p *process) run(ctx context.Context) error {
	parts := &stream{ending: p.ending, startServing: p.startServing, drain: p.pipe.Shutdown}
	options := lifecycle.DefaultOptions()
	if p.elector != nil {
		parts.gate, parts.relay = p.gate, p.relay
		options.Elector = p.elector
		if p.options.LeaderElection.OnLost == election.StandBy {
			parts.flush = p.pipe.Flush
		}
	}
	options.Components = parts.components()
	options.StopGracePeriod = p.options.ShutdownGracePeriod
	manager, err := lifecycle.New(options)
	if err != nil {
		return err
	}
	err = manager.Run(ctx)
	parts.finish(ctx)
	p.logAccounts(ctx)
	return err
}

// newProcess makes everything, from the end of the pipeline towards its source.
// It listens, but accepts nothing. What is wrong on this machine comes out before
// anything is logged.
func newProcess(ctx context.Context, o *Options, cluster *rest.Config) (_ *process, err error) {
	client, err := newSinkClient(cluster)
	if err != nil {
		return nil, err
	}
	p := &process{options: o, registry: newRegistry()}
	if p.serving, err = newServing(o, p.registry); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	klog.FromContext(ctx).Info("Starting eventd", "version", Version(), "apiserver", cluster.Host)
	if err = p.serving.delegate(ctx, o); err != nil {
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
	p.ending = newEnding(ctx, o.ShutdownGracePeriod, o.ShutdownDelay)
	p.handler, err = p.newHandler()
	return p, err
}

func (p *process) startPipeline(ctx context.Context, client sink.Client) error {
	options := p.options.Pipeline
	options.Registerer = p.registry
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
	options.Record = p.pipe.Record
	options.Registerer = p.registry
	in, err := intake.New(options)
	if err != nil {
		return nil, err
	}
	p.intake = in
	handler, err := intake.NewHandler(intake.ServerOptions{
		Intake:        in,
		Authenticator: p.serving.authenticator,
		Authorizer:    p.serving.authorizer,
		Issuer:        p.serving.issuer.Issuer,
		Relay:         p.relay,
		MaxInFlight:   p.options.MaxRequestsInFlight,
		Livez:         p.livez(),
		Readyz:        p.readyz(),
		Role:          p.role,
		Metrics:       metricsHandler(p.registry),

		ReviewTTL:       keptFor(p.options.Authentication.CacheTTL),
		AccessReviewTTL: keptFor(min(p.options.Authorization.AllowCacheTTL, p.options.Authorization.DenyCacheTTL)),
	})
	return withFarewell(handler, p.ending.begun), err
}

// keptFor is the lifetime of cached reviews as the intake is told it: 0 is a default
// there, and no cache here.
func keptFor(ttl time.Duration) time.Duration { return cmp.Or(ttl, -1) }

// startServing serves, and writes where.
func (p *process) startServing(ctx context.Context) (stop func() <-chan struct{}, err error) {
	stopServing, err := p.serving.start(p.handler, p.options.ShutdownGracePeriod, p.intake.Working)
	if err != nil {
		return nil, err
	}
	settled := time.AfterFunc(settlingTime, func() { letGo(ctx) })
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
	letGo(ctx)
	return stop, nil
}

// settlingTime is how long what happens once goes on when requests are served:
// the first election, and the first probes.
const settlingTime = 5 * time.Second

// letGo gives back the memory that only the start has needed.
func letGo(ctx context.Context) {
	if err := forgetStartup(); err != nil {
		klog.FromContext(ctx).Info("More memory is in use than need be", "err", err)
	}
}

func (o *Options) removeEndpoint() {
	if o.EndpointKubeconfig != "" {
		_ = os.Remove(o.EndpointKubeconfig)
	}
}

// logAccounts says what became of everything, when nobody can scrape it any
// more.
func (p *process) logAccounts(ctx context.Context) {
	totals := p.pipe.Totals()
	values := []any{"recorded", totals.Recorded, "pending", totals.Pending()}
	for _, outcome := range occurrence.Outcomes {
		values = append(values, string(outcome), totals.Outcomes[outcome])
	}
	klog.FromContext(ctx).Info("Final accounts", values...)
}

// close ends what the parts have not, because they were never started.
func (p *process) close() {
	p.serving.close()
	if p.relay != nil {
		p.relay.Close()
	}
	if p.pipe != nil {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.pipe.Shutdown(over) // said before, if there was something to say
	}
}
