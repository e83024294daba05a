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

// Where a kube-apiserver publishes what delegated authentication starts from.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
)

// clientCATimeout bounds how long a start waits for the CA.
const clientCATimeout = 30 * time.Second

// clientCA follows the CA that the cluster's client certificates are signed by.
//
// The provider of apiserver that it stands for begins to load when requests are
// served. Whoever presents a certificate before it is done is taken for
// anonymous and refused, and stays so for as long as the connection lives. So
// this one runs before, is loaded when serving begins, and is no
// dynamiccertificates.ControllerRunner, which would be run again.
type clientCA struct {
	dynamiccertificates.CAContentProvider

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
	loaded    chan struct{} // closed once there is a CA
}

// followClientCA returns when the CA is loaded; it is followed until stop. It
// returns nil if the cluster does not publish one.
func followClientCA(ctx context.Context, client kubernetes.Interface) (*clientCA, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, clientCATimeout, fmt.Errorf("no answer within %s", clientCATimeout))
	defer cancel()
	published, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if published.Data[clientCAKey] == "" {
		klog.FromContext(ctx).Info("The cluster does not publish a CA of client certificates: callers are known by their tokens only")
		return nil, nil
	}
	controller, err := dynamiccertificates.NewDynamicCAFromConfigMapController(
		"client-ca", metav1.NamespaceSystem, authenticationConfigMap, clientCAKey, client)
	if err != nil {
		return nil, err
	}
	c := &clientCA{CAContentProvider: controller, loaded: make(chan struct{})}
	controller.AddListener(c) // before it runs: it does not lock its listeners
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

// stop ends the following. What was loaded stays in use.
func (c *clientCA) stop() {
	c.cancel()
	c.running.Wait()
}

// AddListener adds who is told when the CA changes.
func (c *clientCA) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// Enqueue is called when there is another CA than before.
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
