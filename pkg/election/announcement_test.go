package election

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzAnnounced reads any announcement: only that of the Lease's holder is one.
func FuzzAnnounced(f *testing.F) {
	f.Add(`{"identity":"a","address":"10.0.0.1:443","certificateSHA256":"00"}`, "a")
	f.Add(`{"identity":"b","address":"10.0.0.1:443"}`, "a")
	f.Add(`{"Identity":"b","identity":"a","address":7}`, "a")
	f.Add(``, "")
	f.Fuzz(func(t *testing.T, annotation, holder string) {
		lock := &LeaseLock{lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnouncementAnnotation: annotation}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}}
		said := lock.Announced()
		if holder += "-2"; said != (Announcement{}) && lock.Announced() != (Announcement{}) {
			t.Errorf("%q is what both %q and the one before say", annotation, holder)
		}
	})
}
