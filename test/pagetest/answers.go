package pagetest

import (
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Empty is the backend of an eventd to which nothing was reported.
func Empty(now time.Time) *Backend {
	b := NewBackend()
	b.SetFunc("status", func() (any, error) { return EmptyStatus(time.Now()), nil })
	b.Set("top", v1alpha1.Top{Since: micro(now.Add(-5 * time.Minute)), Until: micro(now), By: "object", OnlyReported: true})
	b.Set("drops", v1alpha1.DropList{KnownSince: micro(now.Add(-40 * time.Second)), Leader: "laptop_1f0c"})
	b.Set("why", v1alpha1.Explanation{KnownSince: micro(now.Add(-40 * time.Second)), Leader: "laptop_1f0c"})
	b.Set("timeline", v1alpha1.Timeline{KnownSince: micro(now.Add(-40 * time.Second)), ListMeta: metav1.ListMeta{ResourceVersion: "7"}})
	return b
}

// Busy is the backend of an eventd under load.
func Busy(now time.Time) *Backend {
	b := NewBackend()
	b.SetFunc("status", func() (any, error) { return BusyStatus(time.Now()), nil })
	b.Set("top", top(now))
	b.Set("drops", v1alpha1.DropList{KnownSince: micro(now.Add(-75 * time.Hour)), Leader: "eventd-6f7c9d5b8-x2m4q", Items: drops(now)})
	b.Set("why", v1alpha1.Explanation{KnownSince: micro(now.Add(-75 * time.Hour)), Leader: "eventd-6f7c9d5b8-x2m4q", Steps: steps(now), Forgotten: true})
	b.Set("timeline", v1alpha1.Timeline{KnownSince: micro(now.Add(-61 * time.Minute)), ListMeta: metav1.ListMeta{ResourceVersion: "48120933"}, Items: timeline(now)})
	return b
}

// Failing is the backend of an eventd that cannot write, and is not allowed to show everything.
func Failing(now time.Time) *Backend {
	b := Busy(now)
	b.SetFunc("status", func() (any, error) { return FailingStatus(time.Now()), nil })
	b.Set("top", apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("top").GroupResource(), "",
		fmt.Errorf("user \"jane\" may not list events in all namespaces")))
	b.Set("timeline", apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", v1alpha1.GroupVersion.WithResource("timeline").GroupResource(), "",
		"there is no history", 0, true))
	return b
}

var pod = v1alpha1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "checkout-7d9f6c4b5-k2xwq", UID: types.UID("8c7f")}

func top(now time.Time) v1alpha1.Top {
	t := v1alpha1.Top{Since: micro(now.Add(-5 * time.Minute)), Until: micro(now), By: "object", Occurrences: 371_204}
	for i, name := range []string{"checkout-7d9f6c4b5-k2xwq", "checkout-7d9f6c4b5-9vmlt", "ingest-0", "node-exporter-p2vsd", "cart-5c9d8f7b6-zzq8n"} {
		n := int64(161_882 >> (2 * i))
		t.Items = append(t.Items, v1alpha1.TopItem{
			Object:      &v1alpha1.ObjectReference{Kind: "Pod", Namespace: []string{"shop", "shop", "telemetry", "monitoring", "shop"}[i], Name: name},
			Occurrences: n, Error: int64(12 * i), Writes: n / 40, Saved: n - n/40,
		})
	}
	t.Items = append(t.Items, v1alpha1.TopItem{Object: &v1alpha1.ObjectReference{Kind: "Node", Name: "worker-17.eu-central-1.compute.internal"}, Occurrences: 9, Writes: 9})
	return t
}

