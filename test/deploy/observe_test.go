package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/await"
)

const cursors = "eventd-cursors"

// Those that observe use each of their rights, and no other: without one, that is what they are refused. With all of
// them, they lead, deliver and keep what is stored, and put back the ConfigMap of the cursors and the Lease if
// somebody has deleted them.
func TestEveryRightOfObserveIsNeeded(t *testing.T) {
	rights := granted(t, observe)
	for i, removed := range append(slices.Clone(rights), right{}) {
		all, name := i == len(rights), "all"
		if !all {
			name = strings.NewReplacer(" ", "_", "/", "_").Replace(removed.String())
		}
		t.Run(name, func(t *testing.T) {
			account := newAccount("observe")
			makeAccount(t, account, without(rights, i, account))
			core := administrator().CoreV1().ConfigMaps(metav1.NamespaceSystem)
			if err := core.Delete(t.Context(), cursors, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "events.jsonl")
			var env []string
			if removed.verb == "list" && removed.resource == "configmaps" {
				env = append(env, "KUBE_FEATURE_WatchListClient=false")
			}
			r := startAs(t, observe, account, delivering(t, account, file), env...)
			s := &scene{account: account, leader: r, patience: await.Timeout}
			if !all {
				switch removed.verb + " " + removed.resource {
				case "create leases":
					s.patience = 3 * time.Second
					if err := putsItsLeaseBack(t, s); err == nil {
						t.Error("the Lease is put back without the right to create it")
					}
				case "create subjectaccessreviews":
					if err := r.WaitServing(t.Context(), await.Timeout); err != nil {
						t.Fatal(err)
					}
					_, _ = r.Metrics(t.Context(), cluster.ServiceAccount(t, metav1.NamespaceSystem, account))
				case "patch events":
					if err := leadsAgain(t, s); err != nil { // what repeats is written some seconds later
						t.Error(err)
					}
				}
				if err := await.Success(t.Context(), await.Timeout, func() error { return refused(t, account, removed.ofAccount(account)) }); err != nil {
					t.Error(err)
				}
				return
			}
			if err := r.WaitServing(t.Context(), await.Timeout); err != nil {
				t.Fatal(err)
			}
			if err := delivers(t, file); err != nil {
				t.Error(err)
			}
			await.Until(t, "the history has what is stored", func() bool {
				return r.WantMetrics(t, cluster).Sum("eventd_history_versions") > 0
			})
			for _, check := range []check{leadsAgain, putsItsLeaseBack} {
				if err := check(t, s); err != nil {
					t.Error(err)
				}
			}
			r.Terminate(t)
			for _, request := range cluster.Audited(t, account) {
				if asked, ok := needed(&request); ok && request.Refused() {
					t.Errorf("it may not %v, and did ask for it", asked)
				}
			}
		})
	}
}

// leadsAgain lets another one hold the Lease for a second: that its process leads again is a repeat.
func leadsAgain(t *testing.T, s *scene) error {
	if err := leads(t, s); err != nil {
		return err
	}
	leases := administrator().CoordinationV1().Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
	if err != nil {
		return err
	}
	own := *lease.Spec.HolderIdentity
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("another"), ptr.To[int32](1)
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return await.Success(t.Context(), s.patience, func() error {
		lease, err := leases.Get(t.Context(), s.account, metav1.GetOptions{})
		if err == nil && *lease.Spec.HolderIdentity != own {
			err = errors.New("it does not lead again")
		}
		return err
	})
}

// delivering are the flags of a receiver with a name, and a cursor of its own.
func delivering(t *testing.T, name, file string) []string {
	t.Helper()
	configuration := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(configuration, fmt.Appendf(nil, `{apiVersion: config.eventd.io/v1alpha1, kind: EventdConfiguration,
receivers: [{name: %s, from: Oldest, jsonLines: {path: %q}}]}`, name, file), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config=" + configuration}
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
