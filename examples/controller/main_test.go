package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/test/intaketest"
)

func TestMain(m *testing.M) { intaketest.Main(m) }

// deployment returns one of which some replicas are available, with the conditions of the type Available.
func deployment(uid types.UID, ready, replicas int32, conditions ...corev1.ConditionStatus) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: uid},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		Status: appsv1.DeploymentStatus{AvailableReplicas: ready, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue},
		}},
	}
	for _, status := range conditions {
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: status})
	}
	return d
}

const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown

func TestChangesOfAvailabilityAreReported(t *testing.T) {
	ends := deployment("a", 0, 3, no)
	ends.DeletionTimestamp = &metav1.Time{}
	defaulted := deployment("a", 1, 0, yes)
	defaulted.Spec.Replicas = nil
	for name, test := range map[string]struct {
		seen []*appsv1.Deployment // one after the other; nil is none
		want []string
	}{
		"a new one":                {[]*appsv1.Deployment{deployment("a", 0, 3), deployment("a", 1, 3, no), deployment("a", 3, 3, yes)}, []string{"Normal Available 3 of 3 replicas are available"}},
		"one that was there":       {[]*appsv1.Deployment{deployment("a", 3, 3, yes)}, nil},
		"one that failed before":   {[]*appsv1.Deployment{deployment("a", 0, 3, no)}, nil},
		"one that fails":           {[]*appsv1.Deployment{deployment("a", 3, 3, yes), deployment("a", 1, 3, no)}, []string{"Warning Unavailable 1 of 3 replicas are available"}},
		"one of unknown status":    {[]*appsv1.Deployment{deployment("a", 3, 3, yes), deployment("a", 3, 3, unknown)}, []string{"Warning Unavailable 3 of 3 replicas are available"}},
		"a replica of several":     {[]*appsv1.Deployment{deployment("a", 4, 4, yes), deployment("a", 3, 4, yes)}, nil},
		"the default of replicas":  {[]*appsv1.Deployment{deployment("a", 0, 1, no), defaulted}, []string{"Normal Available 1 of 1 replicas are available"}},
		"one that is being ended":  {[]*appsv1.Deployment{deployment("a", 3, 3, yes), ends}, nil},
		"one that is made again":   {[]*appsv1.Deployment{deployment("a", 3, 3, yes), nil, deployment("a", 0, 3, no)}, nil},
		"another one of that name": {[]*appsv1.Deployment{deployment("a", 3, 3, yes), deployment("b", 0, 3, no)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			deployments := cache.NewStore(cache.MetaNamespaceKeyFunc)
			recorder := events.NewFakeRecorder(10)
			c := newController(deployments, recorder)
			defer c.queue.ShutDown()
			for _, seen := range test.seen {
				var now []any
				if seen != nil {
					now = []any{seen}
				}
				if err := deployments.Replace(now, ""); err != nil {
					t.Fatal(err)
				}
				if err := c.sync("shop/web"); err != nil {
					t.Fatal(err)
				}
			}
			close(recorder.Events)
			var got []string
			for report := range recorder.Events {
				got = append(got, report)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("it reports %q, want %q", got, test.want)
			}
			if len(c.before) != 1 {
				t.Errorf("it remembers %v", c.before)
			}
		})
	}
}

func TestDeploymentThatIsGoneIsForgotten(t *testing.T) {
	c := newController(cache.NewStore(cache.MetaNamespaceKeyFunc), nil)
	defer c.queue.ShutDown()
	c.before["shop/web"] = availability{"a", true}
	if err := c.sync("shop/web"); err != nil || len(c.before) > 0 {
		t.Errorf("it remembers %v (%v)", c.before, err)
	}
}

func TestWhatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := newController(&cache.FakeCustomStore{GetByKeyFunc: func(string) (any, bool, error) {
			if tries++; tries < 3 {
				return nil, false, errors.New("not yet")
			}
			return nil, false, nil
		}}, nil)
		c.queue.Add("shop/web")
		time.AfterFunc(time.Minute, c.queue.ShutDown)
		for c.next(t.Context()) {
		}
		if tries != 3 || c.queue.NumRequeues("shop/web") != 0 {
			t.Errorf("%d tries, and %d are counted against the next one", tries, c.queue.NumRequeues("shop/web"))
		}
	})
}

