package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/pipeline"
)

// Run is the life of an eventd that writes to cluster. It returns when ctx has
// ended and everything is shut down, or when the start fails. The error is that
// of the start, or says what could not be written.
func Run(ctx context.Context, o *Options, cluster *rest.Config) error {
	quietErrors()
	klog.FromContext(ctx).Info("Starting eventd", "version", Version(), "apiserver", cluster.Host)
	// One that a killed process left behind would lead its readers astray.
	if o.EndpointKubeconfig != "" {
		_ = os.Remove(o.EndpointKubeconfig)
	}
	client, err := newSinkClient(cluster)
	if err != nil {
		return err
	}
	serving, err := newServing(ctx, o)
	if err != nil {
		return err
	}
	registry := newRegistry()
	pipelineOptions := o.Pipeline
	pipelineOptions.Registerer = registry
	// The pipeline is stopped by Shutdown, after the end of ctx.
	pipe, err := pipeline.New(context.WithoutCancel(ctx), pipelineOptions)
	if err != nil {
		serving.close()
		return err
	}
	if err := pipe.StartSink(client); err != nil {
		serving.close()
		return abandon(ctx, pipe, err)
	}
	handler, err := newHandler(ctx, o, serving, pipe, registry)
	if err != nil {
		serving.close()
		return abandon(ctx, pipe, err)
	}
	stopServing, err := serving.start(handler, o.ShutdownGracePeriod)
	if err != nil {
		return abandon(ctx, pipe, err)
	}
	if o.EndpointKubeconfig != "" {
		if err := writeEndpoint(o.EndpointKubeconfig, serving.info); err != nil {
			stopServing()
			return abandon(ctx, pipe, err)
		}
	}

	<-ctx.Done()
	if o.EndpointKubeconfig != "" {
		_ = os.Remove(o.EndpointKubeconfig)
	}
	err = shutdown(ctx, o.ShutdownGracePeriod, stopServing, pipe.Shutdown)
	logAccounts(ctx, pipe)
	return err
}

// logAccounts says what became of everything, when nobody can scrape it any
// more.
func logAccounts(ctx context.Context, pipe *pipeline.Pipeline) {
	totals := pipe.Totals()
	values := []any{"recorded", totals.Recorded, "pending", totals.Pending()}
	for _, outcome := range occurrence.Outcomes {
		values = append(values, string(outcome), totals.Outcomes[outcome])
	}
	klog.FromContext(ctx).Info("Final accounts", values...)
}

// newHandler puts the intake in front of pipe. Readiness ends with ctx.
func newHandler(ctx context.Context, o *Options, s *serving, pipe *pipeline.Pipeline, registry *prometheus.Registry) (http.Handler, error) {
	intakeOptions := o.Intake
	intakeOptions.Record = pipe.Record
	intakeOptions.Registerer = registry
	in, err := intake.New(intakeOptions)
	if err != nil {
		return nil, err
	}
	return intake.NewHandler(intake.ServerOptions{
		Intake:        in,
		Authenticator: s.authenticator,
		Authorizer:    s.authorizer,
		MaxInFlight:   o.MaxRequestsInFlight,
		Livez:         []healthz.HealthChecker{healthz.PingHealthz},
		Readyz:        []healthz.HealthChecker{healthz.PingHealthz, healthz.NewShutdownHealthz(ctx.Done())},
		Metrics:       metricsHandler(registry),
	})
}

// abandon ends a pipeline that nothing was recorded into, because of a failed
// start.
func abandon(ctx context.Context, pipe *pipeline.Pipeline, cause error) error {
	if err := pipe.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("%w; stopping the pipeline: %w", cause, err)
	}
	return cause
}
