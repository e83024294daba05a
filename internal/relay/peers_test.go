package relay_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/testenv"
)

// asserting are the headers of a replica that says who the caller is.
func asserting(token, info string) []string {
	header := []string{"Eventd-Asserted-User", base64.StdEncoding.EncodeToString([]byte(info))}
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	return header
}

// TestWhoIsAcceptedAsAReplica has a kube-apiserver say whose tokens are whose.
func TestWhoIsAcceptedAsAReplica(t *testing.T) {
	cluster := startControlPlane(t)
	namespace := cluster.Namespace(t)
	token := func(account string, audiences ...string) string {
		return cluster.ServiceAccount(t, namespace, account, audiences...).BearerToken
	}
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	writer := newWriter(t, cluster, namespace)
	path := "/api/v1/namespaces/" + namespace + "/events"
	event := func(name string) *corev1.Event {
		e := classic(name, 1)
		e.Namespace, e.InvolvedObject.Namespace = namespace, namespace
		return e
	}

	t.Run("one request at a time", func(t *testing.T) {
		leader, who := delegatingReplica(t, client, tokenFile(t, token("eventd", peerAudience)))
		leader.lead(t)
		defer leader.stopLeading(nil)
		asserted := fmt.Sprintf(`{"username":"system:serviceaccount:%s:writer","uid":"u","groups":["g"],"extra":{"K":["v"]}}`, namespace)
		replica := token("eventd", peerAudience) // another one of the same account
		for name, test := range map[string]struct {
			header []string
			code   int
		}{
			"a replica":                                 {asserting(replica, asserted), 201},
			"a replica, of who may not":                 {asserting(replica, `{"username":"system:serviceaccount:x:y"}`), 403},
			"a client":                                  {[]string{"Authorization", "Bearer " + writer}, 201},
			"a client that asserts":                     {asserting(writer, asserted), 401},
			"a client that asserts itself":              {asserting(writer, fmt.Sprintf(`{"username":"system:serviceaccount:%s:writer"}`, namespace)), 401},
			"a replica that asserts nobody":             {[]string{"Authorization", "Bearer " + replica}, 401},
			"a replica that asserts no name":            {asserting(replica, `{"groups":["system:masters"]}`), 401},
			"a replica that asserts nonsense":           {asserting(replica, `nonsense`), 401},
			"another account, the same audience":        {asserting(token("impostor", peerAudience), asserted), 401},
			"the same account, another audience":        {asserting(token("eventd", "another"), asserted), 401},
			"the same account, the apiserver's":         {asserting(token("eventd"), asserted), 401},
			"the same account, both audiences":          {asserting(token("eventd", "another", peerAudience), asserted), 201},
			"a forged token":                            {asserting(replica+"x", asserted), 401},
			"no token":                                  {asserting("", asserted), 401},
			"no token, to whom nobody needs one either": {[]string{withoutToken, "true"}, 401},
			"a password":                                {append(asserting("", asserted), "Authorization", "Basic "+replica), 401},
		} {
			t.Run(name, func(t *testing.T) {
				before := len(leader.pipeline.occurrences())
				a := leader.do(t, http.MethodPost, path, event(fmt.Sprint("a", before)), test.header...)
				if a.code != test.code {
					t.Errorf("answered %d, want %d: %s", a.code, test.code, a.body)
				}
				if recorded := len(leader.pipeline.occurrences()) - before; (recorded == 1) != (test.code == 201) {
					t.Errorf("recorded %d times", recorded)
				}
			})
		}
		// Two of them: which one counts is not ours to say.
		req := newRequest(t.Context(), t, http.MethodPost, path, event("twice"), asserting(replica, asserted)...)
		req.Header.Add("Eventd-Asserted-User", req.Header.Get("Eventd-Asserted-User"))
		leader.send(req).want(t, 401, metav1.StatusReasonUnauthorized)

		leader.do(t, http.MethodPost, path, event("last"), asserting(replica, asserted)...).want(t, 201, "")
		want := user.DefaultInfo{Name: "system:serviceaccount:" + namespace + ":writer", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"K": {"v"}}}
		if got := who(); !reflect.DeepEqual(got, user.Info(&want)) {
			t.Errorf("authorized %+v, want %+v", got, want)
		}
	})

	t.Run("through a standby", func(t *testing.T) {
		leader, known := delegatingReplica(t, client, tokenFile(t, token("eventd", peerAudience)))
		other, authenticated := delegatingReplica(t, client, tokenFile(t, token("eventd", peerAudience)))
		listenTLS(t, leader).leads(other)
		leader.lead(t)
		defer leader.stopLeading(nil)
		bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
		other.do(t, http.MethodPost, path, event("a"), bearer(writer)...).want(t, 201, "")
		other.do(t, http.MethodPatch, path+"/a", `{"count":5}`, bearer(writer)...).want(t, 200, "")
		if got := fmt.Sprint(leader.pipeline.weights()); got != "[1 4]" {
			t.Errorf("recorded %s", got)
		}
		if got, want := known(), authenticated(); want.GetUID() == "" || len(want.GetExtra()) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("to the leader it is %+v, to the standby %+v", got, want)
		}
		other.do(t, http.MethodPost, path, event("b"), bearer(token("stranger"))...).want(t, 403, metav1.StatusReasonForbidden)
		other.do(t, http.MethodPost, path, event("b"), bearer("forged")...).want(t, 401, metav1.StatusReasonUnauthorized)
	})

	t.Run("with a token of another account", func(t *testing.T) {
		leader, _ := delegatingReplica(t, client, tokenFile(t, token("eventd", peerAudience)))
		other, _ := delegatingReplica(t, client, tokenFile(t, token("impostor", peerAudience)))
		listenTLS(t, leader).leads(other)
		leader.lead(t)
		defer leader.stopLeading(nil)
		a := other.do(t, http.MethodPost, path, event("a"), "Authorization", "Bearer "+writer)
		a.want(t, 503, metav1.StatusReasonServiceUnavailable)
		if got := len(leader.pipeline.occurrences()); got > 0 {
			t.Errorf("recorded %d times", got)
		}
	})

	t.Run("by a leader whose own token is not good", func(t *testing.T) {
		for name, own := range map[string]string{
			"not one": "nonsense", "of another audience": token("eventd", "another"), "none": "",
		} {
			leader, _ := delegatingReplica(t, client, tokenFile(t, own))
			leader.lead(t)
			a := leader.do(t, http.MethodPost, path, event("a"), asserting(token("eventd", peerAudience), `{"username":"a"}`)...)
			if a.code != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
				t.Errorf("%s: answered %d: %s", name, a.code, a.body)
			}
			leader.stopLeading(nil)
		}
	})
}

