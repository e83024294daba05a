package deploy

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/await"
)

// need shows that a right is needed: a check, and its error without the right.
type need struct {
	check check
	says  string
}

// needs names one for each right that deploy/ grants.
var needs = map[string]need{
	"get configmaps/extension-apiserver-authentication":   {starts, "cannot get resource"},
	"list configmaps/extension-apiserver-authentication":  {startsWithoutStreams, "eventd does not serve"},
	"watch configmaps/extension-apiserver-authentication": {followsTheClientCA, "may not watch"},

	"create tokenreviews.authentication.k8s.io":        {leads, "it does not lead"}, // it cannot review its own token
	"create subjectaccessreviews.authorization.k8s.io": {takes(classic), "answered 503"},

	"create events":               {takes(classic), "answered 403"},
	"create events.events.k8s.io": {takes(newStyle), "answered 403"},
	"patch events":                {counts("repeated", classic), "the repeat is not counted"},
	"patch events.events.k8s.io":  {counts("repeated", newStyle), "the repeat is not counted"},

	"get leases.coordination.k8s.io/eventd":    {leads, "it does not lead"},
	"update leases.coordination.k8s.io/eventd": {leads, "it does not lead"},
	"watch leases.coordination.k8s.io/eventd":  {handsOver, "it does not lead"},
	"create leases.coordination.k8s.io/eventd": {putsItsLeaseBack, "the Lease is not put back"},

	"get secrets/eventd-serving-ca":       {hasACertificate, "it has no serving certificate"},
	"patch secrets/eventd-serving-ca":     {hasACertificate, "it has no serving certificate"},
	"watch secrets/eventd-serving-ca":     {followsTheServingCA("secrets"), "may not watch"},
	"get configmaps/eventd-serving-ca":    {hasACertificate, "it has no serving certificate"},
	"patch configmaps/eventd-serving-ca":  {hasACertificate, "it has no serving certificate"},
	"watch configmaps/eventd-serving-ca":  {followsTheServingCA("configmaps"), "may not watch"},
	"create configmaps/eventd-serving-ca": {putsItsCABack, "is not put back"},
}

// With the rights of deploy/ everything works, each right is used, and no request
// needs another one.
func TestEventdUsesTheRightsThatItHas(t *testing.T) {
	t.Parallel()
	const account = "eventd"
	rights := granted(t, intake)
	waitAllowed(t, account, rights)
	s := setScene(t, account, time.Minute)
	for _, step := range []struct {
		what  string
		check check
	}{
		{"starts", starts},
		{"follows the CA of client certificates", followsTheClientCA},
		{"leads", leads},
		{"takes a classic Event", takes(classic)},
		{"takes a new-style Event", takes(newStyle)},
		{"counts a classic repeat", counts("repeated", classic)},
		{"counts a new-style repeat", counts("repeated-new-style", newStyle)},
		{"starts where lists are not streamed", startsWithoutStreams},
		{"answers its probes", answersItsProbes},
		{"leads on when deploy/ is applied again", staysWhenAppliedAgain},
		{"puts its Lease back", putsItsLeaseBack},
		{"follows the Secret of its CA", followsTheServingCA("secrets")},
		{"follows the ConfigMap of its CA", followsTheServingCA("configmaps")},
		{"is verified by the CA that it publishes", isVerified},
		{"fills the Secret of its CA again", fillsItsSecretAgain},
		{"puts the ConfigMap of its CA back", putsItsCABack},
		{"is verified by what it has put back", isVerified},
		{"passes an Event on to the leader", passesOn},
		{"hands over", handsOver},
	} {
		if err := step.check(t, s); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
	}
	s.standby.Terminate(t)

	unused := slices.Clone(rights)
	for _, request := range cluster.Audited(t, account) {
		asked, ok := needed(&request)
		if !ok {
			t.Errorf("it asked for %s", request.RequestURI)
			continue
		}
		if request.Refused() || !slices.ContainsFunc(rights, func(r right) bool { return r.covers(asked) }) {
			t.Errorf("it may not %v, and did ask for it: %d", asked, request.ResponseStatus.Code)
		}
		unused = slices.DeleteFunc(unused, func(r right) bool { return r.covers(asked) })
	}
	if len(unused) > 0 {
		t.Errorf("it has rights that it does not use: %v", unused)
	}
}

