package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/notify"
)

// Where a kube-apiserver publishes the CA of client certificates.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
)

// publishedCATimeout limits how long a start waits for a CA.
const publishedCATimeout = 30 * time.Second

// publishedCA follows a CA that the cluster publishes: that of client certificates, or that of its front
// proxy, with which a kube-apiserver connects for the aggregated API.
//
// The providers of k8s.io/apiserver begin to load when requests are served. A client that connects before
// the CA of its certificate has loaded does not present it, and is anonymous for as long as its connection
// lives. So this provider has loaded before requests are served. It is no
// dynamiccertificates.ControllerRunner, because the server would run it again.
type publishedCA struct {
	dynamiccertificates.CAContentProvider

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
	changed   chan struct{} // has a value after a change
}

// caController is a provider of k8s.io/apiserver that has to be run.
type caController interface {
	dynamiccertificates.CAContentProvider
	dynamiccertificates.ControllerRunner
}

// followClientCA returns when the CA of client certificates is loaded, and follows it until stop is called.
// It returns nil if the cluster does not publish one.
func followClientCA(ctx context.Context, client kubernetes.Interface) (*publishedCA, error) {
	reading, cancel := withCATimeout(ctx)
	defer cancel()
	published, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(reading, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if published.Data[clientCAKey] == "" {
		klog.FromContext(ctx).Info("The cluster does not publish a CA of client certificates: clients are authenticated by tokens only")
		return nil, nil
	}
	controller, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"client-ca", metav1.NamespaceSystem, authenticationConfigMap, clientCAKey, client)
	if err != nil {
		return nil, err
	}
	return followCA(ctx, controller, controller)
}

// followFrontProxyCA returns when the CA of the cluster's front proxy is loaded, and follows all that the
// server verifies clients by until stop is called. It returns nil if there is nothing to wait for: the
// cluster publishes no front proxy, or flags set it.
func followFrontProxyCA(ctx context.Context, all dynamiccertificates.CAContentProvider, proxy *authenticatorfactory.RequestHeaderConfig) (*publishedCA, error) {
	controller, ok := all.(caController)
	if !ok || proxy == nil || len(proxy.UsernameHeaders.Value()) == 0 {
		return nil, nil
	}
	if _, published := proxy.CAContentProvider.(*options.DynamicRequestHeaderController); !published {
		return nil, nil
	}
	return followCA(ctx, controller, proxy.CAContentProvider)
}

// followCA runs a controller until stop is called. It returns when the awaited CA, which is a part of it,
// is loaded.
func followCA(ctx context.Context, controller caController, awaited dynamiccertificates.CAContentProvider) (*publishedCA, error) {
	ctx, cancel := withCATimeout(ctx)
	defer cancel()
	c := &publishedCA{CAContentProvider: controller, changed: make(chan struct{}, 1)}
	controller.AddListener(c) // before Run, which reads its listeners without a lock
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = stop
	c.running.Go(func() { controller.Run(running, 1) })
	for len(awaited.CurrentCABundleContent()) == 0 {
		select {
		case <-c.changed:
		case <-ctx.Done():
			c.stop()
			return nil, context.Cause(ctx)
		}
	}
	return c, nil
}

func withCATimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, publishedCATimeout, fmt.Errorf("no answer within %s", publishedCATimeout))
}

// stop stops following changes. The loaded CA stays in use. c may be nil.
func (c *publishedCA) stop() {
	if c == nil {
		return
	}
	c.cancel()
	c.running.Wait()
}

// AddListener implements dynamiccertificates.Notifier.
func (c *publishedCA) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// Enqueue implements dynamiccertificates.Listener. It is called when the CA changed.
func (c *publishedCA) Enqueue() {
	notify.Wake(c.changed)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
}
