package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/servingca"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// ServingCAManaged is the value of --serving-ca with which eventd keeps its own CA.
const ServingCAManaged = "managed"

// Tests have shorter times than these.
var (
	// servingCATimes are those of the CA and the certificates.
	servingCATimes = servingca.DefaultTimes()
	// servingCAPatience bounds how long a replica is not ready that could not read its CA. It is ready
	// after that: clients that verify no certificate can use it.
	servingCAPatience = 30 * time.Second
)

// ServingCAName is the name of the Secret and of the ConfigMap of --serving-ca=managed.
func (o *Options) ServingCAName() string { return o.LeaseName() + "-serving-ca" }

// servingNames returns the DNS names of serving certificates. In deploy/, a Service has the name of the Lease.
func (o *Options) servingNames() []string {
	name := o.LeaseName()
	service := name + "." + o.LeaderElection.ResourceNamespace
	return slices.Concat([]string{service + ".svc", service + ".svc.cluster.local", service, name}, o.ServingCADNSNames)
}

func (o *Options) validateServingCA(v *violations) {
	for _, name := range o.ServingCADNSNames {
		v.addIf(len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0,
			"--serving-ca-dns-names: %q is not a DNS name", name)
	}
	switch o.ServingCA {
	case "":
		v.addIf(len(o.ServingCADNSNames) > 0, "--serving-ca-dns-names needs --serving-ca=%s", ServingCAManaged)
	case ServingCAManaged:
		v.addIf(!o.LeaderElect, "--serving-ca=%s needs --leader-elect: the leader keeps the CA", ServingCAManaged)
		v.addIf(o.SecureServing.ServerCert.CertKey.CertFile != "", "--serving-ca=%s must not be given with --tls-cert-file", ServingCAManaged)
	default:
		v.add("--serving-ca must be empty or %q, got %q", ServingCAManaged, o.ServingCA)
	}
}

// servingCA issues the serving certificates of this replica. Its methods may be called on nil.
type servingCA struct {
	*servingca.Manager

	begun   time.Time
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// followServingCA reads the CA, and issues certificates, until stop is called. It waits for nothing.
func followServingCA(ctx context.Context, o *Options, cluster *rest.Config, r prometheus.Registerer) (*servingCA, error) {
	config := rest.CopyConfig(cluster)
	config.UserAgent = userAgent() + " serving-ca"
	manager, err := servingca.New(servingca.Options{
		Config: config, Namespace: o.LeaderElection.ResourceNamespace, Name: o.ServingCAName(),
		DNSNames: o.servingNames(), Times: servingCATimes, Registerer: r,
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &servingCA{Manager: manager, begun: time.Now(), cancel: cancel}
	c.running.Go(func() { manager.Run(running) })
	return c, nil
}

func (c *servingCA) stop() {
	if c == nil {
		return
	}
	c.cancel()
	grace.Run(c.running.Wait)
}

// components returns the part that keeps the CA, on the leader.
func (c *servingCA) components() []lifecycle.Component {
	if c == nil {
		return nil
	}
	return []lifecycle.Component{{Name: "serving CA", NeedsLeadership: true, Run: c.Lead}}
}

// check fails before the CA was read, for servingCAPatience at most. If there is none yet, no client
// can verify any replica.
func (c *servingCA) check(*http.Request) error {
	select {
	case <-c.Read():
		return nil
	default:
	}
	if time.Since(c.begun) > servingCAPatience {
		return nil
	}
	return errors.New("the CA of serving certificates has not been read yet")
}
