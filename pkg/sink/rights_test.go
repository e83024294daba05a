package sink

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

// serviceAccount makes one that may use the verbs on the Events of a namespace.
func serviceAccount(t *testing.T, namespace string, verbs ...string) *rest.Config {
	t.Helper()
	const name = "writer"
	config := testenv.Shared(t).ServiceAccount(t, namespace, name)
	if len(verbs) == 0 {
		return config
	}
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: verbs}},
	}
	if _, err := clients.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}
	if _, err := clients.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reviews := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews()
	sinktest.Eventually(t, func() error {
		for _, group := range role.Rules[0].APIGroups {
			review, err := reviews.Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verbs[0], Group: group, Resource: "events"},
			}}, metav1.CreateOptions{})
			if err != nil || !review.Status.Allowed {
				return fmt.Errorf("not allowed yet: %w", err)
			}
		}
		return nil
	})
	return config
}

// soonBelieved are options with which a 403 is believed after a moment.
func soonBelieved() Options {
	o := unlimited()
	o.ForbiddenFor = time.Millisecond
	return o
}

// Every combination of rights that can work does, and each of the others says why not.
func TestRightsOfServiceAccounts(t *testing.T) {
	for verbs, objects := range map[string]int{
		"create,patch":            1,
		"create,patch,get,update": 1,
		"create,get,update":       1,
		"create,patch,update":     1,
		"create,get":              3,
		"create,update":           3,
		"create":                  3,
		"patch":                   0,
		"get,update,patch":        0,
		"":                        0,
	} {
		t.Run(strings.ReplaceAll(verbs, ",", " "), func(t *testing.T) {
			t.Parallel()
			namespace := testenv.Shared(t).Namespace(t)
			var config *rest.Config
			if verbs == "" {
				config = serviceAccount(t, namespace)
			} else {
				config = serviceAccount(t, namespace, strings.Split(verbs, ",")...)
			}
			for name, client := range map[string]Client{"client-go's": clientFor(t, config), "own": connect(t, config)} {
				b := newBench(t, namespace, client, soonBelieved())
				ends := make(chan occurrence.Settlement, 100)
				tell := func(o *occurrence.Occurrence) { o.Settled = func(s occurrence.Settlement) { ends <- s } }
				for range 3 {
					b.record(len(name), tell) // a series of its own
					b.record(len(name), tell, newStyle)
					b.Flush(t.Context())
				}
				b.close()
				close(ends)
				for end := range ends {
					if want := objects > 0; end.Counted() != want || !want && (end.Reason != occurrence.Forbidden || !isStatus(end.Err)) {
						t.Errorf("settled as %+v", end)
					}
				}
			}
			if objects > 0 {
				wantStored(t, namespace, 4*objects, 12)
			} else {
				wantStored(t, namespace, 0, 0)
			}
		})
	}
}

// overtakenUpdate deletes an Event between the read and the write.
type overtakenUpdate struct {
	Updater
	delete func(name string) error
}

func (c overtakenUpdate) Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error) {
	if err := c.delete(name); err != nil {
		return nil, err
	}
	return c.Updater.Update(ctx, api, namespace, name, event)
}

// An update creates what is not there; it must not bring back a count that has gone.
func TestUpdateOfAnEventThatHasExpiredBeginsAnew(t *testing.T) {
	for name, change := range map[string][]func(*occurrence.Occurrence){"core/v1": nil, "events.k8s.io/v1": {newStyle}} {
		t.Run(name, func(t *testing.T) {
			namespace := testenv.Shared(t).Namespace(t)
			config := serviceAccount(t, namespace, "create", "get", "update")
			events := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).CoreV1().Events(namespace)
			deletions := 0
			c := overtakenUpdate{clientFor(t, config).(Updater), func(name string) error {
				deletions++
				return events.Delete(t.Context(), name, metav1.DeleteOptions{})
			}}
			b := newBench(t, namespace, c, soonBelieved())
			for range 3 {
				b.recordLater(0, time.Hour, change...) // one write has them all
			}
			b.Flush(t.Context())
			b.record(0, change...)
			b.Flush(t.Context())
			if totals := b.close(); totals.Written() != 4 || deletions != 1 {
				t.Errorf("settled as %v, after %d deletions", totals.Outcomes, deletions)
			}
			wantStored(t, namespace, 1, 1)
		})
	}
}

// stripper is an admission webhook that removes all annotations.
type stripper struct{}

func (stripper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, PatchType: &kind,
		Patch: []byte(`[{"op":"add","path":"/metadata/annotations","value":{}}]`),
	}
	review.Request = nil
	json.NewEncoder(w).Encode(review)
}

// strip has the apiserver remove the annotations of all Events of a namespace.
func strip(t *testing.T, namespace string) {
	t.Helper()
	server := httptest.NewTLSServer(stripper{})
	t.Cleanup(server.Close)
	webhooks := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).AdmissionregistrationV1().MutatingWebhookConfigurations()
	none := admissionregistrationv1.SideEffectClassNone
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "stripper.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", "events.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"events"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			SideEffects:             &none,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if _, err := webhooks.Create(t.Context(), webhook, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := webhooks.Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	events := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).CoreV1().Events(namespace)
	sinktest.Eventually(t, func() error {
		event := sinktest.Event(false)
		event.Namespace, event.InvolvedObject.Namespace, event.GenerateName = namespace, namespace, "asked-"
		event.Annotations = map[string]string{"a": "b"}
		created, err := events.Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(created.Annotations) > 0 {
			err = errors.New("the webhook is not asked yet")
		}
		return err
	})
}

func TestCountsAddUpWhereAdmissionRemovesAnnotations(t *testing.T) {
	for name, verbs := range map[string][]string{"by patches": {"create", "patch"}, "by updates": {"create", "get", "update"}} {
		t.Run(name, func(t *testing.T) {
			const sinks, rounds, series = 2, 10, 3
			namespace := testenv.Shared(t).Namespace(t)
			strip(t, namespace)
			config := serviceAccount(t, namespace, verbs...)
			for range sinks { // one after the other: the next one knows nothing of the first's
				b := newBench(t, namespace, clientFor(t, config), soonBelieved())
				for range rounds {
					for i := range series {
						b.record(i)
						b.record(i, newStyle)
					}
					b.Flush(t.Context())
				}
				if totals := b.close(); totals.Written() != totals.Recorded {
					t.Errorf("recorded %d, settled as %v", totals.Recorded, totals.Outcomes)
				}
			}
			wantStored(t, namespace, sinks*2*series, sinks*2*series*rounds)
		})
	}
}

// Answers that are lost cost no count there either.
func TestLostAnswersWhereAdmissionRemovesAnnotations(t *testing.T) {
	const rounds, series = 20, 3
	namespace := testenv.Shared(t).Namespace(t)
	strip(t, namespace)
	c := &faultyClient{clientFor(t, testenv.Shared(t).Config()), 20}
	b := newBench(t, namespace, c, soonBelieved())
	for range rounds {
		for i := range series {
			b.record(i)
		}
		b.Flush(t.Context())
	}
	totals := b.close()
	var sum int64
	for _, e := range stored(t, namespace) {
		sum += sinktest.Count(&e)
	}
	if sum < totals.Written() || sum > totals.Written()+totals.Outcomes[occurrence.Uncertain] {
		t.Errorf("%d counted, settled as %v", sum, totals.Outcomes)
	}
}
