package app

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// newRegistry returns a registry with metrics of the process of a role, and of the build.
func newRegistry(role string) *prometheus.Registry {
	buildInfo := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "eventd_build_info",
		Help: "Always 1. The labels describe the build and the process.",
		ConstLabels: prometheus.Labels{
			"version": Version(), "commit": commit(), "goversion": runtime.Version(), "role": role,
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

// ofRole labels metrics of which replicas of both roles have different values.
func ofRole(role string, r prometheus.Registerer) prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{"role": role}, r)
}
