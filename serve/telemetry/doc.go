// Package telemetry reports the events of a state directory to monitoring systems: as spans to a collector of
// OpenTelemetry, and as metrics for Prometheus.
//
// Read [Trace] and [Metrics] first. Both follow the stream of package events, so they see the work of every
// snapfs process. The package changes nothing in the state directory, and nothing waits for it: while a
// collector is slow or away, spans are dropped.
package telemetry
