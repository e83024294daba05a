package deploy

import (
	"context"
	"errors"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/request"
)

// With the option, the Events that eventd writes have a share of the apiserver of
// their own, and the Lease does not wait behind them.
func TestEventsHaveAShareOfTheApiserverOfTheirOwn(t *testing.T) {
	t.Parallel()
	schema := makeFlowSchema(t)
	config := cluster.ServiceAccount(t, metav1.NamespaceSystem, "eventd")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	// of returns the UID of the FlowSchema that the apiserver has applied to a request.
	of := func(method, path, body string) string {
		a := request.Do(t.Context(), client, method, config.Host+path, body)
		return a.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	}
	await.Until(t, "the FlowSchema to apply to an Event", func() bool {
		return of(http.MethodPost, "/api/v1/namespaces/default/events?dryRun=All", "{}") == string(schema.UID)
	})
	for what, got := range map[string]string{
		"the Lease is read":    of(http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/eventd", ""),
		"a caller is reviewed": of(http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", "{}"),
	} {
		if got == string(schema.UID) || got == "" {
			t.Errorf("%s by the FlowSchema %q", what, got)
		}
	}
}

// makeFlowSchema makes what the option adds, until the end of the test.
func makeFlowSchema(t *testing.T) (schema *flowcontrolv1.FlowSchema) {
	t.Helper()
	client := administrator().FlowcontrolV1()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := errors.Join(
			client.FlowSchemas().Delete(ctx, "eventd", metav1.DeleteOptions{}),
			client.PriorityLevelConfigurations().Delete(ctx, "eventd", metav1.DeleteOptions{}),
		)
		if err != nil {
			t.Error(err)
		}
	})
	for _, object := range rendered(t, complete) {
		var err error
		switch o := object.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			_, err = client.PriorityLevelConfigurations().Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		case *flowcontrolv1.FlowSchema:
			schema, err = client.FlowSchemas().Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if schema == nil {
		t.Fatal("there is no FlowSchema")
	}
	return schema
}