// serve returns a client that lists Deployments, and what it watches.
func serve(all ...appsv1.Deployment) (kubernetes.Interface, *watch.RaceFreeFakeWatcher) {
	client, watcher := &fake.Clientset{}, watch.NewRaceFreeFake()
	client.AddReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &appsv1.DeploymentList{Items: all}, nil
	})
	client.AddWatchReactor("deployments", clienttesting.DefaultWatchReactor(watcher, nil))
	return client, watcher
}

// All that was seen is handled, a Deployment that is deleted too, and the worker has ended before run returns.
func TestWhatIsSeenIsHandledBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		c := newController(&cache.FakeCustomStore{GetByKeyFunc: func(string) (any, bool, error) {
			time.Sleep(time.Second)
			handled++
			return nil, false, nil
		}}, nil)
		web := deployment("a", 1, 1, yes)
		client, watcher := serve(*web)
		ctx, terminate := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.run(ctx, appsinformers.NewDeploymentInformer(client, "shop", 0, nil)) }()
		time.Sleep(10 * time.Second)
		watcher.Modify(web)
		time.Sleep(10 * time.Second)
		watcher.Delete(web)
		synctest.Wait()
		terminate()
		if err := <-ended; err != nil || handled != 3 {
			t.Errorf("%d of 3 are handled (%v)", handled, err)
		}
	})
}

// What was recorded, and is logged, is reported before the end, though eventd is away for longer than a broadcaster drains by
// default.
func TestWhatIsRecordedIsReportedBeforeTheEnd(t *testing.T) {
	for range 20 { // how much is in the queue at the end is up to chance
		synctest.Test(t, reportAndEnd)
	}
}

func reportAndEnd(t *testing.T) {
	const count = 90 // a watch has 100
	var logged atomic.Int64
	ctx, terminate := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
		if strings.Contains(line, "Event occurred") {
			logged.Add(1)
		}
	}, funcr.Options{})))
	defer terminate()
	reported := intaketest.Written()
	intake := intaketest.Serve(t, reported)
	back := make(chan struct{})
	eventd := &rest.Config{Host: "https://eventd.kube-system.svc", Transport: transport(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-back:
			intake.ServeHTTP(w, req)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	named := func(i int, ready int32, available corev1.ConditionStatus) *appsv1.Deployment {
		d := deployment("a", ready, 1, available)
		d.Name = fmt.Sprint("web-", i)
		return d
	}
	var all []appsv1.Deployment
	for i := range count {
		all = append(all, *named(i, 0, no))
	}
	client, watcher := serve(all...)
	ended := make(chan error)
	go func() { ended <- control(ctx, client, "shop", eventd) }()
	time.Sleep(time.Second) // the informer's cache is synced
	watcher.Modify(named(0, 1, yes))
	time.Sleep(time.Second)
	for i := 1; i < count; i++ {
		watcher.Modify(named(i, 1, yes))
	}
	time.AfterFunc(2*pipeline.DefaultOptions().DrainTimeout, func() { close(back) })
	began := time.Now()
	terminate()
	if err := <-ended; err != nil || time.Since(began) > drainTimeout {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	occurrences := reported.Occurrences()
	if n := len(occurrences); n == 0 || int64(n) != logged.Load() {
		t.Fatalf("%d are reported, and %d were recorded", n, logged.Load())
	}
	if e := occurrences[0].Event; e.Reason != "Available" || e.InvolvedObject.Kind != "Deployment" || e.InvolvedObject.UID != "a" ||
		e.ReportingController != "example.com/controller" {
		t.Errorf("%+v is reported", e)
	}
}

// transport serves requests without a network.
type transport http.HandlerFunc

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	t(w, req)
	return w.Result(), nil
}

// A kubelet kills what has not ended by then.
func TestControllerHasTimeToEnd(t *testing.T) {
	manifest, err := os.ReadFile("deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(manifest, &d); err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(ptr.Deref(d.Spec.Template.Spec.TerminationGracePeriodSeconds, 0)) * time.Second
	if grace < drainTimeout+5*time.Second {
		t.Errorf("it takes up to %s to end, and is killed after %s", drainTimeout, grace)
	}
}

func TestWrongFlagsAreRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"-server is required": nil,
		`"extra"`:             {"-server=https://localhost", "extra"},
		"-rate":               {"-rate=1"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
