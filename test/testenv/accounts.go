package testenv

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/eventd/eventd/test/await"
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

// Grant gives a ServiceAccount a Role with rules in its namespace, and returns when
// the authorizer has seen it.
func (c *ControlPlane) Grant(t testing.TB, namespace, account string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(c.Config())
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules,
	}, metav1.CreateOptions{})
	_, bindErr := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
					User: User(namespace, account),
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: group, Resource: rule.Resources[0], Namespace: namespace,
						Name: strings.Join(rule.ResourceNames, ""), // of one, if any
					},
				})
			}
		}
	}
	if err := WaitAllowed(t.Context(), client, reviews...); err != nil {
		t.Fatal(err)
	}
}

// User is the user name of a ServiceAccount.
func User(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// WaitAllowed waits until the authorizer allows what is reviewed: it sees new Roles
// and bindings with a delay.
func WaitAllowed(ctx context.Context, client kubernetes.Interface, reviews ...authorizationv1.SubjectAccessReviewSpec) error {
	for _, review := range reviews {
		err := await.Success(ctx, await.Timeout, func() error {
			answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
				&authorizationv1.SubjectAccessReview{Spec: review}, metav1.CreateOptions{})
			if err != nil {
				return await.Permanent(err)
			}
			if !answer.Status.Allowed {
				return fmt.Errorf("%s may not %v%v", review.User, review.ResourceAttributes, review.NonResourceAttributes)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteKubeconfig writes config as a kubeconfig, with certificates and token
// embedded and readable by the owner only.
func WriteKubeconfig(path string, config *rest.Config) error {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	const name = "testenv"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
			InsecureSkipTLSVerify:    config.Insecure,
			TLSServerName:            config.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
			TokenFile:             config.BearerTokenFile,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
}
