// Command controller is a controller that reports through eventd. It watches the Deployments of a namespace, and reports when
// one becomes available or unavailable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/examples/internal/clientconfig"
	"github.com/eventd/eventd/pkg/pipeline"
)

// drainTimeout is for reporting what is pending at the end. It is less than terminationGracePeriodSeconds of deployment.yaml.
const drainTimeout = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "controller: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("controller", flag.ContinueOnError)
	kubeconfig := fs.String("kubeconfig", "", "`file` that says where the kube-apiserver is (default: as kubectl finds it, or the ServiceAccount of the Pod)")
	server := fs.String("server", "", "`URL` of eventd")
	certificateAuthority := fs.String("certificate-authority", "", "`file` that eventd's certificate is verified with")
	namespace := fs.String("namespace", "default", "`namespace` of the Deployments")
	switch err := fs.Parse(args); {
	case err != nil:
		return err
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case *server == "":
		return errors.New("-server is required")
	}
	config, err := clientconfig.Load(*kubeconfig, rest.InClusterConfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return control(ctx, client, *namespace, clientconfig.ForServer(config, *server, *certificateAuthority))
}

// control runs a controller until ctx ends. An error says that reports are lost.
func control(ctx context.Context, client kubernetes.Interface, namespace string, eventd *rest.Config) error {
	logger := klog.FromContext(ctx)
	// Recording outlives ctx: the controller still handles what is in its queue.
	background := context.WithoutCancel(ctx)
	broadcaster := pipeline.NewEventsBroadcaster(nil)
	if err := broadcaster.StartRecordingToEventd(background, eventd); err != nil {
		return err
	}
	if _, err := broadcaster.StartLogging(logger); err != nil {
		return err
	}
	informer := appsinformers.NewDeploymentInformer(client, namespace, 0, cache.Indexers{})
	c := newController(informer.GetStore(), broadcaster.NewRecorder(scheme.Scheme, "example.com/controller"))
	err := c.run(ctx, informer)
	logger.Info("Reporting what is pending", "timeout", drainTimeout)
	drain, cancel := context.WithTimeout(background, drainTimeout)
	defer cancel()
	return errors.Join(err, broadcaster.ShutdownWithContext(drain))
}

type controller struct {
	deployments cache.Store
	queue       workqueue.TypedRateLimitingInterface[string] // of keys of Deployments
	recorder    events.EventRecorder
	before      map[string]availability // by key; only the worker uses it
}

// availability is that of a Deployment.
type availability struct {
	of        types.UID
	available bool
}

func newController(deployments cache.Store, recorder events.EventRecorder) *controller {
	return &controller{
		deployments: deployments,
		queue:       workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		recorder:    recorder,
		before:      map[string]availability{},
	}
}

// run returns when ctx has ended, and the informer and the worker with it.
func (c *controller) run(ctx context.Context, informer cache.SharedIndexInformer) error {
	enqueue := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			c.queue.Add(key)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
		DeleteFunc: enqueue,
	})
	if err != nil {
		return err
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
		for c.next(ctx) {
		}
	})
	informer.RunWithContext(ctx)
	c.queue.ShutDown()
	worker.Wait()
	return nil
}

// next handles a key of the queue. It returns false when the queue has ended and is empty.
func (c *controller) next(ctx context.Context) bool {
	key, ended := c.queue.Get()
	if ended {
		return false
	}
	defer c.queue.Done(key)
	if err := c.sync(key); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not handle a Deployment; trying again", "deployment", key)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// sync reports about a Deployment if its availability has changed since the last call. What it sees first is no change: it
// would be reported again after each start.
func (c *controller) sync(key string) error {
	object, exists, err := c.deployments.GetByKey(key)
	if err != nil {
		return err
	}
	if !exists {
		delete(c.before, key)
		return nil
	}
	deployment := object.(*appsv1.Deployment)
	if deployment.DeletionTimestamp != nil {
		return nil // its replicas are removed, as somebody wants it
	}
	before, now := c.before[key], availability{deployment.UID, isAvailable(deployment)}
	c.before[key] = now
	if before.of != now.of || before.available == now.available {
		return nil
	}
	eventtype, reason := corev1.EventTypeNormal, "Available"
	if !now.available {
		eventtype, reason = corev1.EventTypeWarning, "Unavailable"
	}
	c.recorder.Eventf(deployment, nil, eventtype, reason, "CheckAvailability", "%d of %d replicas are available",
		deployment.Status.AvailableReplicas, ptr.Deref(deployment.Spec.Replicas, 1))
	return nil
}

func isAvailable(deployment *appsv1.Deployment) bool {
	for _, condition := range deployment.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
