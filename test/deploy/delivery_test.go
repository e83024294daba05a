package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

// addedRights returns the rights that a component adds to those of deploy/, by the name of its roles.
func addedRights(t *testing.T, component string) (rights []right) {
	t.Helper()
	for _, object := range rendered(t, complete) {
		meta, ok := object.(metav1.Object)
		if !ok || meta.GetName() != component {
			continue
		}
		switch o := object.(type) {
		case *rbacv1.Role:
			rights = append(rights, expanded(t, o.Namespace, o.Rules)...)
		case *rbacv1.ClusterRole:
			rights = append(rights, expanded(t, "", o.Rules)...)
		}
	}
	if len(rights) == 0 {
		t.Fatalf("%s grants nothing", component)
	}
	return rights
}

const cursors = "eventd-cursors"

// eventd uses each right of the component, and no other: without one, that is what it is refused.
// With all of them, it delivers, and creates the ConfigMap of the cursors if somebody has deleted it.
func TestEveryRightOfDeliveryIsNeeded(t *testing.T) {
	rights := addedRights(t, "eventd-delivery")
	for i, removed := range append(slices.Clone(rights), right{}) {
		name := "all"
		if i < len(rights) {
			name = strings.NewReplacer(" ", "_", "/", "_").Replace(removed.String())
		}
		t.Run(name, func(t *testing.T) {
			account := newAccount("delivery")
			base := granted(t)
			makeAccount(t, account, without(append(base, rights...), len(base)+i, account))
			removed := removed.ofAccount(account)
			if removed.verb == "create" || i == len(rights) {
				err := administrator().CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), cursors, metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
			}
			file := filepath.Join(t.TempDir(), "events.jsonl")
			r := startWith(t, account, replica.Delivering(t, account, file))
			defer r.Terminate(t)
			if i == len(rights) {
				if err := delivers(t, file); err != nil {
					t.Error(err)
				}
				return
			}
			if err := await.Success(t.Context(), await.Timeout, func() error { return refused(t, account, removed) }); err != nil {
				t.Error(err)
			}
			if removed.verb == "create" { // for the others
				_, err := administrator().CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: cursors}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// delivers stores an Event, and waits until it is in the file.
func delivers(t *testing.T, file string) error {
	t.Helper()
	namespace := cluster.Namespace(t)
	event, err := administrator().CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "delivered", Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web-0"},
		Reason:         "Tested", Message: "somebody has tested it", Type: corev1.EventTypeNormal,
		LastTimestamp: metav1.NewTime(time.Now()),
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await.Success(t.Context(), await.Timeout, func() error {
		lines, err := os.ReadFile(file)
		if err == nil && !strings.Contains(string(lines), string(event.UID)+"/"+event.ResourceVersion) {
			err = errors.New("the Event is not delivered")
		}
		return err
	})
}
