package client_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
	"github.com/eventd/eventd/test/testenv"
)

// authenticated answers as eventd in a real cluster: it authenticates callers by a TokenReview, and by the CA of
// client certificates, and says in status who they are.
func authenticated(t *testing.T, cluster *testenv.ControlPlane) http.Handler {
	clients := kubernetes.NewForConfigOrDie(cluster.Config())
	authentication, err := clients.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(authentication.Data["client-ca-file"])) {
		t.Fatal("the cluster has no CA of client certificates")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		user := ""
		if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
			review, err := clients.AuthenticationV1().TokenReviews().Create(req.Context(),
				&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated {
				user = review.Status.User.Username
			}
		} else if len(req.TLS.PeerCertificates) > 0 {
			leaf := req.TLS.PeerCertificates[0]
			if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
				user = leaf.Subject.CommonName
			}
		}
		if user == "" {
			servertest.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized").ServeHTTP(w, req)
			return
		}
		servertest.WriteJSON(w, http.StatusOK, v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: user}})
	})
}

// lead writes a Lease that names a server as the leader.
func lead(t *testing.T, cluster *testenv.ControlPlane, namespace, identity, address, fingerprint string) {
	t.Helper()
	leases := kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1().Leases(namespace)
	if _, err := leases.Create(t.Context(), servertest.Lease(namespace, identity, address, fingerprint), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// who returns who the server says the caller is.
func who(t *testing.T, config *rest.Config, options client.Options) (string, error) {
	t.Helper()
	c, err := client.New(config, options)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var status v1alpha1.PipelineStatus
	err = c.Get(t.Context(), "status", nil, &status)
	return status.Replica.Identity, err
}

// execPlugin returns the configuration of a user whom a plugin authenticates.
func execPlugin(t *testing.T, cluster *rest.Config, status any) *rest.Config {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cluster)
	config.QPS = -1
	config.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", Args: []string{"-c", `printf %s "$CREDENTIAL"; case $KUBERNETES_EXEC_INFO in *"$WANTED"*) ;; *) exit 1;; esac`},
		// A plugin that wants the cluster gets that of the kubeconfig, not eventd.
		Env:                []clientcmdapi.ExecEnvVar{{Name: "CREDENTIAL", Value: string(text)}, {Name: "WANTED", Value: cluster.Host}},
		ProvideClusterInfo: true,
		InteractiveMode:    clientcmdapi.NeverExecInteractiveMode,
	}
	return config
}

func TestCallersUseTheCredentialsOfTheirKubeconfig(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	account := cluster.ServiceAccount(t, namespace, "jane")
	cluster.Grant(t, namespace, "jane", rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"eventd"}, Verbs: []string{"get"}})
	eventd := servertest.NewEventd(t, authenticated(t, cluster))
	lead(t, cluster, namespace, servertest.Identity, eventd.Address(), eventd.Fingerprint())

	admin := cluster.Config()
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte(account.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	ofFile := rest.CopyConfig(account)
	ofFile.BearerToken, ofFile.BearerTokenFile = "", file

	jane := testenv.User(namespace, "jane")
	for _, test := range []struct {
		name   string
		config *rest.Config
		want   string
	}{
		{"token", account, jane},
		{"file of a token", ofFile, jane},
		{"client certificate", admin, certificateName(t, admin)},
		{"token of an exec plugin", execPlugin(t, account, map[string]string{"token": account.BearerToken}), jane},
		{"certificate of an exec plugin", execPlugin(t, admin, map[string]string{
			"clientCertificateData": string(admin.CertData), "clientKeyData": string(admin.KeyData)}), certificateName(t, admin)},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := client.DefaultOptions()
			options.LeaseNamespace = namespace
			got, err := who(t, test.config, options)
			if err != nil || got != test.want {
				t.Errorf("eventd sees %q, %v; want %q", got, err, test.want)
			}
		})
	}
	t.Run("no right to read the Lease", func(t *testing.T) {
		options := client.DefaultOptions()
		options.LeaseNamespace = namespace
		if _, err := who(t, cluster.ServiceAccount(t, namespace, "nobody"), options); !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
}

// certificateName is the user of a client certificate.
func certificateName(t *testing.T, config *rest.Config) string {
	t.Helper()
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

// The apiserver forwards over a websocket to the kubelet of a node, here to one whose Pods are on the loopback
// address.
func TestForwardingThroughTheAPIServerToAPod(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	clients := kubernetes.NewForConfigOrDie(cluster.Config())
	kubelet := httptest.NewTLSServer(http.HandlerFunc(servertest.ServePortForward))
	t.Cleanup(kubelet.Close)
	_, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	kubeletPort, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node, err := clients.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"},
		Status: corev1.NodeStatus{
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(kubeletPort)}},
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := clients.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: servertest.Pod, Labels: map[string]string{"app.kubernetes.io/name": "eventd"}},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "eventd", Image: "eventd"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Of the network of a cluster, which this machine does not reach.
	const podIP = "192.0.2.17"
	status := fmt.Sprintf(`{"status": {"phase": "Running", "podIP": %q, "podIPs": [{"ip": %[1]q}]}}`, podIP)
	if _, err := pods.Patch(t.Context(), servertest.Pod, "application/merge-patch+json", []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	eventd := servertest.NewEventd(t, authenticated(t, cluster))
	_, served, err := net.SplitHostPort(eventd.Address())
	if err != nil {
		t.Fatal(err)
	}

	account := func(name string, verbs ...string) *rest.Config {
		config := cluster.ServiceAccount(t, namespace, name)
		cluster.Grant(t, namespace, name,
			rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/portforward"}, Verbs: []string{"get", "create"}})
		return config
	}
	jane, mary := account("jane", "get"), account("mary", "get", "list")
	options := client.DefaultOptions()
	options.LeaseNamespace = namespace
	lead(t, cluster, namespace, servertest.Identity, net.JoinHostPort(podIP, served), eventd.Fingerprint())
	if got, err := who(t, jane, options); err != nil || got != testenv.User(namespace, "jane") {
		t.Errorf("eventd sees %q, %v", got, err)
	}

	// A Pod in the network of its node has another name than its host. It is found by its address.
	if err := clients.CoordinationV1().Leases(namespace).Delete(t.Context(), "eventd", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	lead(t, cluster, namespace, "node-1_abcdefgh", net.JoinHostPort(podIP, served), eventd.Fingerprint())
	if got, err := who(t, mary, options); err != nil || got != testenv.User(namespace, "mary") {
		t.Errorf("by the address of the Pod: eventd sees %q, %v", got, err)
	}

	other := cluster.ServiceAccount(t, namespace, "john")
	cluster.Grant(t, namespace, "john",
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}})
	before := len(eventd.Requests())
	if _, err := who(t, other, options); err == nil || !strings.Contains(err.Error(), `cannot create resource "pods/portforward"`) || len(eventd.Requests()) != before {
		t.Errorf("without the right to forward: %v", err)
	}
}
