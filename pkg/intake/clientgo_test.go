package intake_test

import (
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/occurrence"
)

// listen serves over a real network and returns a client of it.
func listen(t *testing.T, s *server, contentType string) *kubernetes.Clientset {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: contentType}}
	client, err := kubernetes.NewForConfigAndClient(config, server.Client())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestDiscovery(t *testing.T) {
	client := listen(t, serve(t, written()), "").Discovery()
	groups, lists, err := client.ServerGroupsAndResources() // asks for aggregated discovery
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]metav1.APIResource)
	for _, list := range lists {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+"/"+resource.Name] = resource
		}
	}
	if len(groups) != 2 || len(found) != 2 {
		t.Fatalf("groups %+v, resources %+v", groups, found)
	}
	for _, name := range []string{"v1/events", "events.k8s.io/v1/events"} {
		r := found[name]
		if r.Kind != "Event" || !r.Namespaced || r.SingularName != "event" || fmt.Sprint(r.Verbs) != "[create patch update]" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	// tools/events asks for this one before it begins.
	if _, err := client.ServerResourcesForGroupVersion(eventsv1.SchemeGroupVersion.String()); err != nil {
		t.Error(err)
	}
	if _, err := client.ServerVersion(); err != nil {
		t.Error(err)
	}
}

// collect takes what is recorded until the weights of each client add up.
func collect(t *testing.T, p *fakePipeline, settle func(*occurrence.Occurrence), want int64) map[string]int64 {
	t.Helper()
	weights := make(map[string]int64)
	var sum int64
	for sum < want {
		select {
		case o := <-p.recorded:
			settle(o)
			weights[o.Client] += o.Weight
			sum += o.Weight
		case <-time.After(30 * time.Second):
			t.Fatalf("only %d of %d arrived: %v", sum, want, weights)
		}
	}
	if sum != want {
		t.Errorf("%d arrived, want %d: %v", sum, want, weights)
	}
	return weights
}

func TestUnmodifiedRecorder(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			s := serve(t, kept())
			client := listen(t, s, contentType)
			broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1000}))
			defer broadcaster.Shutdown()
			watch := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
			defer watch.Stop()
			recorder := broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "test"})
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "ns", UID: "uid"}}
			const repeats, distinct = 50, 5
			for range repeats {
				recorder.Event(pod, corev1.EventTypeNormal, "Repeated", "again")
			}
			for i := range distinct {
				other := pod.DeepCopy()
				other.Name = fmt.Sprintf("web-%d", i+1)
				recorder.Event(other, corev1.EventTypeWarning, "Distinct", "once")
			}
			version := 0
			weights := collect(t, s.pipeline, func(o *occurrence.Occurrence) {
				version++
				o.Settled(stored(occurrence.Created, version))
			}, repeats+distinct)
			if len(weights) != 1+distinct {
				t.Errorf("%d names, want %d: %v", len(weights), 1+distinct, weights)
			}
		})
	}
}

func TestUnmodifiedNewStyleRecorder(t *testing.T) {
	s := serve(t, kept())
	client := listen(t, s, runtime.ContentTypeProtobuf)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(clientscheme.Scheme, "example.com/test")
	const distinct = 10
	settle := func(o *occurrence.Occurrence) {
		if o.API != occurrence.EventsV1 {
			t.Errorf("recorded through %v", o.API)
		}
		o.Settled(stored(occurrence.Created, int(o.Total)))
	}
	pods := make([]*corev1.Pod, distinct)
	for i := range pods {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i), Namespace: "ns", UID: "uid"}}
		recorder.Eventf(pods[i], nil, corev1.EventTypeNormal, "Scheduled", "Binding", "bound")
	}
	if got := collect(t, s.pipeline, settle, distinct); len(got) != distinct {
		t.Errorf("names %v", got)
	}
	for _, pod := range pods { // the first repeat begins a series, which is patched at once
		recorder.Eventf(pod, nil, corev1.EventTypeNormal, "Scheduled", "Binding", "bound")
	}
	if got := collect(t, s.pipeline, settle, distinct); len(got) != distinct {
		t.Errorf("names %v", got)
	}
}
