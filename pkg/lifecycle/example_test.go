package lifecycle_test

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// A process with several replicas: all serve metrics, the leader runs a controller.
func Example() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	electionOptions := election.DefaultOptions()
	client, err := election.NewLeaseClient(config, electionOptions.RequestTimeout)
	if err != nil {
		log.Fatal(err)
	}
	hostname, err := os.Hostname()
	if err != nil {
		log.Fatal(err)
	}
	electionOptions.Lock = &election.LeaseLock{Namespace: "default", Name: "controller", Holder: hostname, Client: client}
	electionOptions.Watch = (&election.LeaseWatch{Namespace: "default", Name: "controller", Client: client}).Watch
	elector, err := election.New(electionOptions)
	if err != nil {
		log.Fatal(err)
	}

	options := lifecycle.DefaultOptions()
	options.Elector = elector
	options.Components = []lifecycle.Component{
		{Name: "metrics", Run: serveMetrics},
		{Name: "controller", NeedsLeadership: true, Run: runController},
	}
	manager, err := lifecycle.New(options)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := manager.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// Run of a component works until its context ends.
func serveMetrics(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func runController(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
