package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/stored"
)

// userBurst is the burst that the admission plugin allows a user, and the rate per
// second.
const userBurst = 20

// eventRateLimit is a limit by user, which docs/flowcontrol.md advises against.
var eventRateLimit = fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: EventRateLimit
    configuration:
      apiVersion: eventratelimit.admission.k8s.io/v1alpha1
      kind: Configuration
      limits:
        - {type: User, qps: %[1]d, burst: %[1]d}
`, userBurst)

// To the plugin all clients of eventd are one user. The limit delays their Events and
// loses none. It does not apply to events.k8s.io.
func TestLimitOfAUserDelaysEventsAndLosesNone(t *testing.T) {
	t.Parallel()
	const reports = 5 * userBurst // through each API
	account := newAccount("limited")
	var rights []right
	for _, r := range granted(t, intake) {
		rights = append(rights, r.ofAccount(account))
	}
	makeAccount(t, account, rights)
	s := setScene(t, account, await.Timeout)
	if err := leads(t, s); err != nil {
		t.Fatal(err)
	}
	var reporters errgroup.Group
	reporters.SetLimit(2 * userBurst) // within the share of an address
	for i := range reports {
		for _, event := range []any{classic(s.namespace, fmt.Sprint("limited-", i)), newStyle(s.namespace, fmt.Sprint("unlimited-", i))} {
			reporters.Go(func() error { return s.takes(t, s.leader, event) })
		}
	}
	if err := reporters.Wait(); err != nil {
		t.Error(err)
	}
	s.leader.Terminate(t)
	if n := len(stored.List(t, cluster, s.namespace)); n != 2*reports {
		t.Errorf("%d of %d Events are stored", n, 2*reports)
	}
	created, limited := map[string]int{}, map[string]int{} // by API group
	for _, request := range cluster.Audited(t, account) {
		if need, _ := needed(&request); need.resource == "events" && need.namespace == s.namespace {
			switch request.ResponseStatus.Code {
			case http.StatusCreated:
				created[need.group]++
			case http.StatusTooManyRequests:
				limited[need.group]++
			}
		}
	}
	if created[""] != reports || created[eventsv1.GroupName] != reports {
		t.Errorf("created are %v, want %d through each API", created, reports)
	}
	if limited[""] == 0 || limited[eventsv1.GroupName] != 0 {
		t.Errorf("answered 429 are %v, want some of core/v1 and no other", limited)
	}
	t.Logf("%d requests were answered 429", limited[""])
}

// With the option, the Events that eventd writes have a share of the apiserver of
// their own, and the Lease does not wait behind them.
func TestEventsHaveAShareOfTheApiserverOfTheirOwn(t *testing.T) {
	t.Parallel()
	schema := makeFlowSchema(t)
	if method := schema.Spec.DistinguisherMethod; method == nil || method.Type != flowcontrolv1.FlowDistinguisherMethodByNamespaceType {
		t.Errorf("Events are queued by %v, so that one namespace delays the others", method)
	}
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
