package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// cluster is a kube-apiserver of one run, in which no Events are stored at first.
type cluster struct {
	plane  *testenv.ControlPlane
	dir    string // for files of the processes
	author *author
	// account and peer are the credentials of eventd, for the apiserver and for other replicas.
	account, peer *rest.Config
}

// namespaces is how many namespaces the Events are in.
const namespaces = 4

// withCluster calls do with a new cluster, in which eventd has the rights of deploy/.
func withCluster(ctx context.Context, do func(*cluster) error) (err error) {
	dir, err := os.MkdirTemp("", "delivery-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	plane, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	c := &cluster{plane: plane, dir: dir}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	return do(c)
}

func (c *cluster) prepare(ctx context.Context) error {
	for _, file := range []string{"deploy/observe/serviceaccount.yaml", "deploy/observe/rbac.yaml", "deploy/observe/cursors.yaml"} {
		if err := c.plane.Apply(ctx, file); err != nil {
			return err
		}
	}
	var accountErr, peerErr error
	c.account, accountErr = c.plane.TokenConfig(ctx, metav1.NamespaceSystem, "eventd-observe")
	c.peer, peerErr = c.plane.TokenConfig(ctx, metav1.NamespaceSystem, "eventd-observe", "eventd")
	client, clientErr := kubernetes.NewForConfig(c.plane.Config())
	if err := errors.Join(accountErr, peerErr, clientErr); err != nil {
		return err
	}
	user := testenv.User(metav1.NamespaceSystem, "eventd-observe")
	err := testenv.WaitAllowed(ctx, client,
		authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Resource: "events"}},
		authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "eventd-cursors",
		}})
	if err != nil {
		return err
	}
	var names []string
	for i := range namespaces {
		names = append(names, fmt.Sprint("bench-", i))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	c.author, err = newAuthor(c.plane.Config(), names)
	return err
}

// file writes a file of a process, and returns its path.
func (c *cluster) file(name, content string) (string, error) {
	path := filepath.Join(c.dir, name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

// usage is that of the kube-apiserver and etcd, which are one process.
func (c *cluster) usage() (usage, error) { return usageOf(c.plane.PID()) }
