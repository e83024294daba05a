package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Where a kube-apiserver publishes the CA of client certificates.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
)

// clientCATimeout limits how long a start waits for the CA.
const clientCATimeout = 30 * time.Second

// clientCA follows the cluster's CA of client certificates.
//
// The provider of k8s.io/apiserver begins to load when requests are served. A client
// that connects before it has loaded is anonymous, for as long as its connection
// lives. So this provider has loaded before requests are served. It is no
// dynamiccertificates.ControllerRunner, because the server would run it again.
type clientCA struct {
	dynamiccertificates.CAContentProvider

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
	loaded    chan struct{} // closed when the CA is loaded
}

// followClientCA returns when the CA is loaded, and follows it until stop is called.
// It returns nil if the cluster does not publish one.
func followClientCA(ctx context.Context, client kubernetes.Interface) (*clientCA, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, clientCATimeout, fmt.Errorf("no answer within %s", clientCATimeout))
	defer cancel()
	published, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
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
	c := &clientCA{CAContentProvider: controller, loaded: make(chan struct{})}
	controller.AddListener(c) // before Run, which reads its listeners without a lock
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.cancel = stop
	c.running.Go(func() { controller.Run(running, 1) })
	select {
	case <-c.loaded:
		return c, nil
	case <-ctx.Done():
		c.stop()
		return nil, context.Cause(ctx)
	}
}

// stop stops following changes. The loaded CA stays in use.
func (c *clientCA) stop() {
	c.cancel()
	c.running.Wait()
}

// AddListener implements dynamiccertificates.Notifier.
func (c *clientCA) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// Enqueue implements dynamiccertificates.Listener. It is called when the CA changed.
func (c *clientCA) Enqueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.loaded:
	default:
		close(c.loaded)
	}
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
}
