package app

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newRegistry returns a registry with metrics of the process and the build.
func newRegistry() *prometheus.Registry {
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "eventd_build_info",
		Help: "Always 1. The labels describe the build.",
		ConstLabels: prometheus.Labels{
			"version": Version(), "commit": commit(), "goversion": runtime.Version(),
		},
	})
	buildInfo.Set(1)

	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo,
	)
	return registry
}

func metricsHandler(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
}