// The leader cannot tell who asserts: that is not the client's fault.
func TestAssertionIsUnavailableWhileNobodyCanBeAsked(t *testing.T) {
	leader := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, "http://127.0.0.1:1")})
	leader.lead(t)
	defer leader.stopLeading(nil)
	a := leader.do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...)
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q", got)
	}
	leader.post(t, classic("a", 1)).want(t, 201, "")
}

// An apiserver that reports no audience has not looked at it.
func TestReviewWithoutAnAudienceIsNotAccepted(t *testing.T) {
	apiserver := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: peerUser}}
	})
	leader := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, apiserver.URL)})
	leader.lead(t)
	defer leader.stopLeading(nil)
	leader.do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...).
		want(t, 401, metav1.StatusReasonUnauthorized)
}

// delegatingReplica has an apiserver say everything, and returns whom it was
// asked about last.
func delegatingReplica(t *testing.T, client kubernetes.Interface, token string) (*replica, func() user.Info) {
	t.Helper()
	last := make(chan user.Info, 1)
	r := newReplica(t, written(), replicaOptions{reviewer: client.AuthenticationV1(), token: token}, func(_ *intake.Options, o *intake.ServerOptions) {
		authn, authz := delegating(t, client)
		o.Authenticator = authn
		o.Authorizer = asking(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			select {
			case <-last:
			default:
			}
			last <- a.GetUser()
			return authz.Authorize(ctx, a)
		})
	})
	return r, func() user.Info { return <-last }
}

type asking func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error)

func (f asking) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return f(ctx, a)
}

func startControlPlane(t *testing.T) *testenv.ControlPlane {
	t.Helper()
	testenv.SkipIfShort(t)
	cluster, err := testenv.Start(t.Context(), testenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// delegating has an apiserver review tokens and access.
func delegating(t *testing.T, client kubernetes.Interface) (authenticator.Request, authorizer.Authorizer) {
	t.Helper()
	backoff := &wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 2}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserverapi.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: 10 * time.Second,
		WebhookRetryBackoff:      backoff,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		WebhookRetryBackoff:       backoff,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	return authn, authz
}

// newWriter returns the token of an account that may write Events, when the apiserver
// knows that.
func newWriter(t *testing.T, cluster *testenv.ControlPlane, namespace string) string {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	token := cluster.ServiceAccount(t, namespace, "writer").BearerToken
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}}}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "writer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "writer"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(cluster.Config())
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the rights are granted", func() bool {
		e := classic("a", 1)
		e.Namespace, e.InvolvedObject.Namespace = namespace, namespace
		_, err := client.CoreV1().Events(namespace).Create(t.Context(), e, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
	return token
}
