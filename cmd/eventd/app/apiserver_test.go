package app

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// goodToken authenticates the only user of the apiserver below.
const goodToken = "good"

// apiserver is a fake kube-apiserver with the requests of a start and of one write. It
// can hold writes, which a real one cannot.
type apiserver struct {
	server     *httptest.Server
	kubeconfig string
	// creating receives each Event before it is created. The request waits until
	// release is closed.
	creating chan *corev1.Event
	release  chan struct{}

	// authentication is optional: what is published for the authentication of clients, such
	// as the CA of their certificates. Listing it waits until listable is closed.
	authentication map[string]string
	listable       chan struct{}
}

func startAPIServer(t testing.TB) *apiserver {
	t.Helper()
	a := &apiserver{
		kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"),
		creating:   make(chan *corev1.Event, 10),
		release:    make(chan struct{}),
		listable:   make(chan struct{}),
	}
	a.server = httptest.NewUnstartedServer(a)
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	t.Cleanup(a.close)
	if err := testenv.WriteKubeconfig(a.kubeconfig, a.config()); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *apiserver) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	return &rest.Config{Host: a.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// close does not wait for requests, which may be held.
func (a *apiserver) close() {
	_ = a.server.Listener.Close()
	a.server.CloseClientConnections()
}

func (a *apiserver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodGet {
		a.get(w, req)
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch object := object.(type) {
	case *authenticationv1.TokenReview:
		if object.Spec.Token == goodToken {
			object.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true, User: authenticationv1.UserInfo{Username: "somebody"},
			}
		}
	case *authorizationv1.SubjectAccessReview:
		object.Status.Allowed = object.Spec.User == "somebody"
	case *corev1.Event:
		a.creating <- object
		select {
		case <-a.release:
		case <-req.Context().Done():
			return
		}
		object.UID, object.ResourceVersion = uuid.NewUUID(), "1"
	default:
		http.Error(w, "not expected: "+req.Method+" "+req.URL.Path, http.StatusNotFound)
		return
	}
	reply(w, object)
}

// get answers the requests of delegated authentication: for one ConfigMap, for a list
// of it, and for a watch without events.
func (a *apiserver) get(w http.ResponseWriter, req *http.Request) {
	published := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: authenticationConfigMap, ResourceVersion: "1"},
		Data:       a.authentication,
	}
	query := req.URL.Query()
	switch configMaps := "/api/v1/namespaces/kube-system/configmaps"; {
	case a.authentication == nil:
		http.NotFound(w, req)
	case req.URL.Path == configMaps+"/"+authenticationConfigMap:
		reply(w, &published)
	case req.URL.Path != configMaps:
		http.NotFound(w, req)
	case query.Has("sendInitialEvents"): // the client lists instead
		http.Error(w, "streaming lists are not supported", http.StatusBadRequest)
	case query.Has("watch"):
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	default:
		select {
		case <-a.listable:
			reply(w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{published}})
		case <-req.Context().Done():
		}
	}
}

func reply(w http.ResponseWriter, object runtime.Object) {
	codec := scheme.Codecs.LegacyCodec(scheme.Scheme.PrioritizedVersionsAllGroups()...)
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = codec.Encode(object, w)
}

// flags returns the flags of an eventd that runs alone.
func (a *apiserver) flags(more ...string) []string {
	flags := []string{"--kubeconfig=" + a.kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false"}
	if a.authentication == nil {
		flags = append(flags, "--authentication-skip-lookup")
	}
	return append(flags, more...)
}

// optionsOf returns the options that flags set.
func optionsOf(flags ...string) (*Options, error) {
	o := NewOptions()
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	sets := o.Flags()
	for _, fs := range sets.FlagSets {
		all.AddFlagSet(fs)
	}
	if err := all.Parse(flags); err != nil {
		return nil, err
	}
	return o, o.Validate()
}
