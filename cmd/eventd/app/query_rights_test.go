package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

func mayRead(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: verbs}
}

// way is how a user reaches eventd.
type way struct {
	name string
	as   func(*rest.Config) *reader
}

// readers are users with different rights on Events of the namespace of the replicas, and of another one.
type readers struct {
	*replicas
	other                        string
	seesOne, seesOther, seesNone *rest.Config
	events, ofOther              int // posted until now: in all, and to the other namespace
}

func (r *replicas) newReaders() *readers {
	s := &readers{replicas: r, other: r.cluster.Namespace(r.t)}
	s.seesOne = r.cluster.ServiceAccount(r.t, r.namespace, "sees-one")
	r.cluster.Grant(r.t, r.namespace, "sees-one", mayRead("list", "watch"))
	s.seesOther = r.cluster.ServiceAccount(r.t, s.other, "sees-other")
	r.cluster.Grant(r.t, s.other, "sees-other", mayRead("list"))
	s.seesNone = r.cluster.ServiceAccount(r.t, s.other, "sees-none")
	return s
}

// Every query, of a leader and of a standby, directly and through the apiserver, with the rights of the
// apiserver.
func TestQueriesShowWhatTheApiserverWouldShow(t *testing.T) {
	r := newReplicas(t)
	replica.DeployObserve(t, r.cluster)
	api := r.aggregate()
	flags := append(api.flags, "--history-bytes=8Mi")
	leader := r.start(flags...)
	leader.awaitLeader()
	standby := r.start(flags...)
	standby.awaitStandby(r.holder())
	users := r.newReaders()
	toLeader := way{"to the leader", func(account *rest.Config) *reader { return as(t, leader, account) }}
	toStandby := way{"to a standby", func(account *rest.Config) *reader { return as(t, standby, account) }}
	byAPIServer := way{"through the apiserver", func(account *rest.Config) *reader { return through(t, account) }}
	for _, w := range []way{toLeader, toStandby} {
		users.see(t, w, leader)
	}
	for _, to := range []*child{leader, standby} { // the standby is the last one, and relays
		api.passTo(to)
		users.see(t, byAPIServer, leader)
	}
	users.groupsCount(t, byAPIServer)
	users.losesItsRight(t, toLeader, toStandby, byAPIServer)
	standby.terminate(0)
	leader.terminate(0)
}

// newName is that of an Event that was not posted yet.
func (s *readers) newName() string {
	s.events++
	return fmt.Sprint("web.", s.events)
}

func (s *readers) queries() []string {
	about := "?namespace=" + s.namespace
	return []string{
		"top" + about, "top" + about + "&watch=true", "timeline" + about, "why" + about + "&kind=Pod&name=web",
		"drops" + about, "drops" + about + "&watch=true", "tail" + about + "&watch=true", "tail" + about + "&include=steps&watch=true",
	}
}

// see makes every query as every user.
func (s *readers) see(t *testing.T, by way, leader *child) {
	t.Helper()
	s.post(leader, s.newName())
	about := "?namespace=" + s.namespace
	by.as(s.seesOne).awaitEvents("timeline"+about+"&name=web", 1)
	for _, path := range s.queries() {
		for who, account := range map[string]*rest.Config{"another namespace": s.seesOther, "none": s.seesNone} {
			if code, body := by.as(account).claim(path); code != http.StatusForbidden || strings.Contains(body, "Container started") {
				t.Errorf("%s, %s is answered %d to who may see %s: %s", by.name, path, code, who, body)
			}
		}
		if code := by.as(s.seesOne).begin(path); code != http.StatusOK {
			t.Errorf("%s, %s is answered %d to who may see it", by.name, path, code)
		}
	}
	for _, path := range []string{"status", "status?local=true", "status?watch=true", "top", "timeline", "drops", "tail?watch=true", "top" + about + "&namespace=" + s.other} {
		if code, body := by.as(s.seesOne).claim(path); code != http.StatusForbidden || strings.Contains(body, "Container started") {
			t.Errorf("%s, %s is answered %d to who may see one namespace: %s", by.name, path, code, body)
		}
	}
	if code, _ := by.as(s.seesOther).claim("tail?watch=true&namespace=" + s.other); code != http.StatusForbidden {
		t.Errorf("%s, a watch is answered %d to who may only list", by.name, code)
	}
	var why v1alpha1.Explanation
	if code := by.as(s.seesOne).get("why"+about+"&kind=Pod&name=web", &why); code != http.StatusOK ||
		why.Leader != s.holder() || len(why.Events) != 1 || !hasStep(why.Steps, v1alpha1.ActionSettled, "created") {
		t.Errorf("%s, %d: the explanation is %+v", by.name, code, why)
	}
	var top v1alpha1.Top
	if code := by.as(s.seesOther).get("top?namespace="+s.other, &top); code != http.StatusOK || top.Occurrences != int64(s.ofOther) {
		t.Errorf("%s, %d: what others did is in %+v", by.name, code, top)
	}
	s.tailsItsOwn(t, by, leader)
}

