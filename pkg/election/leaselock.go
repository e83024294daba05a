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

// AnnouncementAnnotation is the annotation in which a LeaseLock stores the holder's
// announcement, as JSON. It repeats the holder's name: another kind of lock changes
// the holder but not the annotation, which is ignored then.
const AnnouncementAnnotation = "eventd.io/leader"

// announcement is the value of the annotation.
type announcement struct {
	Identity string `json:"identity"`
	Announcement
}

// LeaseLock is a lock in a Lease. It writes the holder and its announcement in one
// request, and changes nothing else of the Lease's metadata. Every write of the
// Lease counts as a change, whatever times it contains. Like every lock, it is for
// one goroutine at a time.
//
// It needs the rights to get, update and create this Lease.
type LeaseLock struct {
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Holder is the name of this process. No other running process may use it.
	Holder string
	// Client is a client of coordination.k8s.io/v1, such as that of NewLeaseClient.
	Client rest.Interface
	// Labels of a Lease that the lock creates.
	Labels map[string]string
	// Announce is optional. It returns the announcement of this process, is called at
	// every write as the holder, and must not block.
	Announce func() Announcement
	// Recorder is optional. It records Events about the Lease, and must not block.
	Recorder resourcelock.EventRecorder

	lease *coordinationv1.Lease // as last read or written
}

// Get reads the Lease. The raw record is its UID and version: every write changes it.
func (l *LeaseLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	lease, err := l.do(ctx, l.Client.Get().Name(l.Name))
	if err != nil {
		return nil, nil, err
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	return record, fmt.Appendf(nil, "%s/%s", lease.UID, lease.ResourceVersion), nil
}

// Create creates the Lease by a PUT. RBAC can bind a PUT to a name, but not a POST,
// whose name is not known to the authorizer. It returns AlreadyExists if the Lease
// exists, because the update of an existing object has to name its version.
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

// lacksVersion reports whether an update was refused because it names no version.
func lacksVersion(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.resourceVersion"
	})
}

// Update writes the Lease. It returns Conflict if the Lease was written since this
// lock last read or wrote it.
func (l *LeaseLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lease == nil {
		return errors.New("the lease must be read before it is updated")
	}
	lease := l.lease.DeepCopy()
	if err := l.write(lease, &record); err != nil {
		return err
	}
	_, err := l.do(ctx, l.Client.Put().Name(l.Name).Body(lease))
	return err
}

// write puts the record and the announcement of its holder into a Lease.
func (l *LeaseLock) write(lease *coordinationv1.Lease, record *resourcelock.LeaderElectionRecord) error {
	spec := resourcelock.LeaderElectionRecordToLeaseSpec(record)
	spec.Strategy, spec.PreferredHolder = lease.Spec.Strategy, lease.Spec.PreferredHolder
	lease.Spec = spec
	annotations := maps.Clone(lease.Annotations)
	delete(annotations, AnnouncementAnnotation)
	if l.Announce != nil && record.HolderIdentity == l.Holder {
		value, err := json.Marshal(announcement{Identity: l.Holder, Announcement: l.Announce()})
		if err != nil {
			return fmt.Errorf("encoding the announcement: %w", err)
		}
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[AnnouncementAnnotation] = string(value)
	}
	lease.Annotations = annotations
	return nil
}

// do sends one request and keeps the Lease of the answer. client-go's retries are
// disabled: they would use the time of the Elector's next attempt.
func (l *LeaseLock) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := r.UseProtobufAsDefault().MaxRetries(0).Namespace(l.Namespace).Resource("leases").Do(ctx).Into(lease)
	if err != nil {
		return nil, err
	}
	l.lease = lease
	return lease, nil
}

// RecordEvent records an Event about the Lease.
func (l *LeaseLock) RecordEvent(event string) {
	if l.Recorder == nil || l.lease == nil {
		return
	}
	subject := &coordinationv1.Lease{ObjectMeta: l.lease.ObjectMeta}
	subject.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	l.Recorder.Eventf(subject, corev1.EventTypeNormal, "LeaderElection", "%s %s", l.Holder, event)
}

// Identity returns Holder.
func (l *LeaseLock) Identity() string { return l.Holder }

// Describe returns namespace and name of the Lease.
func (l *LeaseLock) Describe() string { return l.Namespace + "/" + l.Name }

// Announced returns the announcement of the holder, as last read or written. It is
// zero if the annotation is invalid or names another holder.
func (l *LeaseLock) Announced() Announcement {
	if l.lease == nil || l.lease.Spec.HolderIdentity == nil {
		return Announcement{}
	}
	var a announcement
	if err := json.Unmarshal([]byte(l.lease.Annotations[AnnouncementAnnotation]), &a); err != nil || a.Identity != *l.lease.Spec.HolderIdentity {
		return Announcement{}
	}
	return a.Announcement
}

// LeaseWatch hints at changes of one Lease. It needs the right to watch this Lease.
type LeaseWatch struct {
	Namespace, Name string
	Client          rest.Interface
}

// Watch runs one watch. It calls changed when the watch has started, so that no
// change between two watches is missed, and at each event.
func (w *LeaseWatch) Watch(ctx context.Context, changed func()) error {
	watch, err := w.Client.Get().UseProtobufAsDefault().MaxRetries(0).Namespace(w.Namespace).Resource("leases").
		VersionedParams(&metav1.ListOptions{Watch: true, FieldSelector: "metadata.name=" + w.Name}, scheme.ParameterCodec).
		Watch(ctx)
	if err != nil {
		return err
	}
	defer watch.Stop()
	changed() // the Lease may have been deleted before
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
