package query

import (
	"fmt"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// lateSeconds is for how long a write may be overdue before its station is not healthy: longer than a
// retry, and shorter than the time after which somebody is woken up.
const lateSeconds = 10

// station maps metrics to a station. One whose metrics the process does not have is left out.
type station struct {
	name string
	// queue is what waits there; its length is "" if nothing does.
	queue queue
	// figures are the metrics, in the order in which they are to be read.
	figures []string
	// problem returns what is wrong, or "".
	problem func(*reading) string
}

// queue has the names of the metrics of a queue, "" for those that it does not have.
type queue struct{ length, capacity, oldest string }

var apiserver = station{
	name: "apiserver",
	figures: []string{
		"eventd_sink_requests_in_flight", "eventd_sink_concurrency_limit", "eventd_sink_concurrency_ceiling",
		"eventd_sink_rate_limit", "eventd_sink_requests_total", "eventd_sink_requests_failed_total",
		"eventd_sink_retries_total", "eventd_sink_abandoned_requests", "eventd_sink_denied_namespaces",
	},
	problem: func(r *reading) string {
		if n := r.value("eventd_sink_abandoned_requests"); n > 0 {
			return fmt.Sprintf("%.0f requests have not returned after their timeout", n)
		}
		return overdue(r)
	},
}

// stations are in the order in which an occurrence passes them, then an observed Event.
var stations = []station{
	{
		name: "intake",
		queue: queue{
			length: "eventd_intake_in_flight", capacity: "eventd_intake_in_flight_capacity",
			oldest: "eventd_intake_oldest_in_flight_seconds",
		},
		figures: []string{
			"eventd_intake_requests_total", "eventd_intake_refused_total", "eventd_intake_waiting_for_seat",
			"eventd_intake_seats", "eventd_intake_unwritten_bytes", "eventd_intake_unwritten_bytes_capacity",
			"eventd_intake_aborted_answers_total", "eventd_intake_names", "eventd_intake_names_capacity",
			"eventd_intake_rule_occurrences_total", "eventd_relay_parked", "eventd_relay_requests_total",
			"eventd_relay_refused_total", "eventd_connections", "eventd_connections_capacity",
		},
		problem: func(r *reading) string {
			if n := r.value("eventd_relay_parked"); n > 0 {
				return fmt.Sprintf("%.0f requests wait for a leader", n)
			}
			return ""
		},
	},
	{
		name: "broadcaster",
		queue: queue{
			length: "eventd_broadcaster_queue_length", capacity: "eventd_broadcaster_queue_capacity",
			oldest: "eventd_broadcaster_oldest_queued_seconds",
		},
		figures: []string{
			"eventd_occurrences_recorded_total", "eventd_broadcaster_dropped_total", "eventd_broadcaster_panics_total",
		},
	},
	// Nothing waits in it: what it defers is pending in the sink.
	{
		name: "correlator",
		figures: []string{
			"eventd_correlator_decisions_total", "eventd_correlator_deferred_total", "eventd_correlator_subjects",
			"eventd_correlator_evictions_total", "eventd_correlator_stalled",
		},
		problem: func(r *reading) string {
			if r.value("eventd_correlator_stalled") > 0 {
				return "a key function does not return, and nothing is written"
			}
			return ""
		},
	},
	{
		name: "sink",
		queue: queue{
			length: "eventd_sink_pending_series", capacity: "eventd_sink_pending_series_capacity",
			oldest: "eventd_sink_oldest_pending_seconds",
		},
		figures: []string{
			"eventd_occurrences_pending", "eventd_occurrences_settled_total", "eventd_occurrences_adopted_total",
			"eventd_sink_deferred_series", "eventd_sink_overdue_seconds", "eventd_sink_pending_bytes",
			"eventd_sink_pending_bytes_capacity", "eventd_sink_merged_total", "eventd_sink_unique_names_total",
			"eventd_sink_followers", "eventd_sink_unreplicated_occurrences", "eventd_held_occurrences", "eventd_held_bytes",
		},
		problem: overdue,
	},
	{
		name: "observer",
		// What was read stays in the buffer until its place is needed.
		queue: queue{
			length: "eventd_observer_buffer_bytes", capacity: "eventd_observer_buffer_capacity_bytes",
			oldest: "eventd_observer_oldest_unread_seconds",
		},
		figures: []string{
			"eventd_observer_connected", "eventd_observer_versions_total", "eventd_observer_failures_total",
			"eventd_observer_gaps_total", "eventd_observer_lists_total", "eventd_observer_rereads_total",
			"eventd_observer_watch_restarts_total", "eventd_observer_restores_total",
		},
	},
	{
		name: "history",
		figures: []string{
			"eventd_history_connected", "eventd_history_versions", "eventd_history_bytes", "eventd_history_capacity_bytes",
			"eventd_history_oldest_timestamp_seconds", "eventd_history_evicted_versions_total", "eventd_history_skipped_versions_total",
		},
	},
}

// overdue says how late writes are. Those that are deferred are not late.
func overdue(r *reading) string {
	if late := r.value("eventd_sink_overdue_seconds"); late > lateSeconds {
		return fmt.Sprintf("writes to the apiserver are overdue by %.0f s", late)
	}
	return ""
}

// read returns the station, or false if the process does not have it.
func (s *station) read(r *reading) (v1alpha1.Station, bool) {
	out := v1alpha1.Station{Name: s.name, Healthy: true}
	if length := r.one(s.queue.length); length != nil {
		out.Queue = &v1alpha1.Queue{Length: *length, Capacity: r.one(s.queue.capacity), OldestSeconds: r.one(s.queue.oldest)}
	}
	for _, name := range s.figures {
		out.Figures = append(out.Figures, r.all(name)...)
	}
	if s.problem != nil {
		out.Message = s.problem(r)
		out.Healthy = out.Message == ""
	}
	return out, out.Queue != nil || len(out.Figures) > 0
}
