package fakeapiserver

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a server for one test, with a client for each content type.
func start(t *testing.T, o Options) (*Server, map[string]*kubernetes.Clientset) {
	t.Helper()
	s := Start(o)
	t.Cleanup(s.Close)
	clients := make(map[string]*kubernetes.Clientset)
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config := s.Config()
		config.ContentType = contentType
		clients[contentType] = kubernetes.NewForConfigOrDie(config)
	}
	return s, clients
}

func inNamespace(name string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{"a": "1", "b": "2"}},
		Reason:     "Failed", Message: "once", Count: 1,
	}
}

// An Event is one object in both APIs, whatever its encoding. A patch changes what it has in it and nothing
// else, and conflicts if it names another version.
func TestEventsAreServedAsAnAPIServerServesThem(t *testing.T) {
	s, clients := start(t, Options{})
	for contentType, c := range clients {
		t.Run(contentType, func(t *testing.T) {
			core, newStyle := c.CoreV1().Events("ns"), c.EventsV1().Events("ns")
			name := "of." + contentType[len("application/"):]
			created, err := core.Create(t.Context(), inNamespace(name), metav1.CreateOptions{})
			if err != nil || created.UID == "" || created.ResourceVersion == "" || created.CreationTimestamp.IsZero() {
				t.Fatalf("created %+v, %v", created, err)
			}
			if _, err := core.Create(t.Context(), inNamespace(name), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
				t.Errorf("a second one: %v", err)
			}
			patched, err := core.Patch(t.Context(), name, types.StrategicMergePatchType,
				[]byte(`{"metadata":{"resourceVersion":"`+created.ResourceVersion+`","annotations":{"a":"3"}},"count":2}`), metav1.PatchOptions{})
			if err != nil || patched.Count != 2 || patched.Message != "once" || patched.Annotations["a"] != "3" || patched.Annotations["b"] != "2" {
				t.Fatalf("patched %+v, %v", patched, err)
			}
			_, err = core.Patch(t.Context(), name, types.StrategicMergePatchType,
				[]byte(`{"metadata":{"resourceVersion":"`+created.ResourceVersion+`"},"count":3}`), metav1.PatchOptions{})
			if !apierrors.IsConflict(err) {
				t.Errorf("a patch of the version before: %v", err)
			}
			removed, err := newStyle.Patch(t.Context(), name, types.StrategicMergePatchType,
				[]byte(`{"metadata":{"annotations":{"b":null}},"note":"twice"}`), metav1.PatchOptions{})
			if err != nil || removed.Note != "twice" || removed.Annotations["a"] != "3" || len(removed.Annotations) != 1 {
				t.Errorf("patched %+v, %v", removed, err)
			}
			read, err := core.Patch(t.Context(), name, types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
			if err != nil || read.ResourceVersion != removed.ResourceVersion || read.Message != "twice" {
				t.Errorf("an empty patch: %+v, %v", read, err)
			}
			got, err := core.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || got.ResourceVersion != read.ResourceVersion {
				t.Errorf("got %+v, %v", got, err)
			}
			if list, err := c.EventsV1().Events("").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) == 0 {
				t.Errorf("listed %+v, %v", list, err)
			}
			for of, err := range map[string]error{
				"get": func() error { _, err := core.Get(t.Context(), "none", metav1.GetOptions{}); return err }(),
				"patch": func() error {
					_, err := core.Patch(t.Context(), "none", types.StrategicMergePatchType, []byte(`{"count":1}`), metav1.PatchOptions{})
					return err
				}(),
			} {
				if !apierrors.IsNotFound(err) {
					t.Errorf("%s of none: %v", of, err)
				}
			}
		})
	}
	if got, want := s.Counts(), (Counts{Creates: 2, Patches: 4, Reads: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// A watch begins with what came after its version, and ends if that is too old.
func TestWatchFollowsAVersion(t *testing.T) {
	s, clients := start(t, Options{})
	for contentType, c := range clients {
		t.Run(contentType, func(t *testing.T) {
			events := c.CoreV1().Events("ns")
			first, err := events.Create(t.Context(), inNamespace("first."+contentType[12:]), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := events.Create(t.Context(), inNamespace("second."+contentType[12:]), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			w, err := events.Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			want := func(kind watch.EventType, count int32) {
				t.Helper()
				select {
				case c := <-w.ResultChan():
					if e, ok := c.Object.(*corev1.Event); !ok || c.Type != kind || e.Count != count || e.Name == first.Name {
						t.Errorf("watched %s %+v, want %s with the count %d", c.Type, c.Object, kind, count)
					}
				case <-t.Context().Done():
				}
			}
			want(watch.Added, 1)
			if _, err := events.Patch(t.Context(), "second."+contentType[12:], types.StrategicMergePatchType, []byte(`{"count":5}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			want(watch.Modified, 5)
		})
	}
	for i := range 3 * keptChanges {
		e := inNamespace("many")
		e.Namespace = types.NamespacedName{Name: string(rune('a' + i%26)), Namespace: string(rune(i))}.String()
		if err := s.events.create(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := s.events.watch("1"); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch of the first version: %v", err)
	}
}

// A PUT creates a Lease, and replaces no version but the one that it names.
func TestLeaseHasOneHolder(t *testing.T) {
	_, clients := start(t, Options{})
	leases := clients[runtime.ContentTypeProtobuf].CoordinationV1().Leases("ns")
	holder := "a"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	if _, err := leases.Get(t.Context(), "l", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("before: %v", err)
	}
	created, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leases.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Errorf("of the version that there is: %v", err)
	}
	if _, err := leases.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("of the version before: %v", err)
	}
	w, err := leases.Watch(t.Context(), metav1.ListOptions{ResourceVersion: created.ResourceVersion, FieldSelector: "metadata.name=l"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if c := <-w.ResultChan(); c.Type != watch.Modified || c.Object.(*coordinationv1.Lease).Name != "l" {
		t.Errorf("watched %+v", c)
	}
}

func TestReviewsKnowTokensAndTheirAudiences(t *testing.T) {
	s, clients := start(t, Options{ClientCA: []byte("a CA"), Tokens: map[string]Token{"usual": {User: "jane"}, "peer": {User: "eventd", Audiences: []string{"peers"}}}})
	c := clients[runtime.ContentTypeJSON]
	for _, test := range []struct {
		token     string
		audiences []string
		user      string
	}{
		{"usual", nil, "jane"}, {"usual", []string{"peers"}, ""}, {"peer", []string{"peers"}, "eventd"}, {"peer", nil, ""}, {"unknown", nil, ""},
	} {
		review, err := c.AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: test.token, Audiences: test.audiences}}, metav1.CreateOptions{})
		if err != nil || review.Status.Authenticated != (test.user != "") || review.Status.User.Username != test.user {
			t.Errorf("%+v: %+v, %v", test, review.Status, err)
		}
	}
	access, err := c.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
	if err != nil || !access.Status.Allowed {
		t.Errorf("access: %+v, %v", access, err)
	}
	if got := s.Counts(); got.TokenReviews != 5 || got.AccessReviews != 1 {
		t.Errorf("counted %+v", got)
	}
	published, err := c.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil || published.Data["client-ca-file"] != "a CA" {
		t.Errorf("published %+v, %v", published, err)
	}
}
