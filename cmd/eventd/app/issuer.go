package app

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/intake"
)

// issuerPatience bounds how long a start waits for the public keys of ServiceAccount
// tokens. It starts without them if they do not come.
const issuerPatience = 2 * time.Second

// issuer follows the public keys of the cluster's ServiceAccount tokens.
type issuer struct {
	*intake.Issuer

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// followIssuer returns when the keys are loaded, or after issuerPatience: the first
// requests to a restarted replica are those of the clients that it served before. The
// keys are followed until stop.
func followIssuer(ctx context.Context, config *rest.Config) (*issuer, error) {
	keys, err := intake.NewIssuer(config)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i := &issuer{Issuer: keys, cancel: cancel}
	i.running.Go(func() { keys.Run(running) })
	stop := context.AfterFunc(ctx, cancel) // a signal ends a start
	defer stop()
	grace.WaitFor(issuerPatience, keys.Tried())
	return i, nil
}

func (i *issuer) stop() {
	i.cancel()
	i.running.Wait()
}
