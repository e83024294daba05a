package testenv

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
)

// HangingWebhook reviews the Events of one namespace for the apiserver, and does not
// answer until Release or the end of the test; then it admits everything.
type HangingWebhook struct {
	// Release ends the hanging.
	Release  func()
	released chan struct{}

	mu           sync.Mutex
	begun, ended int // calls before the release
}

// webhookTimeout is the longest timeout that the apiserver accepts, in seconds.
const webhookTimeout = 30

// HangingWebhook starts a webhook for a namespace, and returns when the apiserver
// calls it.
func (c *ControlPlane) HangingWebhook(t testing.TB, namespace string) *HangingWebhook {
	t.Helper()
	h := &HangingWebhook{released: make(chan struct{})}
	h.Release = sync.OnceFunc(func() { close(h.released) })
	c.ReviewEvents(t, namespace, h.review)
	t.Cleanup(h.Release)
	h.waitCalled(t, c, namespace)
	return h
}

// ReviewEvents has a webhook review the Events of a namespace until the end of the test. The
// apiserver may not call it at once.
func (c *ControlPlane) ReviewEvents(t testing.TB, namespace string, review func(context.Context) admissionv1.AdmissionResponse) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Request == nil {
			http.Error(w, "not a review", http.StatusBadRequest)
			return
		}
		response := review(r.Context())
		response.UID = body.Request.UID
		body.Response = &response
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body) // fails if the apiserver has given up
	}))
	t.Cleanup(server.Close)
	configurations := kubernetes.NewForConfigOrDie(c.Config()).AdmissionregistrationV1().MutatingWebhookConfigurations()
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	timeout := int32(webhookTimeout)
	_, err := configurations.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
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
			FailurePolicy:           &fail,
			SideEffects:             &none,
			TimeoutSeconds:          &timeout,
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
		defer cancel()
		if err := configurations.Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// waitCalled makes requests until the apiserver has seen the configuration, and
// leaves nothing behind.
func (h *HangingWebhook) waitCalled(t testing.TB, cluster *ControlPlane, namespace string) {
	config := cluster.Config()
	config.Timeout = 100 * time.Millisecond
	events := kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace)
	await.Until(t, "the apiserver to call the webhook", func() bool {
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "called-"},
			InvolvedObject: corev1.ObjectReference{Namespace: namespace},
		}
		// The error is of no use: a call that is slow for another reason times out, too.
		_, _ = events.Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		begun, _ := h.Calls()
		return begun > 0
	})
	await.Until(t, "the calls of the attempts to end", func() bool { return h.Open() == 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.ended = 0, 0
}

// review counts the call, and returns when it is released or has ended otherwise.
func (h *HangingWebhook) review(ctx context.Context) admissionv1.AdmissionResponse {
	h.mu.Lock()
	h.begun++
	h.mu.Unlock()
	select {
	case <-h.released:
	case <-ctx.Done():
	}
	h.mu.Lock()
	h.ended++
	h.mu.Unlock()
	return admissionv1.AdmissionResponse{Allowed: true}
}

// Calls returns how many calls have begun, and how many of these have ended.
func (h *HangingWebhook) Calls() (begun, ended int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begun, h.ended
}

// Open is how many calls hang.
func (h *HangingWebhook) Open() int {
	begun, ended := h.Calls()
	return begun - ended
}
