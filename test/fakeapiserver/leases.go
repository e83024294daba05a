package fakeapiserver

import (
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

var leaseKind = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}

func (s *Server) getLease(w http.ResponseWriter, req *http.Request) {
	o, err := s.leases.get(keyOf(req))
	if err != nil {
		fail(w, req, err)
		return
	}
	respond(w, req, http.StatusOK, o)
}

// putLease replaces a Lease, or creates it, as a PUT of a Lease does.
func (s *Server) putLease(w http.ResponseWriter, req *http.Request) {
	lease, err := decode[*coordinationv1.Lease](req)
	if err != nil {
		fail(w, req, err)
		return
	}
	lease.TypeMeta = leaseKind
	o, err := s.leases.update(keyOf(req), func(before object) (object, error) {
		if lease.UID == "" {
			lease.UID = before.GetUID()
		}
		return lease, nil
	})
	code := http.StatusOK
	if apierrors.IsNotFound(err) && lease.ResourceVersion == "" {
		o, code, err = lease, http.StatusCreated, s.leases.create(lease)
	}
	if err != nil {
		fail(w, req, err)
		return
	}
	respond(w, req, code, o)
}

func (s *Server) listLeases(w http.ResponseWriter, req *http.Request) {
	namespace := req.PathValue("namespace")
	if req.URL.Query().Has("watch") {
		s.serveWatch(w, req, s.leases, namespace, func(o object) runtime.Object { return o })
		return
	}
	name, err := selectedName(req.URL.Query().Get("fieldSelector"))
	if err != nil {
		fail(w, req, err)
		return
	}
	objects, version := s.leases.list(namespace)
	out := &coordinationv1.LeaseList{
		TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: version},
	}
	for _, o := range objects {
		if name == "" || o.GetName() == name {
			out.Items = append(out.Items, *o.(*coordinationv1.Lease))
		}
	}
	respond(w, req, http.StatusOK, out)
}

// selectedName is the name that a field selector requires, "" if there is none.
func selectedName(selector string) (string, error) {
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", apierrors.NewBadRequest(err.Error())
	}
	name, ok := parsed.RequiresExactMatch("metadata.name")
	if !ok && !parsed.Empty() {
		return "", apierrors.NewBadRequest("unsupported field selector " + selector)
	}
	return name, nil
}
