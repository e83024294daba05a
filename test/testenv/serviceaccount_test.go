package testenv_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

const account = "reader"

// Each way to get a configuration for a ServiceAccount must give exactly the
// rights that RBAC gives the account.
func TestServiceAccountMayDoWhatItIsGrantedAndNoMore(t *testing.T) {
	cluster := testenv.Shared(t)
	for name, configFor := range map[string]func(*testing.T, string) *rest.Config{
		"helper": func(t *testing.T, namespace string) *rest.Config {
			cluster.ServiceAccount(t, namespace, account) // twice is fine
			return cluster.ServiceAccount(t, namespace, account)
		},
		"helper, written to a kubeconfig": func(t *testing.T, namespace string) *rest.Config {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			if err := testenv.WriteKubeconfig(path, cluster.ServiceAccount(t, namespace, account)); err != nil {
				t.Fatal(err)
			}
			requirePrivate(t, path)
			return load(t, path)
		},
		"command": func(t *testing.T, namespace string) *rest.Config {
			cluster.ServiceAccount(t, namespace, account) // the command makes no account
			return load(t, tokenCommand(t, cluster, namespace))
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			client := clientFor(t, configFor(t, namespace))
			list := func(ctx context.Context, namespace string) error {
				_, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
				return err
			}
			if err := list(t.Context(), namespace); !apierrors.IsForbidden(err) {
				t.Fatalf("without a RoleBinding: %v, want 403", err)
			}
			cluster.Grant(t, namespace, account, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}})
			if err := list(t.Context(), namespace); err != nil {
				t.Errorf("with a RoleBinding: %v", err)
			}
			if err := list(t.Context(), metav1.NamespaceDefault); !apierrors.IsForbidden(err) {
				t.Errorf("in another namespace: %v, want 403", err)
			}
		})
	}
}

func TestTokenOfAnotherAudienceIsForThatAudienceOnly(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	config := cluster.ServiceAccount(t, namespace, account, "eventd")
	if _, err := clientFor(t, config).Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("apiserver: %v, want 401", err)
	}
	admin := clientFor(t, cluster.Config())
	for audience, want := range map[string]bool{"eventd": true, "another": false} {
		review, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: config.BearerToken, Audiences: []string{audience}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Authenticated != want {
			t.Errorf("TokenReview for audience %q says %+v", audience, review.Status)
		}
		if user := "system:serviceaccount:" + namespace + ":" + account; want && review.Status.User.Username != user {
			t.Errorf("user is %q, want %q", review.Status.User.Username, user)
		}
	}
}

func TestAnonymousRequestsAreKnownAsSuch(t *testing.T) {
	client := clientFor(t, rest.AnonymousClientConfig(testenv.Shared(t).Config()))
	if _, err := client.Discovery().ServerVersion(); err != nil {
		t.Errorf("/version: %v", err)
	}
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("namespaces: %v, want 403", err)
	}
}

// What a server that delegates authentication reads at its start.
func TestDelegatedAuthenticationFindsItsSettings(t *testing.T) {
	client := clientFor(t, testenv.Shared(t).Config())
	published, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names"} {
		if published.Data[key] == "" {
			t.Errorf("%s is not published", key)
		}
	}
}

func TestAdmissionIsTheOneOfAKubeAPIServer(t *testing.T) {
	client := clientFor(t, testenv.Shared(t).Config())
	// NamespaceLifecycle: the default namespace is for ever.
	err := client.CoreV1().Namespaces().Delete(t.Context(), metav1.NamespaceDefault, metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("deleting the default namespace: %v, want 403", err)
	}
}

func tokenCommand(t *testing.T, cluster *testenv.ControlPlane, namespace string) string {
	t.Helper()
	binary := controlPlane(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	args := []string{"token", "--kubeconfig", cluster.Kubeconfig(), "--namespace", namespace, "--serviceaccount", account, "--out", path}
	if output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	requirePrivate(t, path)
	missing := append(slices.Clone(args[:len(args)-1]), filepath.Join(t.TempDir(), "kubeconfig"), "--serviceaccount", "missing")
	if output, err := exec.CommandContext(t.Context(), binary, missing...).CombinedOutput(); err == nil {
		t.Errorf("token of a missing account: %s", output)
	}
	return path
}

func load(t *testing.T, path string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
