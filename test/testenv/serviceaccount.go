package testenv

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// tokenValidity outlives any run of tests; nothing renews the token.
const tokenValidity = 24 * time.Hour

// ServiceAccount makes a ServiceAccount, if it is not there, and returns a
// configuration with a token of it. The account has no rights but those of
// every account, until a RoleBinding gives it some. Audiences other than the
// apiserver's make a token that the apiserver itself refuses.
func (c *ControlPlane) ServiceAccount(t testing.TB, namespace, name string, audiences ...string) *rest.Config {
	t.Helper()
	config, err := c.TokenConfig(t.Context(), namespace, name, audiences...)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return config
}

// TokenConfig is ServiceAccount for programs that are not tests.
func (c *ControlPlane) TokenConfig(ctx context.Context, namespace, name string, audiences ...string) (*rest.Config, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	accounts := client.CoreV1().ServiceAccounts(namespace)
	_, err = accounts.Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("making ServiceAccount %s/%s: %w", namespace, name, err)
	}
	seconds := int64(tokenValidity.Seconds())
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := unlimited(rest.AnonymousClientConfig(c.config))
	config.BearerToken = token.Status.Token
	return config, nil
}
