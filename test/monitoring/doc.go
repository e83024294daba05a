// Package monitoring puts what eventd shows in front of a real Prometheus: two
// replicas that are scraped as deploy/monitoring says, its alerts, its dashboard,
// and the pages in docs about them; and its manifests in front of an apiserver that
// knows the Prometheus operator's kinds.
//
//	make monitoring                               # all of it
//	go test ./test/monitoring                     # what needs no Prometheus
//	go test ./test/monitoring -run Page -update   # writes docs/metrics.md
package monitoring
