package main

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/manifests"
	"github.com/eventd/eventd/test/testenv"
)

// demoNamespace is where the feeder's Pods are; examples/feeder/rbac.yaml.
const demoNamespace = "eventd-demo"

// account is a ServiceAccount that one of the parts runs as.
type account struct{ namespace, name string }

func (a account) String() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

var (
	eventdAccount = account{metav1.NamespaceSystem, "eventd"}
	feederAccount = account{demoNamespace, "feeder"}
	viewerAccount = account{demoNamespace, "viewer"}
)

// tokenValidity is what is asked for; nothing here renews a token.
const tokenValidity = 24 * time.Hour

// prepare gives every part its account and its rights, and waits until these are in
// force.
func (c *cluster) prepare(ctx context.Context) error {
	// An earlier run may have ended before its namespace was gone.
	err := c.awaitNamespaceGone(ctx, controllerPatience)
	if err != nil {
		return err
	}
	if c.applied, err = manifests.New(c.config, "eventd-run"); err != nil {
		return err
	}
	// The replicas are processes of this machine, so the Deployment is left out. demo.yaml
	// has a Lease, the cursors, and the account that may read /metrics.
	for _, path := range []string{"deploy/intake/serviceaccount.yaml", "deploy/intake/rbac.yaml", "examples/feeder/rbac.yaml", "hack/run/demo.yaml"} {
		if err := c.applied.Apply(ctx, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	say("applied the account and the rights of deploy/, and those of the client and of this view")
	return c.waitForRights(ctx)
}

// waitForRights waits until the authorizer has seen the last right of every account.
func (c *cluster) waitForRights(ctx context.Context) error {
	return testenv.WaitAllowed(ctx, c.client,
		authorizationv1.SubjectAccessReviewSpec{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews",
		}},
		authorizationv1.SubjectAccessReviewSpec{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication",
		}},
		authorizationv1.SubjectAccessReviewSpec{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: demoNamespace, Name: "eventd",
		}},
		authorizationv1.SubjectAccessReviewSpec{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Resource: "events",
		}},
		authorizationv1.SubjectAccessReviewSpec{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Resource: "configmaps", Namespace: demoNamespace, Name: "eventd-cursors",
		}},
		authorizationv1.SubjectAccessReviewSpec{User: feederAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: "events.k8s.io", Resource: "events", Namespace: demoNamespace,
		}},
		authorizationv1.SubjectAccessReviewSpec{User: viewerAccount.String(), NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Verb: "get", Path: "/metrics",
		}},
	)
}

// token returns a token of an account, for the apiserver if no audience is given.
func (c *cluster) token(ctx context.Context, a account, audiences ...string) (string, error) {
	seconds := int64(tokenValidity.Seconds())
	token, err := c.client.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of %s: %w", a, err)
	}
	return token.Status.Token, nil
}

// as returns a configuration for the server to, with a token of an account.
func (c *cluster) as(ctx context.Context, a account, to *rest.Config) (*rest.Config, error) {
	token, err := c.token(ctx, a)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(to)
	config.BearerToken = token
	return config, nil
}
