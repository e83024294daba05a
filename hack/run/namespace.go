package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// controllerPatience is how long a namespace controller may take to set a condition of
// a deleted namespace. After that there is none.
const controllerPatience = 5 * time.Second

// awaitNamespaceGone waits until the demo's namespace is gone, if it is being deleted:
// a new one cannot be made before. With a kube-apiserver alone there is no namespace
// controller, so this function does its work.
func (c *cluster) awaitNamespaceGone(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("the namespace %s has been Terminating for a minute", demoNamespace))
	defer cancel()
	began := time.Now()
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		namespace, err := c.client.CoreV1().Namespaces().Get(ctx, demoNamespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		case namespace.DeletionTimestamp == nil:
			return true, nil
		case len(namespace.Status.Conditions) == 0 && time.Since(began) >= patience:
			return false, c.finalize(ctx, namespace)
		default:
			return false, nil
		}
	})
	if wait.Interrupted(err) {
		return context.Cause(ctx)
	}
	return err
}

// finalize deletes the Events in the namespace of an ended run, and then its
// finalizers.
func (c *cluster) finalize(ctx context.Context, namespace *corev1.Namespace) error {
	if err := c.client.CoreV1().Events(namespace.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	namespace.Spec.Finalizers = nil
	_, err := c.client.CoreV1().Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or changed: the caller tries again
	}
	return err
}
