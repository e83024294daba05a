// Package destinations tests receivers with the destinations that people run: what an OpenTelemetry
// collector writes is compared with what was sent. test/collector builds the collector, unless
// EVENTD_COLLECTOR names one.
//
// It also runs that collector, with its real exporters, as docs/destinations.md and examples/delivery
// configure it. What these export to is real in part:
//
//	Kafka          kfake, a broker in memory of the client library franz-go: it speaks Kafka's
//	               protocol, and is not Kafka
//	Elasticsearch  an HTTP server that accepts and answers what Elasticsearch documents of POST
//	               /_otlp/v1/logs. Its exporter elasticsearch is not tested: that module is not to
//	               be had in a version that fits
//	Loki           an HTTP server that accepts and answers what Loki documents of POST
//	               /otlp/v1/logs
package destinations
