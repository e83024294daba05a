package servingca

import (
	"crypto/x509"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/internal/instrument"
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
	set := instrument.New(r)
	m := &metrics{
		leafExpires: set.Gauge("eventd_serving_ca_certificate_expiration_timestamp_seconds", "Unix time at which the serving certificate of this replica expires; 0 without one of --serving-ca."),
		caExpires:   set.Gauge("eventd_serving_ca_expiration_timestamp_seconds", "Unix time at which the CA expires that issues serving certificates; 0 if this replica knows none."),
		issued:      set.Counter("eventd_serving_ca_certificates_issued_total", "Serving certificates that this replica has issued for itself."),
		rotations:   set.Counter("eventd_serving_ca_rotations_total", "CAs that this replica, as the leader, has replaced by the next one."),
		failures: set.CounterVec("eventd_serving_ca_errors_total",
			"Failures about the CA of serving certificates, and changes of its Secret and ConfigMap by others, which the leader repairs.", "reason"),
	}
	for _, reason := range reasons {
		m.failures.WithLabelValues(reason)
	}
	return m, set.Err()
}

func (m *metrics) failed(reason string) { m.failures.WithLabelValues(reason).Inc() }

// setExpiry sets a gauge to the end of a certificate.
func setExpiry(g prometheus.Gauge, c *x509.Certificate) {
	g.Set(float64(c.NotAfter.UnixNano()) / float64(time.Second))
}
