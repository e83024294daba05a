package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
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
	writing := func() string {
		return flowSchemaOf(t, client, http.MethodPost, config.Host+"/api/v1/namespaces/default/events?dryRun=All", classic("default", "flow"))
	}
	if err := await.Success(t.Context(), await.Timeout, func() error {
		if got := writing(); got != string(schema.UID) {
			return fmt.Errorf("an Event is written by the FlowSchema %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	lease := config.Host + "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/eventd"
	if got := flowSchemaOf(t, client, http.MethodGet, lease, nil); got == string(schema.UID) || got == "" {
		t.Errorf("the Lease is read by the FlowSchema %q", got)
	}
	review := config.Host + "/apis/authentication.k8s.io/v1/tokenreviews"
	if got := flowSchemaOf(t, client, http.MethodPost, review, nil); got == string(schema.UID) || got == "" {
		t.Errorf("a caller is reviewed by the FlowSchema %q", got)
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

// flowSchemaOf is the UID of the FlowSchema that the apiserver has applied to a
// request.
func flowSchemaOf(t *testing.T, client *http.Client, method, url string, body any) string {
	t.Helper()
	answer, err := request(t, client, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
}
