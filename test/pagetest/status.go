package pagetest

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Each is a state of eventd, by its name.
var Each = map[string]func(now time.Time) *Backend{"empty": Empty, "busy": Busy, "failing": Failing}

func micro(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t) }

func second(t time.Time) *metav1.Time { return new(metav1.NewTime(t)) }

// gauge, counter: a figure, its labels as pairs.
func gauge(metric string, value float64, pairs ...string) v1alpha1.Figure {
	f := v1alpha1.Figure{Metric: metric, Value: value}
	for i := 0; i < len(pairs); i += 2 {
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[pairs[i]] = pairs[i+1]
	}
	return f
}

func counter(metric string, value, perSecond float64, pairs ...string) v1alpha1.Figure {
	f := gauge(metric, value, pairs...)
	f.PerSecond = &perSecond
	return f
}

// BusyStatus is a leader under load, with a follower, two receivers and a history.
func BusyStatus(now time.Time) *v1alpha1.PipelineStatus {
	return &v1alpha1.PipelineStatus{
		Time:    micro(now),
		Replica: v1alpha1.Replica{Identity: "eventd-6f7c9d5b8-x2m4q", Role: "leader", Version: "v0.9.0", Started: second(now.Add(-76 * time.Hour)), Ready: new(true)},
		Leader:  &v1alpha1.Leader{Identity: "eventd-6f7c9d5b8-x2m4q", Since: micro(now.Add(-75 * time.Hour)), Handovers: 4},
		Followers: []v1alpha1.Replica{
			{Identity: "eventd-6f7c9d5b8-p8wzk", Role: "standby", Version: "v0.9.0", Started: second(now.Add(-76 * time.Hour)), Ready: new(true)},
		},
		Apiserver: v1alpha1.Station{Name: "apiserver", Healthy: true, Figures: []v1alpha1.Figure{
			gauge("eventd_sink_requests_in_flight", 7), gauge("eventd_sink_concurrency_limit", 64), gauge("eventd_sink_concurrency_ceiling", 64),
			counter("eventd_sink_requests_total", 88_412, 18.2, "code", "201", "verb", "create"),
			counter("eventd_sink_requests_total", 12, 0, "code", "409", "verb", "create"),
			counter("eventd_sink_requests_total", 1_204_881, 212.4, "code", "200", "verb", "patch"),
			counter("eventd_sink_requests_failed_total", 12, 0, "class", "exists"), counter("eventd_sink_requests_failed_total", 0, 0, "class", "lost"),
			counter("eventd_sink_retries_total", 0, 0, "class", "retry"), gauge("eventd_sink_abandoned_requests", 0),
		}},
		Stations: []v1alpha1.Station{
			{Name: "intake", Healthy: true,
				Queue: &v1alpha1.Queue{Length: gauge("eventd_intake_in_flight", 12), Capacity: new(gauge("eventd_intake_in_flight_capacity", 400))},
				Figures: []v1alpha1.Figure{
					counter("eventd_intake_requests_total", 412_220, 97.2, "api", "core/v1", "code", "201", "verb", "create"),
					counter("eventd_intake_requests_total", 4_310_002, 1101, "api", "core/v1", "code", "200", "verb", "patch"),
					counter("eventd_intake_requests_total", 90_682, 45.5, "api", "events.k8s.io/v1", "code", "202", "verb", "create"),
					counter("eventd_intake_requests_total", 0, 0, "api", "events.k8s.io/v1", "code", "403", "verb", "create"),
					counter("eventd_intake_refused_total", 18, 0, "reason", "share"), counter("eventd_intake_refused_total", 0, 0, "reason", "seats"),
					gauge("eventd_intake_unwritten_bytes", 0), gauge("eventd_intake_unwritten_bytes_capacity", 33_554_432),
					gauge("eventd_connections", 214), gauge("eventd_connections_capacity", 2048),
				}},
			{Name: "broadcaster", Healthy: true,
				Queue: &v1alpha1.Queue{Length: gauge("eventd_broadcaster_queue_length", 3, "subscriber", "sink"), Capacity: new(gauge("eventd_broadcaster_queue_capacity", 16384, "subscriber", "sink"))},
				Figures: []v1alpha1.Figure{
					counter("eventd_occurrences_recorded_total", 4_812_904, 1243.7),
					counter("eventd_broadcaster_dropped_total", 0, 0, "subscriber", "sink"),
				}},
			{Name: "correlator", Healthy: true, Figures: []v1alpha1.Figure{
				counter("eventd_correlator_decisions_total", 0, 0, "reason", "budget_spent"),
				counter("eventd_correlator_decisions_total", 90_676, 0.02, "reason", "combined"),
				counter("eventd_correlator_decisions_total", 412_008, 96.4, "reason", "new_series"),
				counter("eventd_correlator_decisions_total", 4_310_220, 1147.2, "reason", "repeat"),
				counter("eventd_correlator_deferred_total", 391_772, 46.1, "reason", "spaced"),
				gauge("eventd_correlator_subjects", 3120), gauge("eventd_correlator_stalled", 0),
			}},
			{Name: "sink", Healthy: true,
				Queue: &v1alpha1.Queue{
					Length: gauge("eventd_sink_pending_series", 1204), Capacity: new(gauge("eventd_sink_pending_series_capacity", 100_000)),
					OldestSeconds: new(gauge("eventd_sink_oldest_pending_seconds", 41.8)),
				},
				Figures: []v1alpha1.Figure{
					gauge("eventd_occurrences_pending", 3, "station", "broadcaster"), gauge("eventd_occurrences_pending", 1977, "station", "sink"),
					counter("eventd_occurrences_settled_total", 88_412, 18.2, "outcome", "created", "reason", ""),
					counter("eventd_occurrences_settled_total", 112, 0, "outcome", "dropped", "reason", "pending_full"),
					counter("eventd_occurrences_settled_total", 4_633_101, 1198.9, "outcome", "merged", "reason", ""),
					counter("eventd_occurrences_settled_total", 0, 0, "outcome", "uncertain", "reason", ""),
					gauge("eventd_sink_deferred_series", 1181), gauge("eventd_sink_overdue_seconds", 0), gauge("eventd_sink_pending_bytes", 8_812_441),
				}},
			{Name: "observer", Healthy: true,
				Queue: &v1alpha1.Queue{Length: gauge("eventd_observer_buffer_bytes", 21_233_664), Capacity: new(gauge("eventd_observer_buffer_capacity_bytes", 67_108_864))},
				Figures: []v1alpha1.Figure{
					gauge("eventd_observer_connected", 1), counter("eventd_observer_versions_total", 1_382_118, 241.3),
					counter("eventd_observer_failures_total", 2, 0, "request", "watch"), counter("eventd_observer_gaps_total", 0, 0),
				}},
			{Name: "history", Healthy: true, Figures: []v1alpha1.Figure{
				gauge("eventd_history_versions", 931_204), gauge("eventd_history_bytes", 122_683_392),
				counter("eventd_history_evicted_versions_total", 450_914, 238),
				gauge("eventd_history_oldest_timestamp_seconds", float64(now.Add(-61*time.Minute).UnixMilli())/1000),
			}},
		},
		Receivers: []v1alpha1.ReceiverStatus{
			newReceiver("loki", "sending", 14, 0.2, 1_382_104, 240.9, nil),
			newReceiver("audit-stream", "waiting", 0, 0, 44_108, 3.1, []v1alpha1.Figure{
				counter("eventd_receiver_filtered_versions_total", 1_338_010, 238.2, "receiver", "audit-stream", "route", "warnings"),
			}),
		},
		Rules: []v1alpha1.RuleStatus{
			newRule(v1alpha1.RuleIntake, "probes", v1alpha1.DoesDrop, `event.reason == "Unhealthy" && event.count > 10`, 7224, 12.2),
			newRule(v1alpha1.RuleIntake, "image-pulls", v1alpha1.DoesWouldDrop, `event.type == "Normal" && event.reason in ["Pulling", "Pulled", "Created", "Started"]`, 412_008, 96.4),
			newRule(v1alpha1.RuleIntake, "policies", v1alpha1.DoesBudget, `event.reportingComponent.startsWith("kyverno") && event.reason == "PolicyApplied"`, 0, 0),
			newRule(v1alpha1.RuleRoute, "keep-all", v1alpha1.DoesDeliver, "", 1_382_104, 240.9),
			newRule(v1alpha1.RuleRoute, "warnings", v1alpha1.DoesDeliver, `event.type == "Warning"`, 44_108, 3.1),
			newRule(v1alpha1.RuleRoute, "rest", v1alpha1.DoesDrop, "", 1_338_010, 238.2),
			newRule(v1alpha1.RuleMetric, "failing_probes", v1alpha1.DoesCount, `event.reason == "Unhealthy"`, 7224, 12.2),
		},
		Configuration: &v1alpha1.ConfigurationStatus{Hash: "9f2c51d0a7e4c8b36f1e", LoadedAt: second(now.Add(-26 * time.Hour))},
		History:       &v1alpha1.HistoryStatus{Versions: 931_204, Bytes: 122_683_392, MaxBytes: 134_217_728, KnownSince: new(micro(now.Add(-61 * time.Minute))), Connected: true},
		Flags:         map[string]string{"config": "/etc/eventd/configuration.yaml", "history-bytes": "128Mi", "cluster-name": "prod-eu-1"},
	}
}

