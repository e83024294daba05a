package intake

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Plain metadata is that of the request, too, whatever was checked before.
func TestEventOfAnotherNamespaceIsRefused(t *testing.T) {
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		o := DefaultOptions()
		o.Record = func(*occurrence.Occurrence) { t.Error("recorded") }
		s := newStorage(must(New(o)), api, nil)
		event := backOff("a")
		rest.FillObjectMetaSystemFields(event)
		event.ResourceVersion = "1"
		for what, err := range map[string]error{
			"create": s.beforeCreate(t.Context(), "other", event.DeepCopy()),
			"update": s.beforeUpdate(t.Context(), "other", event.DeepCopy(), event),
		} {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// The generic handlers change what they get: it is not the Event of the view.
func TestGenericHandlersGetACopyOfTheView(t *testing.T) {
	o := DefaultOptions()
	o.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Created}) }
	intake := must(New(o))
	s := newStorage(intake, occurrence.CoreV1, allowing{})
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "patch", APIVersion: "v1", Resource: resourceName, Namespace: "shop"}
	ctx := request.WithUser(request.WithRequestInfo(request.WithNamespace(t.Context(), "shop"), info), &user.DefaultInfo{Name: "jane"})
	created, err := s.Create(ctx, backOff("a"), nil, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change := created.DeepCopyObject().(*corev1.Event)
	change.Count++
	changed, _, err := s.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(change), nil, nil, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unchanged, _, err := s.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(changed), nil, nil, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]any{"changed": changed, "unchanged": unchanged} {
		if got == any(intake.names.known(key{"shop", "a"}).view.event) {
			t.Errorf("%s: it is that of the view", what)
		}
	}
	created, err = s.Create(ctx, backOff("b"), nil, &metav1.CreateOptions{})
	if err != nil || created == intake.names.known(key{"shop", "b"}).view.event {
		t.Errorf("created: it is that of the view (%v)", err)
	}
}
