package relay_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/intaketest"
	"github.com/eventd/eventd/test/testenv"
)

// TestWhoIsAcceptedAsAReplica has a kube-apiserver say whose tokens are whose.
func TestWhoIsAcceptedAsAReplica(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	token := func(account string, audiences ...string) string {
		return cluster.ServiceAccount(t, namespace, account, audiences...).BearerToken
	}
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	writer, writerName := token("writer"), testenv.User(namespace, "writer")
	cluster.Grant(t, namespace, "writer", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}})
	path := "/api/v1/namespaces/" + namespace + "/events"
	event := func(name string) *corev1.Event {
		e := classic(name, 1)
		e.Namespace, e.InvolvedObject.Namespace = namespace, namespace
		return e
	}
	authn, authz := intaketest.Delegating(t, client)
	var authorized user.Info
	leader := newReplica(t, options{reviewer: client.AuthenticationV1(), token: tokenFile(t, token("eventd", peerAudience)),
		set: func(_ *intake.Options, o *intake.ServerOptions) {
			o.Authenticator = authn
			o.AccessReviewTTL = -1 // each request is authorized
			o.Authorizer = intaketest.Decision(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
				authorized = a.GetUser()
				return authz.Authorize(t.Context(), a)
			})
		}})
	leader.lead(t)
	asserted := fmt.Sprintf(`{"username":%q,"uid":"u","groups":["g"],"extra":{"K":["v"]}}`, writerName)
	replica := token("eventd", peerAudience) // another one of the same account
	for name, test := range map[string]struct {
		header []string
		code   int
	}{
		"a replica":                                 {asserting(replica, asserted), 201},
		"a replica, of who may not":                 {asserting(replica, `{"username":"system:serviceaccount:x:y"}`), 403},
		"a client":                                  {bearer(writer), 201},
		"a client that asserts":                     {asserting(writer, asserted), 401},
		"a client that asserts itself":              {asserting(writer, fmt.Sprintf(`{"username":%q}`, writerName)), 401},
		"a replica that asserts nobody":             {bearer(replica), 401},
		"a replica that asserts no name":            {asserting(replica, `{"groups":["system:masters"]}`), 401},
		"a replica that asserts nonsense":           {asserting(replica, `nonsense`), 401},
		"another account, the same audience":        {asserting(token("impostor", peerAudience), asserted), 401},
		"the same account, another audience":        {asserting(token("eventd", "another"), asserted), 401},
		"the same account, the apiserver's":         {asserting(token("eventd"), asserted), 401},
		"the same account, both audiences":          {asserting(token("eventd", "another", peerAudience), asserted), 201},
		"a forged token":                            {asserting(replica+"x", asserted), 401},
		"no token":                                  {asserting("", asserted), 401},
		"no token, to whom nobody needs one either": {[]string{intaketest.WithoutToken, "true"}, 401},
		"a password":                                {append(asserting("", asserted), "Authorization", "Basic "+replica), 401},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(leader.Pipeline.Occurrences())
			a := leader.Do(t, http.MethodPost, path, event(fmt.Sprint("a", before)), test.header...)
			if a.Code != test.code {
				t.Errorf("answered %d, want %d: %s", a.Code, test.code, a.Body)
			}
			if recorded := len(leader.Pipeline.Occurrences()) - before; (recorded == 1) != (test.code == 201) {
				t.Errorf("recorded %d times", recorded)
			}
		})
	}
	// If there are two, it is not defined which one counts.
	req := newRequest(t.Context(), t, http.MethodPost, path, event("twice"), asserting(replica, asserted)...)
	req.Header.Add("Eventd-Asserted-User", req.Header.Get("Eventd-Asserted-User"))
	leader.Send(req).Want(t, 401, metav1.StatusReasonUnauthorized)

	leader.Do(t, http.MethodPost, path, event("last"), asserting(replica, asserted)...).Want(t, 201, "")
	want := &user.DefaultInfo{Name: writerName, UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"K": {"v"}}}
	if diff := cmp.Diff(user.Info(want), authorized); diff != "" {
		t.Errorf("authorized (-want +got):\n%s", diff)
	}
}

// The leader cannot authenticate the replica, which is not the client's fault.
func TestAssertionIsUnavailableWhileTheAPIServerIsDown(t *testing.T) {
	leader := alone(t, options{})
	leader.lead(t)
	wantUnavailable(t, leader.Do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...))
	leader.Post(t, classic("a", 1)).Want(t, 201, "")
}

// An apiserver that reports no audience has not compared it.
func TestReviewWithoutAnAudienceIsNotAccepted(t *testing.T) {
	apiserver := reviewing(t, func(*authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: peerUser}}
	})
	leader := newReplica(t, options{apiserver: apiserver.URL})
	leader.lead(t)
	leader.Do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...).
		Want(t, 401, metav1.StatusReasonUnauthorized)
}
