package trail

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/jsonlines"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// startPipeline writes to the control plane as a user of a configuration.
func startPipeline(t *testing.T, to *Trail, config *rest.Config) *pipeline.Pipeline {
	t.Helper()
	o := pipeline.DefaultOptions()
	o.Trail, o.Sink.ForbiddenFor = to, time.Millisecond
	p, err := pipeline.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	client, err := sink.NewClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), await.Timeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// allOf is the routing of a receiver that gets the Events of a namespace, except for those of one reason.
type allOf struct{ namespace, except string }

func (v allOf) Deliver(e *corev1.Event) (ok bool, route string) {
	return e.Namespace == v.namespace && e.Reason != v.except, "quiet"
}
func (allOf) Throttle(string) delivery.Throttle        { return nil }
func (allOf) Redact(event *corev1.Event) *corev1.Event { return event }

// deliver delivers what is stored from now on to a file, until the test ends.
func deliver(t *testing.T, to *Trail, view allOf) {
	t.Helper()
	config := testenv.Shared(t).Config()
	source, err := observer.NewSource(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "events")
	o := delivery.DefaultOptions()
	o.Cluster, o.Client, o.Namespace, o.Trail = "test", kubernetes.NewForConfigOrDie(config).CoreV1(), view.namespace, to
	o.NewSource = func(start observer.Start) (delivery.Source, error) {
		of, err := observer.New(observer.Options{Source: source, Start: start.Cursor})
		return delivery.NewSource(of), err
	}
	o.NewReceiver = func(v1alpha1.Receiver) (receiver.Receiver, error) {
		return jsonlines.New(v1alpha1.JSONLines{Path: file})
	}
	d, err := delivery.New(o)
	if err != nil {
		t.Fatal(err)
	}
	d.Apply(&v1alpha1.EventdConfiguration{
		Receivers: []v1alpha1.Receiver{{Name: "file"}}, Routes: []v1alpha1.Route{{Name: "quiet"}},
	}, func(string) delivery.View { return view })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	await.Until(t, "the receiver waits", func() bool { return d.Snapshot()[0].State == delivery.StateWaiting })
}

// Each of the answers that an author of a missing Event looks for, of what happens at a real apiserver.
func TestWhereIsMyEvent(t *testing.T) {
	cluster := testenv.Shared(t)
	admin := kubernetes.NewForConfigOrDie(cluster.Config())
	namespace, terminating := cluster.Namespace(t), cluster.Namespace(t)
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), terminating, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	to := newTrail(t, Options{})
	deliver(t, to, allOf{namespace, "Quiet"})
	writer := startPipeline(t, to, cluster.Config())
	nobody := startPipeline(t, to, cluster.ServiceAccount(t, namespace, "nobody"))
	report := func(p *pipeline.Pipeline, e *corev1.Event) *occurrence.Occurrence {
		o := &occurrence.Occurrence{Event: e, Weight: 1, User: "jane", Recorded: time.Now()}
		if p != nil {
			p.Record(o)
		}
		return o
	}
	report(writer, event(namespace, "delivered", "Tested", ""))
	report(writer, event(namespace, "quiet", "Quiet", ""))
	report(writer, event(terminating, "terminating", "Tested", ""))
	report(nobody, event(namespace, "forbidden", "Tested", ""))
	invalid := event(namespace, "invalid", "Tested", "")
	invalid.InvolvedObject.Namespace = "another"
	report(writer, invalid)
	writer.Filter(report(nil, event(namespace, "filtered", "Tested", "")), "noise")
	for i := range 12 {
		report(writer, event(namespace, "aggregated", "Tested", fmt.Sprint("message ", i)))
	}
	report(writer, event(namespace, "deferred", "Tested", ""))
	has := func(name string, want ...string) {
		t.Helper()
		var got []string
		defer func() {
			if t.Failed() {
				t.Logf("%s has %q", name, got)
			}
		}()
		await.Until(t, strings.Join(want, ", ")+" of "+name, func() bool {
			got = lines(why(to, name))
			for _, w := range want {
				found := false
				for _, line := range got {
					found = found || strings.HasPrefix(line, name+" "+w)
				}
				if !found {
					return false
				}
			}
			return true
		})
	}
	has("deferred", "recorded 1", "settled 1 created") // not by the write of the next one
	report(writer, event(namespace, "deferred", "Tested", ""))
	has("delivered", "recorded 1", "settled 1 created", "delivered 1 file")
	has("quiet", "recorded 1", "settled 1 created", "not_delivered 1 filtered quiet file")
	has("terminating", "recorded 1", "settled 1 dropped namespace_terminating")
	has("forbidden", "recorded 1", "settled 1 dropped forbidden")
	has("invalid", "recorded 1", "settled 1 dropped invalid")
	has("filtered", "recorded 1", "filtered 1 filtered noise")
	has("aggregated", "recorded 1 message 0", "recorded 3 (combined", "aggregated 3 (combined", "settled 1 created message 0", "settled 1 created (combined")
	has("deferred", "recorded 2", "merged 1", "deferred 1 spaced", "settled 1 created", "settled 1 merged", "delivered 2 file")
	for _, s := range why(to, "deferred") {
		if s.Action == "deferred" && !s.Until.After(s.Time) {
			t.Errorf("it is deferred until %v", s.Until)
		}
		if s.Event == "" && s.User == "jane" {
			t.Errorf("the Event of %+v has no name", s)
		}
	}
	// The words of the apiserver, and of nothing else.
	for name, words := range map[string]string{
		"terminating": "because it is being terminated", "forbidden": "cannot create resource", "invalid": "does not match event.namespace",
	} {
		drops, _ := to.Drops(Query{Object: Object{Name: name}})
		if len(drops) != 1 || !strings.Contains(drops[0].Detail, words) || len(drops[0].Detail) > maxDetail {
			t.Errorf("the drops of %s are %+v", name, drops)
		}
	}
	// One that never came.
	steps, since, forgotten := to.Why(Query{Object: Object{Name: "never"}, Namespaces: []string{namespace}})
	if len(steps) != 0 || forgotten || since.UnixNano() != to.began.UnixNano() {
		t.Errorf("%+v since %v, forgotten: %v", steps, since, forgotten)
	}
}
