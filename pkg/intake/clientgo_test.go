package intake_test

import (
	"fmt"
	"maps"
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
	return must(kubernetes.NewForConfigAndClient(config, server.Client()))
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

// collect settles occurrences until their weights add up, and returns the sum of each
// name.
func collect(t *testing.T, p *fakePipeline, settle func(*occurrence.Occurrence), want int64) map[string]int64 {
	t.Helper()
	weights := make(map[string]int64)
	var sum int64
	for sum < want {
		select {
		case o := <-p.Recorded:
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

func TestUnmodifiedRecorder(t *testing.T) { testRecorder(t, write) }

func TestUnmodifiedNewStyleRecorder(t *testing.T) { testNewStyleRecorder(t, write) }

// client-go treats 202 as a success, and patches the Event next.
func TestUnmodifiedRecordersTakeAcceptedAsSuccess(t *testing.T) {
	testRecorder(t, deferIt)
	testNewStyleRecorder(t, deferIt)
}

func testRecorder(t *testing.T, settle func(*occurrence.Occurrence)) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			s := serve(t, kept())
			client := listen(t, s, contentType)
			broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: 1000}))
			defer broadcaster.Shutdown()
			watch := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
			defer watch.Stop()
			recorder := broadcaster.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: "test"})
			const repeats, distinct = 50, 5
			for range repeats {
				recorder.Event(pod(0), corev1.EventTypeNormal, "Repeated", "again")
			}
			for i := range distinct {
				recorder.Event(pod(i+1), corev1.EventTypeWarning, "Distinct", "once")
			}
			if weights := collect(t, s.Pipeline, settle, repeats+distinct); len(weights) != 1+distinct {
				t.Errorf("%d names, want %d: %v", len(weights), 1+distinct, weights)
			}
		})
	}
}

func testNewStyleRecorder(t *testing.T, settle func(*occurrence.Occurrence)) {
	s := serve(t, kept())
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: listen(t, s, runtime.ContentTypeProtobuf).EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(clientscheme.Scheme, "example.com/test")
	const distinct = 10
	var names []map[string]int64
	for range 2 { // the second time begins a series, which is patched at once
		for i := range distinct {
			recorder.Eventf(pod(i), nil, corev1.EventTypeNormal, "Scheduled", "Binding", "bound")
		}
		names = append(names, collect(t, s.Pipeline, settle, distinct))
	}
	if len(names[0]) != distinct || !maps.Equal(names[0], names[1]) {
		t.Errorf("names %v", names)
	}
	for i, o := range s.Pipeline.Occurrences() {
		if o.API != occurrence.EventsV1 || o.Total != int64(1+i/distinct) {
			t.Errorf("occurrence %d is recorded through %v, with the total %d", i, o.API, o.Total)
		}
	}
}

func write(o *occurrence.Occurrence)   { o.Settled(stored(occurrence.Created, int(o.Total))) }
func deferIt(o *occurrence.Occurrence) { o.Deferred() }

func pod(i int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Namespace: "ns", UID: "uid"}}
}
