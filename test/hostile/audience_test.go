package hostile

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

const (
	// tailPath is the tail that costs most: everything, of all namespaces.
	tailPath = "/apis/query.eventd.io/v1alpha1/tail?watch=true&include=events,steps"
	// One user may not open as many.
	tailUsers, tailsOfAUser = 10, 5
)

// audience is who watches eventd: users with tails, of which one reads nothing, and one with a page. Those who
// read are a process of their own (viewers_test.go).
type audience struct {
	t     *testing.T
	g     *target
	users []*rest.Config // the last one has the page
	deaf  *account
	lasts int

	// While it watches.
	viewers *exec.Cmd
	orders  io.WriteCloser
	seen    *bufio.Scanner
	stalled stalledConns
}

func newAudience(t *testing.T, g *target) *audience {
	t.Helper()
	users := g.readers(t, tailUsers+1)
	a := &audience{t: t, g: g, users: users, deaf: newAccount(t, users[0], "")}
	t.Cleanup(func() {
		a.leave()
		a.hangUp()
	})
	return a
}

// open opens all tails, and the page with one more.
func (a *audience) open() {
	a.t.Helper()
	// Only on processors that are idle: in a cluster, those who watch take none of eventd, nor of who reports.
	priority := []string{"chrt", "--idle", "0"}
	if _, err := exec.LookPath(priority[0]); err != nil {
		priority = []string{"nice", "-n", "19"} // not on Linux
	}
	a.viewers = exec.CommandContext(a.t.Context(), priority[0], append(priority[1:], os.Args[0], "-test.run=^$")...)
	a.viewers.Env = append(os.Environ(), viewersEnv+"=1")
	a.viewers.Stderr = os.Stderr
	var err error
	if a.orders, err = a.viewers.StdinPipe(); err != nil {
		a.t.Fatal(err)
	}
	seen, err := a.viewers.StdoutPipe()
	if err != nil {
		a.t.Fatal(err)
	}
	a.seen = bufio.NewScanner(seen)
	if err := a.viewers.Start(); err != nil {
		a.t.Fatal(err)
	}
	var users []viewer
	for _, config := range a.users {
		users = append(users, viewer{Host: config.Host, Token: config.BearerToken, TLS: config.TLSClientConfig})
	}
	if err := json.NewEncoder(a.orders).Encode(users); err != nil {
		a.t.Fatal(err)
	}
	a.awaitWatches(tailUsers * tailsOfAUser)
	// Last, as it is cut after 10 s.
	if err := a.stalled.openStreams(a.t.Context(), a.t, a.deaf, stalledRequest{http.MethodGet, tailPath, ""}, 1); err != nil {
		a.t.Fatal(err)
	}
	a.awaitWatches(tailUsers*tailsOfAUser + 1)
}

func (a *audience) awaitWatches(n float64) {
	a.t.Helper()
	await.Until(a.t, "the watches are open", func() bool { return a.g.metrics(a.t).Sum("eventd_query_watches") == n })
}

// leave closes all but the connection on which nothing is read.
func (a *audience) leave() {
	if a.viewers == nil {
		return
	}
	_ = a.orders.Close()
	for a.seen.Scan() {
		a.t.Errorf("a viewer says: %s", a.seen.Text())
	}
	if err := a.viewers.Wait(); err != nil {
		a.t.Errorf("the viewers have ended: %v", err)
	}
	a.viewers = nil
}

// hangUp closes that one, too.
func (a *audience) hangUp() { a.stalled.close() }

// awaitLast reports an Event, and waits until all who read have it.
func (a *audience) awaitLast(l *load) {
	a.t.Helper()
	a.lasts++
	last := fmt.Sprintf("last-%d", a.lasts)
	if _, err := fmt.Fprintln(a.orders, last); err != nil {
		a.t.Fatal(err)
	}
	if !a.seen.Scan() || a.seen.Text() != awaiting {
		a.t.Fatalf("the viewers do not await the last Event: %q", a.seen.Text())
	}
	l.mustPost(a.t, l.event(last, last, "Normal", 1), http.StatusCreated)
	if !a.seen.Scan() || a.seen.Text() != last {
		a.t.Fatalf("not all tails have the last Event: %q", a.seen.Text())
	}
}

// readers returns accounts that may watch the Events of all namespaces. Each is a tenant of its own: all
// ServiceAccounts of a namespace are one.
func (g *target) readers(t *testing.T, n int) (configs []*rest.Config) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(g.cluster.Config())
	name := "reader-" + rand.String(8)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch"}}},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for range n {
		namespace := g.cluster.Namespace(t)
		configs = append(configs, g.config(g.cluster.ServiceAccount(t, namespace, name)))
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
		reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
			User: testenv.User(namespace, name), ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Resource: "events"},
		})
	}
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		_ = client.RbacV1().ClusterRoles().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := testenv.WaitAllowed(t.Context(), client, reviews...); err != nil {
		t.Fatal(err)
	}
	return configs
}