func newRule(kind, name, does, match string, matched, perSecond float64) v1alpha1.RuleStatus {
	r := v1alpha1.RuleStatus{Kind: kind, Name: name, Does: does, Match: match}
	switch kind {
	case v1alpha1.RuleIntake:
		r.Matched = counter("eventd_intake_rule_occurrences_total", matched, perSecond, "rule", name, "action", does)
	case v1alpha1.RuleRoute:
		r.Matched = counter("eventd_route_evaluations_total", matched, perSecond, "route", name, "result", "match")
		if does == v1alpha1.DoesDeliver {
			r.Receivers, r.Continue = []string{"loki", "audit-stream"}, name == "keep-all"
		}
	default:
		r.Matched = counter("eventd_metric_evaluations_total", matched, perSecond, "metric", name, "result", "match")
	}
	return r
}

func newReceiver(name, state string, pending, lag, delivered, perSecond float64, more []v1alpha1.Figure) v1alpha1.ReceiverStatus {
	return v1alpha1.ReceiverStatus{
		Name: name, State: state, Cursor: "48120933",
		LagSeconds: gauge("eventd_receiver_lag_seconds", lag, "receiver", name),
		Pending:    gauge("eventd_receiver_pending_versions", pending, "receiver", name),
		Settled: append([]v1alpha1.Figure{
			counter("eventd_receiver_delivered_versions_total", delivered, perSecond, "receiver", name),
			counter("eventd_receiver_superseded_versions_total", 0, 0, "receiver", name),
		}, more...),
	}
}

