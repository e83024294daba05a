// Package destinations tests receivers with the destinations that people run: what an OpenTelemetry
// collector writes is compared with what was sent. test/collector builds the collector, unless
// EVENTD_COLLECTOR names one.
package destinations
