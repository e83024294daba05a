package sinktest

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// Webhook has a mutating webhook review the Events of a namespace. It returns when the
// apiserver calls it. A review returns a JSON patch, nil to change nothing; ctx ends with
// the apiserver's call. Reviews are not called before Webhook returns.
func Webhook(t *testing.T, namespace string, review func(ctx context.Context) (patch []byte)) {
	t.Helper()
	var called, ready atomic.Bool
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		called.Store(true)
		body.Response = &admissionv1.AdmissionResponse{UID: body.Request.UID, Allowed: true}
		if ready.Load() {
			if patch := review(r.Context()); patch != nil {
				kind := admissionv1.PatchTypeJSONPatch
				body.Response.Patch, body.Response.PatchType = patch, &kind
			}
		}
		body.Request = nil
		json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	register(t, clients, namespace, server)
	await.Until(t, "the apiserver to call the webhook", func() bool {
		dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := clients.CoreV1().Events(namespace).Create(t.Context(), Unnamed(namespace, false), dryRun); err != nil {
			t.Fatal(err)
		}
		return called.Load()
	})
	ready.Store(true)
}

func register(t *testing.T, clients kubernetes.Interface, namespace string, server *httptest.Server) {
	t.Helper()
	webhooks := clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	none, longest := admissionregistrationv1.SideEffectClassNone, int32(30)
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "test.example.com",
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
			TimeoutSeconds:          &longest,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := webhooks.Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
