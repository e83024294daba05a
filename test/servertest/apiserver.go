package servertest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/election"
)

// Token is that of the configurations of an APIServer.
const Token = "the-token-of-the-caller"

// Identity and Pod are those of the leader.
const (
	Pod      = "eventd-0"
	Identity = Pod + "_abcdefgh"
)

// APIServer serves eventd's Lease, the leader's Pod, port forwarding, and the discovery of a few kinds.
type APIServer struct {
	*httptest.Server
	mu         sync.Mutex
	leases     map[string]*coordinationv1.Lease // by name
	forbidden  string                           // Lease
	pod        *corev1.Pod
	aggregated map[string]*Eventd // by API group
}

// NewAPIServer starts one without a Lease.
func NewAPIServer(t testing.TB) *APIServer {
	t.Helper()
	a := &APIServer{leases: make(map[string]*coordinationv1.Lease), aggregated: make(map[string]*Eventd)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}", func(w http.ResponseWriter, req *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		name := req.PathValue("name")
		if name == a.forbidden {
			WriteJSON(w, http.StatusForbidden, Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "leases \""+name+"\" is forbidden"))
			return
		}
		lease := a.leases[name]
		writeFound(w, lease, lease != nil)
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods/"+Pod, func(w http.ResponseWriter, _ *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		writeFound(w, a.pod, a.pod != nil)
	})
	mux.HandleFunc("GET /api/v1/namespaces/kube-system/pods", func(w http.ResponseWriter, req *http.Request) {
		WriteJSON(w, http.StatusOK, &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	})
	// Over SPDY only.
	mux.HandleFunc("POST /api/v1/namespaces/kube-system/pods/"+Pod+"/portforward", ServePortForward)
	mux.HandleFunc("GET /apis/{group}/v1alpha1/{resource}", func(w http.ResponseWriter, req *http.Request) {
		a.mu.Lock()
		aggregated := a.aggregated[req.PathValue("group")]
		a.mu.Unlock()
		if aggregated == nil {
			http.NotFound(w, req)
			return
		}
		aggregated.Config.Handler.ServeHTTP(w, req)
	})
	for path, object := range discovery {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, http.StatusOK, object) })
	}
	a.Server = httptest.NewTLSServer(mux)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func writeFound(w http.ResponseWriter, object any, found bool) {
	if !found {
		WriteJSON(w, http.StatusNotFound, Failure(http.StatusNotFound, metav1.StatusReasonNotFound, "not found"))
		return
	}
	WriteJSON(w, http.StatusOK, object)
}

// Lead makes a server the leader.
func (a *APIServer) Lead(e *Eventd) { a.Announce(e.Address(), e.Fingerprint()) }

// Observe makes a server the leader of those that observe.
func (a *APIServer) Observe(e *Eventd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases["eventd-observe"] = Lease("kube-system", Identity, e.Address(), e.Fingerprint())
}

// Announce sets what the leader announces, and the address of its Pod.
func (a *APIServer) Announce(address, fingerprint string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases["eventd"] = Lease("kube-system", Identity, address, fingerprint)
	a.pod = &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: Pod},
		Status:     corev1.PodStatus{PodIP: address[:strings.LastIndex(address, ":")]},
	}
}

// Aggregate has queries of a group to the apiserver answered by a server, as by an aggregated API.
func (a *APIServer) Aggregate(group string, e *Eventd) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aggregated[group] = e
}

// Release removes the holder of a Lease, as a leader does that ends.
func (a *APIServer) Release(lease string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[lease].Spec.HolderIdentity = nil
}

// Renew sets when a Lease was last renewed.
func (a *APIServer) Renew(lease string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[lease].Spec.RenewTime = new(metav1.NewMicroTime(at))
}

// Forbid has the caller no right to get a Lease.
func (a *APIServer) Forbid(lease string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forbidden = lease
}

// RemovePod makes the leader one that is in no Pod.
func (a *APIServer) RemovePod() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pod = nil
}

// Lease returns eventd's Lease as its leader writes it.
func Lease(namespace, identity, address, fingerprint string) *coordinationv1.Lease {
	announced, _ := json.Marshal(map[string]string{"identity": identity, "address": address, "certificateSHA256": fingerprint})
	return &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "eventd",
			Annotations: map[string]string{election.AnnouncementAnnotation: string(announced)},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &identity},
	}
}

// REST is the configuration of a caller with Token.
func (a *APIServer) REST() *rest.Config {
	return &rest.Config{Host: a.URL, BearerToken: Token, TLSClientConfig: rest.TLSClientConfig{CAData: PEM(a.Certificate())}}
}

// discovery has a namespaced kind with a short name, and one without a namespace.
var discovery = map[string]any{
	"/api":  &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
	"/apis": &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
	"/api/v1": &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
		APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", ShortNames: []string{"po"}, Verbs: metav1.Verbs{"get", "list"}},
			{Name: "nodes", SingularName: "node", Kind: "Node", ShortNames: []string{"no"}, Verbs: metav1.Verbs{"get", "list"}},
		},
	},
}
