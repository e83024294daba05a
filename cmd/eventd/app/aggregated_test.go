package app

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

const apiServiceName = "v1alpha1.query.eventd.io"

// aggregated is the query API as the apiserver serves it.
type aggregated struct {
	r        *replicas
	services dynamic.ResourceInterface // APIServices
	// flags give a replica the certificate that the apiserver verifies.
	flags []string
}

// aggregate installs deploy/apiservice until the end of the test. There is no network of a cluster here, so
// the Service is the name of this machine.
func (r *replicas) aggregate() *aggregated {
	r.t.Helper()
	dir := r.t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("eventd.kube-system.svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(err, os.WriteFile(certFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		r.t.Fatal(err)
	}
	a := &aggregated{
		r:        r,
		services: dynamic.NewForConfigOrDie(r.cluster.Config()).Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}),
		flags:    []string{"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile},
	}
	_, err = r.client.CoreV1().Services(metav1.NamespaceSystem).Create(r.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "eventd"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, r.cluster.Apply(r.t.Context(), "../../deploy/apiservice")); err != nil {
		r.t.Fatal(err)
	}
	a.patch(`{"spec": {"caBundle": %q}}`, base64.StdEncoding.EncodeToString(certificate))
	r.t.Cleanup(func() {
		ctx, cancel := await.Context(r.t)
		defer cancel()
		if err := errors.Join(
			a.services.Delete(ctx, apiServiceName, metav1.DeleteOptions{}),
			r.client.CoreV1().Services(metav1.NamespaceSystem).Delete(ctx, "eventd", metav1.DeleteOptions{}),
		); err != nil {
			r.t.Error(err)
		}
	})
	return a
}

func (a *aggregated) patch(format string, args ...any) {
	a.r.t.Helper()
	if _, err := a.services.Patch(a.r.t.Context(), apiServiceName, types.MergePatchType, fmt.Appendf(nil, format, args...), metav1.PatchOptions{}); err != nil {
		a.r.t.Fatal(err)
	}
}

// passTo has the apiserver pass queries on to one replica, and returns when it does.
func (a *aggregated) passTo(c *child) {
	a.r.t.Helper()
	address, err := url.Parse(c.config.Host)
	if err != nil {
		a.r.t.Fatal(err)
	}
	a.patch(`{"spec": {"service": {"port": %s}}}`, address.Port())
	admin := a.r.administrator()
	var direct, passed v1alpha1.PipelineStatus
	if code := as(a.r.t, c, admin).get("status?local=true", &direct); code != http.StatusOK {
		a.r.t.Fatalf("the status is answered %d", code)
	}
	await.Until(a.r.t, "the apiserver passes queries on to the replica", func() bool {
		code := through(a.r.t, admin).get("status?local=true", &passed)
		return code == http.StatusOK && passed.Replica.Identity == direct.Replica.Identity
	})
}

// through returns a reader that queries the apiserver, with its own credentials.
func through(t testing.TB, account *rest.Config) *reader {
	t.Helper()
	client, err := rest.HTTPClientFor(account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &reader{t, client, account.Host + queryRoot}
}

// One user who comes through the apiserver has no more than a user who comes directly, and takes nothing of
// another one who comes on the same connections.
func TestUsersOfTheApiserverHaveLimitsOfTheirOwn(t *testing.T) {
	r := newReplicas(t)
	replica.DeployObserve(t, r.cluster)
	api := r.aggregate()
	alone := r.start(append(api.flags, "--leader-elect=false", "--history-bytes=8Mi")...)
	api.passTo(alone)
	reader := func() (account *rest.Config, about string) {
		namespace := r.cluster.Namespace(t) // the ServiceAccounts of one are one tenant
		account = r.cluster.ServiceAccount(t, namespace, "reader")
		r.cluster.Grant(t, namespace, "reader", mayRead("list", "watch"))
		return account, "?namespace=" + namespace
	}
	noisy, about := reader()
	quiet, aboutOther := reader()
	codes := map[int]int{}
	for range 40 {
		response := through(t, noisy).open(t.Context(), "tail"+about+"&watch=true")
		defer func() { _ = response.Body.Close() }()
		codes[response.StatusCode]++
	}
	// A quarter of 64, the part of one user of a tenant in one namespace, as directly.
	if codes[http.StatusOK] != 16 || codes[http.StatusTooManyRequests] != 24 {
		t.Errorf("the watches of one user are answered %v", codes)
	}
	if code := as(t, alone, noisy).begin("tail" + about + "&watch=true"); code != http.StatusTooManyRequests {
		t.Errorf("one more, directly, is answered %d", code)
	}
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for range 100 {
		flood.Go(func() {
			flooding := through(t, noisy)
			for {
				select {
				case <-stop:
					return
				default:
					_ = flooding.get("timeline"+about, nil)
				}
			}
		})
	}
	for range 50 {
		if code := through(t, quiet).get("timeline"+aboutOther, nil); code != http.StatusOK {
			t.Errorf("another user is answered %d", code)
		}
	}
	if code := through(t, quiet).begin("tail" + aboutOther + "&watch=true"); code != http.StatusOK {
		t.Errorf("the watch of another user is answered %d", code)
	}
	close(stop)
	flood.Wait()
	alone.terminate(0)
}

// Controllers of a cluster list, watch and delete what discovery says that they can, and the apiserver
// reads a description of each API again and again.
func TestAggregatedAPIIsDiscovered(t *testing.T) {
	r := newReplicas(t)
	api := r.aggregate()
	alone := r.start(append(api.flags, "--leader-elect=false")...)
	api.passTo(alone)
	clients := r.client.Discovery()
	await.Until(t, "the apiserver has the resources", func() bool {
		_, all, err := clients.ServerGroupsAndResources()
		if err != nil {
			return false
		}
		for _, list := range all {
			if list.GroupVersion != v1alpha1.GroupVersion.String() {
				continue
			}
			for _, resource := range list.APIResources {
				if resource.Namespaced || !slices.Equal(resource.Verbs, metav1.Verbs{"get"}) {
					t.Errorf("%s is namespaced: %t, %v", resource.Name, resource.Namespaced, resource.Verbs)
				}
			}
			return len(list.APIResources) > 0
		}
		return false
	})
	await.Until(t, "the apiserver has a description", func() bool {
		text, err := clients.RESTClient().Get().AbsPath("/openapi/v3/apis/" + v1alpha1.GroupVersion.String()).DoRaw(t.Context())
		return err == nil && strings.Contains(string(text), `"title":"eventd"`)
	})
	alone.terminate(0)
}
