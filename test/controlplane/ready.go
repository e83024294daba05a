package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeconfigutil "k8s.io/kubernetes/cmd/kubeadm/app/util/kubeconfig"
)

// readyInterval is how often a start is asked whether it is done. There is
// nothing to wait on: the kube-apiserver tells it by HTTP only.
const readyInterval = 50 * time.Millisecond

// waitReady returns once the kube-apiserver says that it is ready and has made
// the objects that it makes after that: the namespaces of a fresh cluster and
// the published settings that delegated authentication starts from.
func waitReady(ctx context.Context, admin *rest.Config) error {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	err = errors.New("not tried")
	waited := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
		err = ready(ctx, client)
		return err == nil, nil
	})
	if waited != nil {
		return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
	}
	return nil
}

func ready(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	const authentication = "extension-apiserver-authentication"
	published, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authentication, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file"} {
		if published.Data[key] == "" {
			return fmt.Errorf("ConfigMap %s has no %s yet", authentication, key)
		}
	}
	return nil
}

// announce writes the kubeconfig and then the ready line, in this order: who
// has read the line can read the file.
func announce(dir string, admin *rest.Config) error {
	kubeconfig, err := filepath.Abs(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		return err
	}
	// Everything is embedded, so that it may be copied elsewhere.
	config := kubeconfigutil.CreateWithCerts(admin.Host, "controlplane", "admin", admin.CAData, admin.KeyData, admin.CertData)
	if err := kubeconfigutil.WriteToDisk(kubeconfig, config); err != nil {
		return err
	}
	_, err = fmt.Printf("ready %s %s\n", admin.Host, kubeconfig)
	return err
}