// tailsItsOwn has Events happen in both namespaces, the other one first.
func (s *readers) tailsItsOwn(t *testing.T, by way, leader *child) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), await.Timeout)
	defer leave()
	tail := by.as(s.seesOne).open(ctx, "tail?include=events,steps&watch=true&namespace="+s.namespace)
	defer func() { _ = tail.Body.Close() }()
	lines := bufio.NewScanner(tail.Body)
	lines.Scan() // it has begun
	if err := create(ctx, kubernetes.NewForConfigOrDie(leader.config), s.other, s.newName()); err != nil {
		t.Fatal(err)
	}
	s.ofOther++
	s.post(leader, s.newName())
	for observed, recorded := false, false; !observed || !recorded; {
		if !lines.Scan() {
			t.Fatalf("%s, the tail has ended: %v", by.name, lines.Err())
		}
		text := lines.Text()
		if strings.Contains(text, s.other) {
			t.Errorf("%s, the tail has what is in another namespace: %s", by.name, text)
		}
		observed = observed || strings.Contains(text, `"event":`)
		recorded = recorded || strings.Contains(text, `"step":`)
	}
}

// groupsCount has users who get their right by a group: that of an account, and one that is impersonated.
func (s *readers) groupsCount(t *testing.T, by way) {
	t.Helper()
	const team = "team-of-the-test"
	_, err := s.client.RbacV1().RoleBindings(s.namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: team},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "sees-one"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: team}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	jane := s.administrator()
	jane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{team}}
	path := "why?kind=Pod&name=web&namespace=" + s.namespace
	await.Until(t, "a member of the group may read", func() bool { return by.as(jane).get(path, nil) == http.StatusOK })
	jane.Impersonate.Groups = nil
	if code, _ := by.as(jane).claim(path); code != http.StatusForbidden {
		t.Errorf("%s, without her group a user is answered %d", by.name, code)
	}
}

// rightsLast is longer than the time after which a right is gone (docs/query.md), 12 s, on a slow machine.
const rightsLast = 20 * time.Second

// losesItsRight takes a right away. It is gone within the time of the cache, and the watches end. Another cached review may be
// younger than that of a watch.
func (s *readers) losesItsRight(t *testing.T, ways ...way) {
	t.Helper()
	about := "?watch=true&namespace=" + s.namespace
	tails := make(map[string]io.ReadCloser)
	for _, by := range ways {
		for _, path := range []string{"tail" + about, "tail" + about + "&include=steps", "top" + about} {
			tails[by.name+", "+path] = by.as(s.seesOne).open(t.Context(), path).Body
		}
	}
	if err := s.client.RbacV1().RoleBindings(s.namespace).Delete(t.Context(), "sees-one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	taken := time.Now()
	for what, tail := range tails {
		lines := bufio.NewScanner(tail)
		for lines.Scan() {
			if time.Since(taken) > rightsLast {
				t.Fatalf("%s goes on", what)
			}
		}
		_ = tail.Close()
	}
	t.Logf("all watches have ended %s after the right was taken away", time.Since(taken))
	for _, by := range ways {
		for _, path := range s.queries() {
			await.Until(t, by.name+", who has lost the right is refused: "+path, func() bool {
				begun := time.Since(taken)
				code, body := by.as(s.seesOne).claim(path)
				refused := code == http.StatusServiceUnavailable || code == http.StatusForbidden
				if !refused && begun > rightsLast || strings.Contains(body, "Container started") {
					t.Fatalf("%s, %s after the right was taken away, %s is answered %d: %s", by.name, begun, path, code, body)
				}
				return refused
			})
		}
	}
	for _, by := range ways {
		await.Until(t, by.name+", who has lost the right is refused", func() bool {
			code, _ := by.as(s.seesOne).claim("timeline?namespace=" + s.namespace)
			return code == http.StatusForbidden
		})
	}
}

// claim sends a query with headers of a front proxy, which the user is not, and reads the answer.
func (r *reader) claim(path string) (code int, body string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Remote-User", "kubernetes-admin")
	req.Header.Set("X-Remote-Group", "system:masters")
	response, err := r.client.Do(req)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return response.StatusCode, "" // it may be a watch
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Errorf("%s: %v", path, err)
	}
	return response.StatusCode, string(text)
}

// begin returns the code of an answer, and leaves.
func (r *reader) begin(path string) int {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	defer leave()
	return r.open(ctx, path).StatusCode
}

func hasStep(steps []v1alpha1.Step, action, outcome string) bool {
	return slices.ContainsFunc(steps, func(s v1alpha1.Step) bool { return s.Action == action && s.Outcome == outcome })
}