func timeline(now time.Time) (out []v1alpha1.TimelineItem) {
	add := func(ago time.Duration, kind, reason, message string, n int64) {
		i := len(out)
		out = append(out, v1alpha1.TimelineItem{
			ID: fmt.Sprintf("8c7f-%d/4812%04d", i, i), ResourceVersion: fmt.Sprintf("4812%04d", i), Namespace: pod.Namespace,
			Name: fmt.Sprintf("%s.%x", pod.Name, i), Regarding: pod, Observed: micro(now.Add(-ago)), Type: kind, Reason: reason, Message: message,
			Reporter: "kubelet", Instance: "worker-17", Count: n, First: micro(now.Add(-ago - time.Duration(n)*7*time.Second)), Last: micro(now.Add(-ago)),
		})
	}
	add(52*time.Minute, "Normal", "Scheduled", "Successfully assigned shop/checkout-7d9f6c4b5-k2xwq to worker-17", 1)
	add(52*time.Minute, "Normal", "Pulling", `Pulling image "registry.example.com/shop/checkout:1.42.0"`, 1)
	add(51*time.Minute, "Normal", "Pulled", `Successfully pulled image "registry.example.com/shop/checkout:1.42.0" in 12.204s (12.204s including waiting). Image size: 88120412 bytes.`, 1)
	add(51*time.Minute, "Normal", "Started", "Started container checkout", 4)
	add(3*time.Minute, "Warning", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", 214)
	add(9*time.Second, "Warning", "BackOff", "Back-off restarting failed container checkout in pod checkout-7d9f6c4b5-k2xwq_shop(8c7f)", 88)
	return out
}

func steps(now time.Time) []v1alpha1.Step {
	series := v1alpha1.Step{
		Namespace: "shop", Event: pod.Name + ".9f2c51d0", Regarding: pod, Type: "Warning", Reason: "BackOff", Reporter: "kubelet",
		Message: "Back-off restarting failed container checkout in pod checkout-7d9f6c4b5-k2xwq_shop(8c7f)", Occurrences: 1,
	}
	with := func(ago time.Duration, change func(*v1alpha1.Step)) v1alpha1.Step {
		s := series
		s.Time = micro(now.Add(-ago))
		change(&s)
		return s
	}
	return []v1alpha1.Step{
		with(14*time.Second, func(s *v1alpha1.Step) {
			s.Action, s.User, s.Occurrences, s.First = v1alpha1.ActionRecorded, "system:node:worker-17", 88, new(micro(now.Add(-9*time.Minute)))
		}),
		with(14*time.Second, func(s *v1alpha1.Step) { s.Action, s.Occurrences = v1alpha1.ActionMerged, 87 }),
		with(13*time.Second, func(s *v1alpha1.Step) {
			s.Action, s.Cause, s.Until, s.Occurrences = v1alpha1.ActionDeferred, "spaced", new(micro(now.Add(-9*time.Second))), 12
		}),
		with(9*time.Second, func(s *v1alpha1.Step) { s.Action, s.Outcome, s.Occurrences = v1alpha1.ActionSettled, "merged", 12 }),
		with(8*time.Second, func(s *v1alpha1.Step) { s.Action, s.Receiver = v1alpha1.ActionDelivered, "loki" }),
		with(8*time.Second, func(s *v1alpha1.Step) {
			s.Action, s.Receiver, s.Rule = v1alpha1.ActionUnrouted, "audit-stream", "warnings"
		}),
		with(2*time.Second, func(s *v1alpha1.Step) {
			s.Action, s.Outcome, s.Cause, s.Occurrences = v1alpha1.ActionSettled, "dropped", "forbidden", 3
			s.Detail = `admission webhook "events.policy.example.com" denied the request: events of shop are limited`
		}),
	}
}

func drops(now time.Time) (out []v1alpha1.Step) {
	for i, name := range []string{"checkout-7d9f6c4b5-k2xwq", "cart-5c9d8f7b6-zzq8n", "checkout-7d9f6c4b5-9vmlt"} {
		ref := v1alpha1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name}
		base := v1alpha1.Step{Time: micro(now.Add(-time.Duration(i*i*40+2) * time.Second)), Regarding: ref, Namespace: "shop", Reporter: "kubelet", User: "system:node:worker-17"}
		lost, filtered, dry := base, base, base
		lost.Action, lost.Outcome, lost.Cause, lost.Occurrences = v1alpha1.ActionSettled, "dropped", "forbidden", int64(3+i)
		lost.Type, lost.Reason, lost.Message = "Warning", "BackOff", "Back-off restarting failed container checkout"
		lost.Detail = `admission webhook "events.policy.example.com" denied the request: events of shop are limited`
		filtered.Action, filtered.Rule, filtered.Occurrences = v1alpha1.ActionFiltered, "probes", int64(1204*(i+1))
		filtered.Type, filtered.Reason, filtered.Message = "Warning", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"
		dry.Action, dry.Rule, dry.Occurrences = v1alpha1.ActionWouldBe, "image-pulls", 1
		dry.Type, dry.Reason, dry.Message = "Normal", "Pulled", `Container image "registry.example.com/shop/checkout:1.42.0" already present on machine`
		out = append(out, lost, filtered, dry)
	}
	return out
}