// EmptyStatus is an eventd that was just started, alone, without a configuration.
func EmptyStatus(now time.Time) *v1alpha1.PipelineStatus {
	s := BusyStatus(now)
	s.Replica = v1alpha1.Replica{Identity: "laptop_1f0c", Role: "alone", Version: "v0.9.0", Started: second(now.Add(-40 * time.Second)), Ready: new(true)}
	s.Leader = &v1alpha1.Leader{Identity: "laptop_1f0c", Since: micro(now.Add(-38 * time.Second))}
	s.Followers, s.Receivers, s.Configuration, s.History, s.Flags = nil, nil, nil, nil, nil
	s.Rules = nil
	s.Stations = s.Stations[:4]
	for i := range s.Stations {
		calm(&s.Stations[i])
	}
	calm(&s.Apiserver)
	return s
}

// calm sets all that changes to 0.
func calm(s *v1alpha1.Station) {
	for i := range s.Figures {
		s.Figures[i].Value = 0
		if s.Figures[i].PerSecond != nil {
			s.Figures[i].PerSecond = new(0.0)
		}
	}
	if s.Queue != nil {
		s.Queue.Length.Value = 0
		if s.Queue.OldestSeconds != nil {
			s.Queue.OldestSeconds.Value = 0
		}
	}
}

// FailingStatus is a leader whose apiserver hangs, whose follower is away, with a receiver that refuses.
func FailingStatus(now time.Time) *v1alpha1.PipelineStatus {
	s := BusyStatus(now)
	s.Leader.Since, s.Leader.Handovers = micro(now.Add(-3*time.Minute)), 11
	s.Followers[0].Ready, s.Followers[0].Reason = new(false), "no connection to the leader: context deadline exceeded"
	s.Apiserver.Healthy = false
	s.Apiserver.Message = "no answer for 48 s, the circuit breaker is open: dial tcp 10.96.0.1:443: i/o timeout"
	for i := range s.Apiserver.Figures {
		if s.Apiserver.Figures[i].PerSecond != nil {
			s.Apiserver.Figures[i].PerSecond = new(0.0)
		}
	}
	sink := &s.Stations[3]
	sink.Healthy, sink.Message = false, "waits for the apiserver"
	sink.Queue.Length.Value, sink.Queue.OldestSeconds.Value = 88_210, 48.3
	for i := range sink.Figures {
		if sink.Figures[i].PerSecond != nil {
			sink.Figures[i].PerSecond = new(0.0)
		}
	}
	r := &s.Receivers[1]
	r.State, r.Until = "backing_off", second(now.Add(14*time.Second))
	r.LastError, r.FailedAt = "nats: permission violation: Permissions Violation for Publish to \"events.prod-eu-1\"", second(now.Add(-16*time.Second))
	r.Pending.Value, r.LagSeconds.Value, r.Settled[0].PerSecond = 41_922, 913.4, new(0.0)
	s.Configuration.Error = "receivers[1].jetstream.stream: Required value"
	s.History.Connected = false
	s.Rules[4].Failed = []v1alpha1.Figure{counter("eventd_route_evaluations_total", 912, 3.1, "route", "warnings", "result", "error")}
	return s
}
