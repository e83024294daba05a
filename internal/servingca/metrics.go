package servingca

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The reasons of failures.
const (
	failedRead     = "read"      // of the Secret or the ConfigMap
	failedWrite    = "write"     // of one of them
	failedConflict = "conflict"  // another process has written first
	failedIssue    = "issue"     // making a key or a certificate
	foundSecret    = "secret"    // somebody has edited or deleted the Secret
	foundConfigMap = "configmap" // somebody has edited or deleted the ConfigMap
)

var reasons = []string{failedRead, failedWrite, failedConflict, failedIssue, foundSecret, foundConfigMap}

type metrics struct {
	leafExpires, caExpires prometheus.Gauge
	issued, rotations      prometheus.Counter
	failures               *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_serving_ca_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "eventd_serving_ca_" + name, Help: help})
	}
	m := &metrics{
		leafExpires: gauge("certificate_expiration_timestamp_seconds", "Unix time at which the serving certificate of this replica expires; 0 without one of --serving-ca."),
		caExpires:   gauge("expiration_timestamp_seconds", "Unix time at which the CA expires that issues serving certificates; 0 if this replica knows none."),
		issued:      counter("certificates_issued_total", "Serving certificates that this replica has issued for itself."),
		rotations:   counter("rotations_total", "CAs that this replica, as the leader, has replaced by the next one."),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eventd_serving_ca_errors_total",
			Help: "Failures about the CA of serving certificates, and changes of its Secret and ConfigMap by others, which the leader repairs.",
		}, []string{"reason"}),
	}
	for _, reason := range reasons {
		m.failures.WithLabelValues(reason)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.leafExpires, m.caExpires, m.issued, m.rotations, m.failures} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) failed(reason string) { m.failures.WithLabelValues(reason).Inc() }

// setExpiry sets a gauge to the end of a certificate.
func setExpiry(g prometheus.Gauge, c *x509.Certificate) {
	g.Set(float64(c.NotAfter.UnixNano()) / float64(time.Second))
}
