package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

func TestSumHasTheSeriesWithAllLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "settled_total"}, []string{"outcome", "reason"})
	pending := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pending"})
	registry.MustRegister(settled, pending)
	settled.WithLabelValues("dropped", "queue_full").Add(1)
	settled.WithLabelValues("dropped", "no_sink").Add(2)
	settled.WithLabelValues("created", "").Add(4)
	pending.Set(8)
	m := Gather(t, registry)
	for _, test := range []struct {
		name   string
		labels []string
		want   float64
		found  bool
	}{
		{"settled_total", nil, 7, true},
		{"settled_total", []string{"outcome=dropped"}, 3, true},
		{"settled_total", []string{"outcome=dropped", "reason=no_sink"}, 2, true},
		{"settled_total", []string{"reason="}, 4, true},
		{"settled_total", []string{"outcome=drop"}, 0, false},
		{"pending", nil, 8, true},
		{"settled", nil, 0, false},
	} {
		if got, found := m.Lookup(test.name, test.labels...); got != test.want || found != test.found || m.Sum(test.name, test.labels...) != got {
			t.Errorf("%s %q: %v, %t; want %v, %t", test.name, test.labels, got, found, test.want, test.found)
		}
	}
}

func TestReadIsOfTheServersMetrics(t *testing.T) {
	allowed := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed || r.URL.Path != "/metrics" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte("# TYPE leading gauge\nleading 1\n"))
	}))
	defer server.Close()
	m, err := Read(t.Context(), &rest.Config{Host: server.URL})
	if err != nil || m.Sum("leading") != 1 {
		t.Errorf("read %v (%v)", m, err)
	}
	allowed = false
	if _, err := Read(t.Context(), &rest.Config{Host: server.URL}); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("without the right: %v", err)
	}
}
