package intake_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
	"github.com/eventd/eventd/test/testenv"
)

// TestInputsAreAnsweredAsByTheAPIServer sends every input to a kube-apiserver
// and to an intake in front of it, with a whole pipeline in between.
func TestInputsAreAnsweredAsByTheAPIServer(t *testing.T) {
	cluster := testenv.StartForTest(t, testenv.Options{})
	namespace := cluster.Namespace(t)
	terminate(t, cluster.Config(), namespace+"-ends")
	tokens := callers(t, cluster, namespace)
	apiServer := target{url: strings.TrimSuffix(cluster.Config().Host, "/"), client: anonymousClient(t, cluster.Config())}
	eventd := inFrontOf(t, cluster.Config())

	names := 0
	for _, input := range inputs() {
		t.Run(input.name, func(t *testing.T) {
			names++
			name := fmt.Sprintf("input-%d", names)
			// A name for each server, since one could see what the other wrote.
			got := eventd.answer(t, input, tokens, namespace, name+"-eventd")
			want := apiServer.answer(t, input, tokens, namespace, name+"-apisrv")
			compare(t, input, got, want)
		})
	}
	for _, path := range unclearPaths {
		t.Run("what is "+path+" about", func(t *testing.T) {
			i := input{method: http.MethodGet, path: path, as: writer, result: serverError}
			got, want := eventd.answer(t, i, tokens, namespace, ""), apiServer.answer(t, i, tokens, namespace, "")
			if !unclear(path) || !strings.Contains(want.Text, "failed to create RequestInfo") {
				t.Errorf("the apiserver answers %+v", want)
			}
			compare(t, i, got, want)
		})
	}
}

// outcome is what is compared of an answer.
type outcome struct {
	Result   result
	Message  string
	Details  metav1.StatusDetails
	Warnings []string
	Event    map[string]any // without what a server sets
	Text     string         // of what is neither a Status nor an Event
}

func compare(t *testing.T, input input, got, want outcome) {
	t.Helper()
	if want.Result != input.result {
		t.Errorf("the apiserver responds %v, not %v as in the table: %+v", want.Result, input.result, want)
	}
	if input.differs != "" {
		if got.Result != input.other {
			t.Errorf("eventd responds %v, not %v as in the table: %+v", got.Result, input.other, got)
		}
		return
	}
	if input.words != "" {
		for _, o := range []*outcome{&got, &want} {
			o.Message, o.Details.Name, o.Warnings = "", "", nil
			for i := range o.Details.Causes {
				o.Details.Causes[i].Message = ""
			}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("answers differ (-apiserver +eventd):\n%s", diff)
	}
}

// target is a server that inputs are sent to.
type target struct {
	url    string
	client *http.Client
}

// answer sends an input, after what must come before it.
func (s target) answer(t *testing.T, i input, tokens map[caller]string, namespace, name string) outcome {
	t.Helper()
	fill := strings.NewReplacer("NS", namespace, "TERMINATING", namespace+"-ends", "NAME", name)
	for _, before := range i.before {
		before.as = writer
		if a := s.send(t, before, tokens, fill); a.Code >= 300 {
			t.Fatalf("%s: what comes before is answered %d: %s", s.url, a.Code, a.Body)
		}
	}
	a := s.send(t, i, tokens, fill)
	// The two servers are told different names.
	same := strings.NewReplacer("-eventd", "", "-apisrv", "")
	o := outcome{Result: result{code: a.Code}, Warnings: a.Header.Values("Warning")}
	if a.Code < 300 {
		o.Event = clientsPart(t, same.Replace(string(a.Body)))
		return o
	}
	var status metav1.Status
	if err := json.Unmarshal(a.Body, &status); err != nil || status.Kind != "Status" {
		o.Text = string(a.Body)
		return o
	}
	o.Result.reason, o.Message = status.Reason, same.Replace(status.Message)
	if status.Details != nil {
		o.Details = *status.Details
		o.Details.Name = same.Replace(o.Details.Name)
		for i := range o.Details.Causes {
			o.Details.Causes[i].Message = same.Replace(o.Details.Causes[i].Message)
		}
	}
	return o
}

// clientsPart is what an Event has from its client. Other kinds, which clients
// can ask for instead, differ in their columns.
func clientsPart(t *testing.T, body string) map[string]any {
	t.Helper()
	var event map[string]any
	if err := json.Unmarshal([]byte(body), &event); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	metadata, _ := event["metadata"].(map[string]any)
	if event["kind"] != "Event" {
		return map[string]any{"kind": event["kind"], "apiVersion": event["apiVersion"]}
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	if metadata["generateName"] != nil {
		delete(metadata, "name")
	}
	return event
}

func (s target) send(t *testing.T, i input, tokens map[caller]string, fill *strings.Replacer) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), i.method, s.url+fill.Replace(i.path), strings.NewReader(fill.Replace(i.body)))
	if err != nil {
		t.Fatal(err)
	}
	i.setHeader(req, tokens)
	if i.as == nobody {
		req.Header.Set(withoutToken, "true")
	}
	return send(t, s.client, req)
}

func send(t testing.TB, client *http.Client, req *http.Request) answer {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{Code: resp.StatusCode, Header: resp.Header, Body: data}
}

// terminate makes a namespace whose deletion does not end.
func terminate(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	namespaces := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	// Nothing in this control plane empties it and lets it go.
	if err := errors.Join(err, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
}

// callers gives each kind of caller a token, and its rights.
func callers(t *testing.T, cluster *testenv.ControlPlane, namespace string) map[caller]string {
	t.Helper()
	rbac := kubernetes.NewForConfigOrDie(cluster.Config()).RbacV1()
	tokens := map[caller]string{forger: "forged"}
	for who, as := range map[caller]struct {
		name  string
		verbs []string
		only  []string // Events
	}{
		writer:   {"writer", []string{"create", "patch", "update"}, nil},
		creator:  {"creator", []string{"create"}, nil},
		updater:  {"updater", []string{"patch", "update"}, nil},
		limited:  {"limited", []string{"patch"}, []string{"the-one"}},
		stranger: {"stranger", nil, nil},
	} {
		tokens[who] = cluster.ServiceAccount(t, namespace, as.name).BearerToken
		if as.verbs == nil {
			continue
		}
		// In all namespaces, so that one that is not there is not forbidden.
		meta := metav1.ObjectMeta{Name: namespace + "-" + as.name}
		_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, ResourceNames: as.only, Verbs: as.verbs,
		}}}, metav1.CreateOptions{})
		_, bindErr := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: as.name}},
		}, metav1.CreateOptions{})
		if err := errors.Join(err, bindErr); err != nil {
			t.Fatal(err)
		}
	}
	return tokens
}

func anonymousClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// inFrontOf starts an intake with a pipeline that writes to an apiserver, which also
// reviews tokens and rights.
func inFrontOf(t *testing.T, config *rest.Config) target {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	o := pipeline.DefaultOptions()
	// So that nothing waits: a kube-apiserver never answers 202.
	o.Correlator.QPS, o.Correlator.Heartbeat = math.Inf(1), 1
	p, err := pipeline.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(sink.NewClient(client.CoreV1().RESTClient(), client.EventsV1().RESTClient())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := await.Context(t)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	s := serve(t, written(), func(o *intake.Options, s *intake.ServerOptions) {
		o.Record = p.Record
		s.Authenticator, s.Authorizer = intaketest.Delegating(t, client)
	})
	server := serveTLS(t, s)
	return target{url: server.URL, client: server.Client()}
}
