// Package monitoring tests the metrics of eventd with a real Prometheus: it scrapes two
// replicas as deploy/monitoring configures, and checks the alerts, the dashboard and
// the pages in docs. It tests the manifests with an apiserver that has the kinds of
// the Prometheus operator.
//
//	make monitoring                               # all of it
//	go test ./test/monitoring                     # what needs no Prometheus
//	go test ./test/monitoring -run Page -update   # writes docs/metrics.md
package monitoring
