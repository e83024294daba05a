package main

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
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

// prepare gives every part its account and its rights, and waits until the
// apiserver goes by them.
func (c *cluster) prepare(ctx context.Context) error {
	// An earlier run may have been in a hurry at its end.
	err := c.awaitNamespaceGone(ctx, controllerPatience)
	if err != nil {
		return err
	}
	if c.applied, err = newManifests(c.config); err != nil {
		return err
	}
	// Not the Deployment: the replicas are processes of this machine.
	for _, file := range []string{"deploy/serviceaccount.yaml", "deploy/rbac.yaml"} {
		if err := c.applied.applyFile(ctx, file); err != nil {
			return err
		}
	}
	if err := c.applied.applyDir(ctx, "examples/feeder"); err != nil {
		return err
	}
	if err := c.applied.apply(ctx, demo); err != nil {
		return fmt.Errorf("applying what this run needs: %w", err)
	}
	say("applied the account and the rights of deploy/, and those of the client and of this view")
	return c.waitForRights(ctx)
}

// waitForRights waits until RBAC has taken notice, by asking for a right of
// every account: the last one that its manifests give it.
func (c *cluster) waitForRights(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("the rights of the accounts did not take effect within 30s"))
	defer cancel()
	for _, review := range []authorizationv1.SubjectAccessReviewSpec{
		{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews",
		}},
		{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication",
		}},
		{User: eventdAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: demoNamespace, Name: "eventd",
		}},
		{User: feederAccount.String(), ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "patch", Group: "events.k8s.io", Resource: "events", Namespace: demoNamespace,
		}},
		{User: viewerAccount.String(), NonResourceAttributes: &authorizationv1.NonResourceAttributes{
			Verb: "get", Path: "/metrics",
		}},
	} {
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
				&authorizationv1.SubjectAccessReview{Spec: review}, metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
			return answer.Status.Allowed, nil
		})
		if err != nil {
			return fmt.Errorf("rights of %s: %w", review.User, context.Cause(ctx))
		}
	}
	return nil
}

// token returns a token of an account: for the apiserver and all that ask it, if
// no audience is given.
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

// as returns a configuration for to, a server of this cluster, in the name of
// an account.
func (c *cluster) as(ctx context.Context, a account, to *rest.Config) (*rest.Config, error) {
	token, err := c.token(ctx, a)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(to)
	config.BearerToken = token
	return config, nil
}
