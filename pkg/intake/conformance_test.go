package intake_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
	storedevents "github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// TestInputsAreAnsweredAsByTheAPIServer sends every input to a kube-apiserver
// and to an intake in front of it, with a whole pipeline in between. If the
// kube-apiserver is not of the minor version of eventd's libraries, its words
// are not compared.
func TestInputsAreAnsweredAsByTheAPIServer(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	terminate(t, cluster.Config(), namespace+"-ends")
	tokens := callers(t, cluster, namespace)
	apiServer := target{url: strings.TrimSuffix(cluster.Config().Host, "/"), client: anonymousClient(t, cluster.Config())}
	eventd := inFrontOf(t, cluster.Config())
	compare := compare
	if server := must(kubernetes.NewForConfigOrDie(cluster.Config()).Discovery().ServerVersion()); server.Major+"."+server.Minor != version.DefaultKubeBinaryVersion {
		compare = compareWithoutWords
	}

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

// schemeName is where the apiserver has its types.
var schemeName = regexp.MustCompile(` in scheme "[^"]*"`)

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
	if strings.Contains(got.Message, ".go:") {
		t.Errorf("eventd shows its source: %s", got.Message)
	}
	want.Message = schemeName.ReplaceAllString(want.Message, "")
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

// compareWithoutWords is compare for a kube-apiserver that may word an error in
// another way, or report it twice. Before 1.37, one keeps the deletionTimestamp
// of an Event that a PUT creates.
func compareWithoutWords(t *testing.T, input input, got, want outcome) {
	t.Helper()
	for _, o := range []*outcome{&got, &want} {
		o.Message, o.Details, o.Warnings = "", metav1.StatusDetails{}, nil
		if metadata, ok := o.Event["metadata"].(map[string]any); ok {
			delete(metadata, "deletionTimestamp")
		}
	}
	compare(t, input, got, want)
}

// target is a server that inputs are sent to.
type target struct {
	url         string
	client      *http.Client
	certificate *x509.Certificate // of eventd
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
	req := must(http.NewRequestWithContext(t.Context(), i.method, s.url+fill.Replace(i.path), strings.NewReader(fill.Replace(i.body))))
	i.setHeader(req, tokens)
	if i.as == nobody {
		req.Header.Set(withoutToken, "true")
	}
	resp := must(s.client.Do(req))
	defer resp.Body.Close()
	return answer{Code: resp.StatusCode, Header: resp.Header, Body: must(io.ReadAll(resp.Body))}
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
	client := must(rest.HTTPClientFor(rest.AnonymousClientConfig(config)))
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
	p := must(pipeline.New(t.Context(), o))
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
	return target{server.URL, server.Client(), server.Certificate()}
}

// said is the Event as a user posts it. It has the same identity for all users, because
// the message of a combined Event is not part of it.
func said(namespace, name, who string, at time.Time, count int32) *corev1.Event {
	event := classic(name, count)
	event.Namespace, event.InvolvedObject.Namespace = namespace, namespace
	event.Message = identity.CombinedPrefix + who
	event.Labels = map[string]string{"by": who, who: "1"}
	event.Annotations = map[string]string{"by": who, who: "1"}
	event.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: who, UID: "1"}}
	event.Finalizers = []string{"example.com/" + who}
	event.FirstTimestamp, event.LastTimestamp = metav1.NewTime(at), metav1.NewTime(at)
	return event
}

// storedEvent is the only one of a namespace.
func storedEvent(t *testing.T, cluster *testenv.ControlPlane, namespace string) *corev1.Event {
	t.Helper()
	events := storedevents.List(t, cluster, namespace)
	if len(events) != 1 {
		t.Fatalf("%d Events, want one", len(events))
	}
	return &events[0]
}

// comparable returns the part of a stored Event that only its author may change.
func comparable(stored *corev1.Event) *corev1.Event {
	e := stored.DeepCopy()
	e.ResourceVersion, e.ManagedFields, e.Count, e.LastTimestamp = "", nil, 0, metav1.Time{}
	e.Annotations = maps.Clone(e.Annotations)
	delete(e.Annotations, identity.AnnotationPrefix+"shares")
	return e
}

// With a kube-apiserver and RBAC: a caller that may create Events, and not patch them,
// cannot change those of others by posting the same Event.
func TestCreateIsNotPatch(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	tokens := map[caller]string{}
	for who, verbs := range map[caller][]string{writer: {"create", "patch", "update"}, creator: {"create"}} {
		account := strings.Join(verbs, "-")
		tokens[who] = cluster.ServiceAccount(t, namespace, account).BearerToken
		cluster.Grant(t, namespace, account, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: verbs})
	}
	began := time.Now().Truncate(time.Second)
	post := func(to target, as caller, event *corev1.Event) *corev1.Event {
		t.Helper()
		i := posted(corePath, string(mustJSON(t, event))).by(as)
		a := to.send(t, i, tokens, strings.NewReplacer("NS", namespace))
		a.Want(t, http.StatusCreated, "")
		return a.Event(t)
	}

	first := inFrontOf(t, cluster.Config())
	long := began.Add(-time.Hour)
	post(first, writer, said(namespace, "mine", "owner", long, 3))
	before := storedEvent(t, cluster, namespace)
	if before.Count != 3 || before.Labels["by"] != "owner" || !before.LastTimestamp.Equal(&metav1.Time{Time: long}) {
		t.Fatalf("the owner's is stored as %+v", before)
	}
	count, seen := int32(3), before.LastTimestamp.Time
	// The process that created it, and a new one.
	for _, process := range []struct {
		name string
		target
	}{{"first", first}, {"next", inFrontOf(t, cluster.Config())}} {
		for name, at := range map[string]time.Time{"past": time.Unix(1, 0), "future": time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)} {
			name = process.name + "-" + name
			answered := post(process.target, creator, said(namespace, name, "attacker", at, 2_000_000_001))
			if answered.Name != name || answered.Count != 2_000_000_001 || answered.Labels["by"] != "attacker" || answered.Annotations["by"] != "attacker" {
				t.Errorf("the answer has not what was posted: %+v", answered)
			}
			after := storedEvent(t, cluster, namespace)
			if diff := cmp.Diff(comparable(before), comparable(after)); diff != "" {
				t.Errorf("%s has changed the Event of another:\n%s", name, diff)
			}
			if count++; after.Count != count {
				t.Errorf("%s: the count is %d, want %d", name, after.Count, count)
			}
			if last := after.LastTimestamp.Time; last.Before(began) || last.After(time.Now()) || last.Before(seen) {
				t.Errorf("%s: last seen at %v, though it was posted after %v", name, last, began)
			}
			seen = after.LastTimestamp.Time
		}
		// Any caller with the right to patch changes it.
		post(process.target, writer, said(namespace, process.name+"-edited", "owner", time.Now(), 2))
		if count += 2; storedEvent(t, cluster, namespace).Count != count {
			t.Errorf("%s: with the right to patch the count is %d, want %d", process.name, storedEvent(t, cluster, namespace).Count, count)
		}
		before = storedEvent(t, cluster, namespace)
	}
}
