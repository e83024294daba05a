package apiclient

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

// crowd is an admission webhook that holds the creates of Events in a namespace
// until it has as many of them at once as it expects: those that the apiserver
// is answering.
type crowd struct {
	size int

	mu       sync.Mutex
	calls    int // before any are expected
	present  int
	complete chan struct{} // nil until some are expected
}

// gather registers the webhook and returns when the apiserver asks it.
func gather(t *testing.T, namespace string, size int) *crowd {
	t.Helper()
	c := &crowd{size: size}
	server := httptest.NewTLSServer(c)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.register(t, namespace, server.URL, ca)
	client := clientFor(t, testenv.Shared(t).Config())
	sinktest.Eventually(t, func() error {
		if _, err := create(t.Context(), client, occurrence.CoreV1, namespace); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls == 0 {
			return errors.New("the webhook is not asked")
		}
		return nil
	})
	return c
}

func (c *crowd) register(t *testing.T, namespace, url string, ca []byte) {
	t.Helper()
	webhooks := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	none, seconds := admissionregistrationv1.SideEffectClassNone, int32(30)
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "crowd.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"events"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			SideEffects:             &none,
			TimeoutSeconds:          &seconds,
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
}

// expect begins to hold requests, all of them new.
func (c *crowd) expect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present, c.complete = 0, make(chan struct{})
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if complete := c.enter(); complete != nil {
		select {
		case <-complete:
		case <-r.Context().Done():
		}
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	json.NewEncoder(w).Encode(review)
}

// enter returns what to wait for, or nil.
func (c *crowd) enter() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete == nil {
		c.calls++
		return nil
	}
	if c.present++; c.present == c.size {
		close(c.complete)
	}
	return c.complete
}
