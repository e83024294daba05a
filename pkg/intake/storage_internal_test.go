package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
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

// Plain metadata or not, an Event is prepared and refused as by the apiserver's functions.
func TestMetadataIsCheckedAsByTheApiserver(t *testing.T) {
	times := metav1.NewTime(time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC))
	seconds := int64(1)
	for what, change := range map[string]func(*corev1.Event){
		"nothing":                         func(*corev1.Event) {},
		"a generated name":                func(e *corev1.Event) { e.GenerateName = "x/y" },
		"a generation":                    func(e *corev1.Event) { e.Generation = 1 },
		"a negative generation":           func(e *corev1.Event) { e.Generation = -1 },
		"a time of deletion":              func(e *corev1.Event) { e.DeletionTimestamp = &times },
		"a grace period":                  func(e *corev1.Event) { e.DeletionGracePeriodSeconds = &seconds },
		"no UID":                          func(e *corev1.Event) { e.UID = "" },
		"neither UID nor time":            func(e *corev1.Event) { e.UID, e.CreationTimestamp = "", metav1.Time{} },
		"another UID":                     func(e *corev1.Event) { e.UID = "b" },
		"another time":                    func(e *corev1.Event) { e.CreationTimestamp = times },
		"no version":                      func(e *corev1.Event) { e.ResourceVersion = "" },
		"a label":                         func(e *corev1.Event) { e.Labels = map[string]string{"!": ""} },
		"an annotation":                   func(e *corev1.Event) { e.Annotations = map[string]string{"!": ""} },
		"an owner":                        func(e *corev1.Event) { e.OwnerReferences = []metav1.OwnerReference{{}} },
		"a finalizer":                     func(e *corev1.Event) { e.Finalizers = []string{"!"} },
		"a manager":                       func(e *corev1.Event) { e.ManagedFields = []metav1.ManagedFieldsEntry{{Operation: "x"}} },
		"a link":                          func(e *corev1.Event) { e.SetSelfLink("/x") },
		"a type":                          func(e *corev1.Event) { e.Kind = "Event" },
		"no name":                         func(e *corev1.Event) { e.Name = "" },
		"a long name":                     func(e *corev1.Event) { e.Name = strings.Repeat("a", 253+1) },
		"another name":                    func(e *corev1.Event) { e.Name = "b" },
		"another namespace":               func(e *corev1.Event) { e.Namespace = "other" },
		"a name of capitals":              func(e *corev1.Event) { e.Name = "A" },
		"a name with a slash":             func(e *corev1.Event) { e.Name = "a/b" },
		"a name of a dot":                 func(e *corev1.Event) { e.Name = "." },
		"a name with two dots":            func(e *corev1.Event) { e.Name = "a..b" },
		"a name that ends with a dot":     func(e *corev1.Event) { e.Name = "a." },
		"a label that ends with a hyphen": func(e *corev1.Event) { e.Name = "a-.b" },
		"a label that begins with one":    func(e *corev1.Event) { e.Name = "a.-b" },
		"a name that ends with a hyphen":  func(e *corev1.Event) { e.Name = "a-" },
		"a name that begins with one":     func(e *corev1.Event) { e.Name = "-a" },
		"a long namespace":                func(e *corev1.Event) { e.Namespace = strings.Repeat("a", 63+1) },
		"a namespace with a dot":          func(e *corev1.Event) { e.Namespace = "a.b" },
		"a namespace of capitals":         func(e *corev1.Event) { e.Namespace = "A" },
		"no namespace":                    func(e *corev1.Event) { e.Namespace = "" },
		"another count":                   func(e *corev1.Event) { e.Count++ },
		"another reason":                  func(e *corev1.Event) { e.Reason = "Other" },
	} {
		one := backOff("a").ObjectMeta
		one.UID = "a"
		changed := &corev1.Event{ObjectMeta: one}
		change(changed)
		errs := apivalidation.ValidateObjectMeta(&changed.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)
		if isPlainMeta(&changed.ObjectMeta) && len(errs) > 0 {
			t.Errorf("%s is plain, and %v", what, errs)
		}
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			o := DefaultOptions()
			o.Record = func(*occurrence.Occurrence) { t.Error("recorded") }
			s := newStorage(must(New(o)), api, nil)
			old := backOff("a")
			old.UID, old.ResourceVersion, old.CreationTimestamp = "a", "1", metav1.NewTime(times.Add(-time.Hour))
			if api == occurrence.EventsV1 {
				old.EventTime, old.Action, old.Count = metav1.NewMicroTime(times.Time), "act", 0
				old.FirstTimestamp, old.LastTimestamp, old.Source = metav1.Time{}, metav1.Time{}, corev1.EventSource{}
			}
			event := old.DeepCopy()
			change(event)
			namespace := event.Namespace
			event.InvolvedObject.Namespace = namespace
			if namespace == "" {
				namespace = "shop"
			}
			for verb, both := range map[string][2]func(e *corev1.Event) error{
				"create": {
					func(e *corev1.Event) error { return s.beforeCreate(t.Context(), namespace, e) },
					func(e *corev1.Event) error {
						return rest.BeforeCreate(s.strategy, request.WithNamespace(t.Context(), namespace), e)
					},
				},
				"update": {
					func(e *corev1.Event) error { return s.beforeUpdate(t.Context(), namespace, e, old.DeepCopy()) },
					func(e *corev1.Event) error {
						return rest.BeforeUpdate(s.strategy, request.WithNamespace(t.Context(), namespace), e, old.DeepCopy())
					},
				},
			} {
				got, want := event.DeepCopy(), event.DeepCopy()
				gotErr, wantErr := both[0](got), both[1](want)
				name := fmt.Sprintf("%s, %s of %v", what, verb, api)
				equal(t, name, fmt.Sprint(gotErr), fmt.Sprint(wantErr))
				equal(t, name+": the Event", got, want)
			}
		}
	}
}
