package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/occurrence"
	queryv1alpha1 "github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
)

// configurationPeriod is how often the file of --config is read. The kubelet changes a mounted file
// within about a minute.
const configurationPeriod = 10 * time.Second

// configuration follows the file of --config. Every replica does; the leader decides on reports, and
// delivers.
type configuration struct {
	file, cluster, role string
	// apply puts a valid configuration in force.
	apply []func(*v1alpha1.EventdConfiguration, *rules.Set)

	metrics *configurationMetrics
	intake  *rules.Intake
	routes  *rules.Metrics
	sum     [sha256.Size]byte // of what was read last
	inForce bool              // whether that is in force

	mu      sync.Mutex
	current queryv1alpha1.ConfigurationStatus
	rules   []queryv1alpha1.RuleStatus // in force
}

// status returns what is in force, and why a later file is not.
func (c *configuration) status() *queryv1alpha1.ConfigurationStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.current
	return &now
}

// loaded records the result of a load: a wrong file is an error until it changes.
func (c *configuration) loaded(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch hash := hex.EncodeToString(c.sum[:]); {
	case err != nil:
		c.current.Error = err.Error()
	case !c.inForce:
	case c.current.Hash != hash:
		c.current.Hash, c.current.LoadedAt = hash, new(metav1.Now())
		fallthrough
	default:
		c.current.Error = ""
	}
}

type configurationMetrics struct {
	hash       *prometheus.GaugeVec
	successful prometheus.Gauge
	succeeded  prometheus.Gauge
}

func newConfigurationMetrics(r prometheus.Registerer) *configurationMetrics {
	set := instrument.New(r)
	m := &configurationMetrics{
		hash: set.GaugeVec("eventd_configuration_info",
			"Always 1. The label is the SHA-256 of the configuration in force.", "hash"),
		successful: set.Gauge("eventd_configuration_last_reload_successful",
			"Whether the last reload of the configuration succeeded: 1 or 0. After a failure the former one stays in force."),
		succeeded: set.Gauge("eventd_configuration_last_reload_success_timestamp_seconds",
			"Time of the last reload that changed the configuration, in seconds since 1970."),
	}
	utilruntime.Must(set.Err())
	return m
}

// configure reads the configuration, and has it applied when it changes.
func (p *process) configure(ctx context.Context, cluster *rest.Config) (err error) {
	var apply []func(*v1alpha1.EventdConfiguration, *rules.Set)
	if p.options.Takes() {
		apply = append(apply, p.countFiltered)
	}
	if p.options.Observes() {
		if p.delivering, err = p.newDelivering(cluster); err != nil {
			return err
		}
		apply = append(apply, p.delivering.apply)
	}
	if p.configuration, err = newConfiguration(p.options, p.registry, apply...); err != nil {
		return err
	}
	if err := p.configuration.load(ctx); err != nil {
		return fmt.Errorf("--config %s: %w", p.options.ConfigFile, err)
	}
	return nil
}

// countFiltered has the counters of rules before they filter anything.
func (p *process) countFiltered(_ *v1alpha1.EventdConfiguration, set *rules.Set) {
	for _, rule := range set.Drops() {
		p.pipe.Filter(&occurrence.Occurrence{}, rule)
	}
}

// newConfiguration registers the metrics. The caller calls load.
func newConfiguration(o *Options, registry prometheus.Registerer, apply ...func(*v1alpha1.EventdConfiguration, *rules.Set)) (*configuration, error) {
	routes, err := rules.NewMetrics(registry)
	if err != nil {
		return nil, err
	}
	intake, err := rules.NewIntake(registry)
	if err != nil {
		return nil, err
	}
	return &configuration{file: o.ConfigFile, cluster: o.ClusterName, role: o.Role,
		apply: apply, metrics: newConfigurationMetrics(ofRole(o.Role, registry)), intake: intake, routes: routes}, nil
}

// load puts the content of the file in force, unless it is that of the last load.
func (c *configuration) load(ctx context.Context) error {
	err := c.loadFile(ctx)
	c.loaded(err)
	return err
}

func (c *configuration) loadFile(ctx context.Context) error {
	data, err := readRegular(c.file)
	if err != nil {
		c.metrics.successful.Set(0)
		return err
	}
	sum := sha256.Sum256(data)
	if sum == c.sum {
		if c.inForce { // it may have been away meanwhile
			c.metrics.successful.Set(1)
		}
		return nil
	}
	c.sum, c.inForce = sum, false
	if err := c.use(data); err != nil {
		c.metrics.successful.Set(0)
		return errors.New(eventfields.ValidUTF8(err.Error(), 16<<10)) // it may have a wrong field every few bytes
	}
	c.inForce = true
	hash := hex.EncodeToString(sum[:])
	c.metrics.hash.Reset()
	c.metrics.hash.WithLabelValues(hash).Set(1)
	c.metrics.successful.Set(1)
	c.metrics.succeeded.SetToCurrentTime()
	klog.FromContext(ctx).Info("The configuration is in force", "file", c.file, "sha256", hash)
	return nil
}

// readRegular refuses a named pipe, which would block this process, its shutdown too, until somebody
// writes to it.
func readRegular(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	return readNamed(file, v1alpha1.MaxBytes)
}

func (c *configuration) use(data []byte) error {
	config, err := v1alpha1.Load(data)
	if err != nil {
		return err
	}
	set, err := rules.Compile(config)
	if err != nil {
		return err
	}
	if err := checkRole(c.role, config); err != nil {
		return err
	}
	if len(config.Receivers) > 0 && c.cluster == "" {
		return errors.New("there are receivers, so --cluster-name must not be empty")
	}
	c.intake.Use(set)
	c.routes.Use(set)
	for _, apply := range c.apply {
		apply(config, set)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rules = rulesOf(config)
	return nil
}

// follow loads the file again when it has changed. A wrong one is logged once.
func (c *configuration) follow(ctx context.Context) error {
	logged := ""
	for sleep.For(ctx, configurationPeriod) == nil {
		switch err := c.load(ctx); {
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			klog.FromContext(ctx).Error(err, "Could not reload the configuration: the former one stays in force", "file", c.file)
		}
	}
	return nil
}