// Without any one of them a check fails, because of just that.
func TestEveryRightIsNeeded(t *testing.T) {
	rights := granted(t, intake)
	for name := range needs {
		if !slices.ContainsFunc(rights, func(r right) bool { return r.String() == name }) {
			t.Errorf("%s is not granted", name)
		}
	}
	for i, removed := range rights {
		t.Run(strings.NewReplacer(" ", "_", "/", "_").Replace(removed.String()), func(t *testing.T) {
			t.Parallel()
			account := newAccount("without")
			need, ok := needs[removed.String()]
			if !ok {
				t.Fatalf("nothing shows that eventd needs to %s", removed)
			}
			removed = removed.ofAccount(account)
			makeAccount(t, account, without(rights, i, account))
			s := setScene(t, account, 3*time.Second)

			err := need.check(t, s)
			if err == nil || !strings.Contains(err.Error(), need.says) {
				t.Errorf("got %v, want what says %q", err, need.says)
			}
			if err := await.Success(t.Context(), await.Timeout, func() error { return refused(t, account, removed) }); err != nil {
				t.Error(err)
			}
		})
	}
}

// Rights are those of the accounts of the Pods, and of nobody else: what observes has none of the intake, nor the
// other way round. What eventd serves, everybody may ask for.
func TestRolesAreBoundToTheAccountsOfThePods(t *testing.T) {
	for _, folder := range []string{manifests, complete} {
		var own, exist []rbacv1.Subject
		for _, name := range []string{intake, observe} {
			pod := deploymentOf(t, folder, name).Spec.Template.Spec
			own = append(own, rbacv1.Subject{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: metav1.NamespaceSystem})
			if pod.ServiceAccountName != accounts[name] || !ptr.Deref(pod.AutomountServiceAccountToken, true) {
				t.Errorf("%s: the Pods of %s are %s, and have a token: %v", folder, name, pod.ServiceAccountName, pod.AutomountServiceAccountToken)
			}
		}
		everybody := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}
		for _, object := range rendered(t, folder) {
			var name string
			var subjects []rbacv1.Subject
			switch o := object.(type) {
			case *corev1.ServiceAccount:
				exist = append(exist, rbacv1.Subject{Kind: "ServiceAccount", Name: o.Name, Namespace: o.Namespace})
				continue
			case *rbacv1.RoleBinding:
				name, subjects = o.Name, o.Subjects
			case *rbacv1.ClusterRoleBinding:
				name, subjects = o.Name, o.Subjects
			default:
				continue
			}
			if len(subjects) != 1 || !slices.Contains(own, subjects[0]) && (name != "eventd-query" || subjects[0] != everybody) {
				t.Errorf("%s: %s is bound to %v", folder, name, subjects)
			}
		}
		if !slices.Equal(exist, own) {
			t.Errorf("%s: there are the ServiceAccounts %v", folder, exist)
		}
	}
	for _, r := range granted(t, intake) {
		if r.resource == "events" && (r.verb == "list" || r.verb == "watch" || r.verb == "get") {
			t.Errorf("the intake may %s", r)
		}
	}
	for _, r := range granted(t, observe) {
		if r.resource == "events" && r.namespace != metav1.NamespaceSystem && r.verb != "list" && r.verb != "watch" {
			t.Errorf("what observes may %s", r)
		}
	}
}

// newAccount is a name that no other run of a test has.
func newAccount(of string) string { return of + "-" + strings.ToLower(rand.Text()[:8]) }

// without is what an account has of these rights if one is taken away.
func without(rights []right, index int, account string) (left []right) {
	for i, r := range rights {
		if i != index {
			left = append(left, r.ofAccount(account))
		}
	}
	return left
}

// refused returns nil if the audit log has a request of the account that was refused
// for lack of a right.
func refused(t *testing.T, account string, removed right) error {
	for _, request := range cluster.Audited(t, account) {
		if asked, ok := needed(&request); ok && request.Refused() && removed.covers(asked) {
			return nil
		}
	}
	return fmt.Errorf("it was not refused to %s", removed)
}
