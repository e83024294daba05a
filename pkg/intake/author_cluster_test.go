package intake_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	storedevents "github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

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
	cluster := testenv.StartForTest(t, testenv.Options{})
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
