package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// AnnouncementAnnotation is where a LeaseLock stores what the holder says about
// itself: JSON that also names the holder, so that it is not taken for another
// one's when a lock that does not know of it has written the Lease since.
const AnnouncementAnnotation = "eventd.io/leader"

// announcement is the value of the annotation.
type announcement struct {
	Identity string `json:"identity"`
	Announcement
}

// LeaseLock is a lock in a Lease. It writes what the holder announces in the
// same request as the holder, changes nothing else of the Lease's metadata, and
// calls the Lease changed whenever it was written, whatever it says about times.
// As every lock it is for use by one goroutine at a time.
//
// It needs the rights to get, update and create the one Lease.
type LeaseLock struct {
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Holder is what this process is called; no other one alive is called so.
	Holder string
	// Client is one of coordination.k8s.io/v1, such as NewLeaseClient returns.
	Client rest.Interface
	// Labels are those of a Lease that the lock creates.
	Labels map[string]string
	// Announce, if not nil, is what this process says about itself when it is
	// the holder. It is asked at every write, and must not block.
	Announce func() Announcement
	// Recorder, if not nil, records what becomes of this process as Events of
	// the Lease. It must not block.
	Recorder resourcelock.EventRecorder

	lease *coordinationv1.Lease // as last read or written
}

// Get reads the Lease. The raw record is its version, which every write changes.
func (l *LeaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.do(ctx, l.Client.Get().Name(l.Name))
	if err != nil {
		return nil, nil, err
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	return record, fmt.Appendf(nil, "%s/%s", lease.UID, lease.ResourceVersion), nil
}

// Create creates the Lease, by the update of one that is not there: who creates by
// a POST needs the right to create any, since its name is not known to the
// authorizer, while here the right can be bound to the name. It is AlreadyExists
// if there is one: an update of that has to name a version.
func (l *LeaseLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels}}
	if err := l.write(lease, &record); err != nil {
		return err
	}
	_, err := l.do(ctx, l.Client.Put().Name(l.Name).Body(lease))
	if lacksVersion(err) {
		return apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), l.Name)
	}
	return err
}

// lacksVersion tells whether an update was refused because it names no version of
// the Lease that it is of.
func lacksVersion(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.resourceVersion"
	})
}

// Update writes the Lease if nobody has since it was last read or written.
func (l *LeaseLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return errors.New("the lease has to be read before it can be updated")
	}
	lease := l.lease.DeepCopy()
	if err := l.write(lease, &record); err != nil {
		return err
	}
	_, err := l.do(ctx, l.Client.Put().Name(l.Name).Body(lease))
	return err
}

// write puts the record into a Lease, and what its holder announces.
func (l *LeaseLock) write(lease *coordinationv1.Lease, record *resourcelock.LeaderElectionRecord) error {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(record)
	spec.Strategy, spec.PreferredHolder = lease.Spec.Strategy, lease.Spec.PreferredHolder
	lease.Spec = spec
	annotations := maps.Clone(lease.Annotations)
	delete(annotations, AnnouncementAnnotation)
	if l.Announce != nil && record.HolderIdentity == l.Holder {
		value, err := json.Marshal(announcement{Identity: l.Holder, Announcement: l.Announce()})
		if err != nil {
			return fmt.Errorf("what is to be announced: %w", err)
		}
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[AnnouncementAnnotation] = string(value)
	}
	lease.Annotations = annotations
	return nil
}

// do makes one request, for as long as the Elector gives it, and keeps the Lease
// that is answered. client-go's own retries are switched off: they would take the time of the next attempt.
func (l *LeaseLock) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.UseProtobufAsDefault().MaxRetries(0).Namespace(l.Namespace).Resource("leases").Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	l.lease = lease
	return lease, nil
}

// RecordEvent reports what has become of this process.
func (l *LeaseLock) RecordEvent(event string) {
	if l.Recorder == nil || l.lease == nil {
		return
	}
	subject := &coordinationv1.Lease{ObjectMeta: l.lease.ObjectMeta}
	subject.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	l.Recorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.Holder, event)
}

// Identity is the holder's name of this process.
func (l *LeaseLock) Identity() string { return l.Holder }

// Describe says which Lease it is.
func (l *LeaseLock) Describe() string { return l.Namespace + "/" + l.Name }

// Announced is what the holder of the Lease, as last read or written, says about
// itself. What cannot be read was not said.
func (l *LeaseLock) Announced() Announcement {
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return Announcement{}
	}
	var said announcement
	if err := json.Unmarshal([]byte(l.lease.Annotations[AnnouncementAnnotation]), &said); err != nil || said.Identity != *l.lease.Spec.HolderIdentity {
		return Announcement{}
	}
	return said.Announcement
}

// LeaseWatch hints at changes of one Lease. It needs the right to watch it.
type LeaseWatch struct {
	Namespace, Name string
	Client          rest.Interface
}

// Watch is one watch, from the Lease as it is now: the first hint comes when it
// has begun, so nothing is missed between two of them.
func (w *LeaseWatch) Watch(ctx context.Context, changed func()) error {
	watch, err := w.Client.Get().UseProtobufAsDefault().MaxRetries(0).Namespace(w.Namespace).Resource("leases").
		VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "metadata.name=" + w.Name}, scheme.ParameterCodec).
		Watch(ctx)
	if err != nil {
		return err
	}
	defer watch.Stop()
	changed() // it may have begun after the Lease was deleted
	for {
		select {
		case _, open := <-watch.ResultChan():
			if !open {
				return nil
			}
			changed()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
