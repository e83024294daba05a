package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/eventd/eventd/pkg/occurrence"
)

// storage is the REST storage behind the apiserver's handlers. Its steps and their order
// are those of k8s.io/apiserver/pkg/registry/generic/registry.Store.
type storage struct {
	intake   *Intake
	api      occurrence.API
	resource schema.GroupResource
	strategy strategy
	// mayCreate reports whether the caller may create an Event that its update does not
	// find.
	mayCreate func(ctx context.Context, namespace, name string) error
	// createOnly reports whether the caller may create Events, but not change those of
	// others.
	createOnly func(ctx context.Context) (bool, error)
}

var (
	_ rest.Storage = &storage{}
	_ rest.Creater = &storage{}
	_ rest.Patcher = &storage{} // includes Updater and Getter
)

// versioner reads resourceVersions.
var versioner = apistorage.APIObjectVersioner{}

// nameAttempts is how many names are generated before AlreadyExists is returned, as in
// the apiserver.
const nameAttempts = 8

// New implements rest.Storage.
func (s *storage) New() runtime.Object { return &corev1.Event{} }

// Destroy implements rest.Storage.
func (s *storage) Destroy() {}

// Get implements rest.Patcher. No request calls it.
func (s *storage) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return nil, apierrors.NewMethodNotSupported(s.resource, "get")
}

// Create implements rest.Creater.
func (s *storage) Create(ctx context.Context, obj runtime.Object, _ rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	created, err := s.createEvent(ctx, request.NamespaceValue(ctx), obj.(*corev1.Event), options)
	if err != nil {
		return nil, err
	}
	return created.DeepCopy(), nil // the handlers change it
}

// createEvent creates an Event in the namespace of a request, and returns it as the client sees it. Nobody may change
// that. A generated name that exists is generated again.
func (s *storage) createEvent(ctx context.Context, namespace string, event *corev1.Event, options *metav1.CreateOptions) (*corev1.Event, error) {
	if event.Name != "" || event.GenerateName == "" {
		return s.createOnce(ctx, namespace, event, options)
	}
	for attempt := 1; ; attempt++ {
		created, err := s.createOnce(ctx, namespace, event.DeepCopy(), options)
		if attempt == nameAttempts || !apierrors.IsAlreadyExists(err) {
			return created, err
		}
	}
}

// createOnce is createEvent for one generated name.
func (s *storage) createOnce(ctx context.Context, namespace string, event *corev1.Event, options *metav1.CreateOptions) (*corev1.Event, error) {
	rest.FillObjectMetaSystemFields(event)
	unnamed := event.Name == ""
	if unnamed && event.GenerateName != "" {
		event.Name = s.strategy.GenerateName(event.GenerateName)
	}
	if err := s.beforeCreate(ctx, namespace, event); err != nil {
		return nil, err
	}
	k := key{event.Namespace, event.Name}
	if dryrun.IsDryRun(options.DryRun) {
		if s.intake.names.known(k).view != nil {
			return nil, s.exists(ctx, event)
		}
		return event, nil
	}
	if version, err := versioner.ObjectResourceVersion(event); err == nil && version != 0 {
		return nil, apistorage.ErrResourceVersionSetOnCreate // 500, as in the apiserver
	}
	event.ResourceVersion = ""

	callOf(ctx).decoding.end()
	createOnly, err := s.createOnly(ctx)
	if err != nil {
		return nil, err
	}
	r := newReport(ctx, s.api, k, event, known{})
	r.post, r.unnamed, r.occurrence.CreateOnly = true, unnamed, createOnly
	joined, err := s.intake.names.lockForPost(ctx, k, r)
	switch {
	case errors.Is(err, errNameKnown):
		return nil, s.exists(ctx, event)
	case err != nil:
		return nil, timeoutError(err)
	case joined != nil:
		r = joined
	default:
		s.intake.record(ctx, r)
	}
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	if r.settlement.Outcome == occurrence.Replayed {
		return nil, s.exists(ctx, event)
	}
	return r.result(ctx)
}

func (s *storage) exists(ctx context.Context, event *corev1.Event) error {
	return rest.CheckGeneratedNameError(ctx, s.strategy, apierrors.NewAlreadyExists(s.resource, event.Name), event)
}

// Update implements rest.Updater, for PUT and PATCH.
func (s *storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	changed, created, err := s.updateEvent(ctx, key{request.NamespaceValue(ctx), name}, info, options)
	if err != nil {
		return nil, false, err
	}
	return changed.DeepCopy(), created, nil // the handlers change it
}

// updateEvent changes or creates an Event, and returns it as the client sees it. Nobody may change that.
func (s *storage) updateEvent(ctx context.Context, k key, info rest.UpdatedObjectInfo, options *metav1.UpdateOptions) (changed *corev1.Event, created bool, err error) {
	callOf(ctx).decoding.end()
	if dryrun.IsDryRun(options.DryRun) {
		old := s.intake.names.known(k).view
		event, err := s.updatedEvent(ctx, k, info, old)
		if err != nil {
			return nil, false, err
		}
		return event, old == nil, nil
	}
	r, unchanged, err := s.recordUpdate(ctx, k, info)
	if err != nil || r == nil {
		return unchanged, false, err
	}
	if err := r.wait(ctx); err != nil {
		return nil, false, err
	}
	created = r.creates && r.settlement.Outcome != occurrence.Replayed
	changed, err = r.result(ctx)
	return changed, created, err
}

// recordUpdate records the change of a request, and returns the report. If nothing changes, it
// returns the pending report of the same change or, without one, the unchanged Event.
func (s *storage) recordUpdate(ctx context.Context, k key, info rest.UpdatedObjectInfo) (r *report, unchanged *corev1.Event, err error) {
	createOnly, err := s.createOnly(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.intake.names.lock(ctx, k); err != nil {
		return nil, nil, timeoutError(err)
	}
	recorded := false
	defer func() {
		if !recorded {
			s.intake.names.unlock(k)
		}
	}()
	now := s.intake.names.known(k)
	event, err := s.updatedEvent(ctx, k, info, now.view)
	switch {
	case err != nil:
		return nil, nil, err
	case now.view == nil || differ(event, now.view.event):
	case now.last != nil:
		return now.last, nil, nil
	default:
		return nil, event, nil
	}
	r = newReport(ctx, s.api, k, event, now)
	r.creates = now.view == nil
	recorded = true
	r.occurrence.CreateOnly = createOnly
	s.intake.record(ctx, r)
	return r, nil, nil
}

// differ reports whether a change of an Event has an effect. Most change the count.
func differ(event, old *corev1.Event) bool {
	return event.Count != old.Count || !apiequality.Semantic.DeepEqual(event, old)
}

// updatedEvent returns the Event after a request, where old is the view before, nil if there
// is none. Preconditions are about the last response that the client has seen, so they
// are not checked for a former view.
func (s *storage) updatedEvent(ctx context.Context, k key, info rest.UpdatedObjectInfo, old *view) (*corev1.Event, error) {
	existing, former := &corev1.Event{}, false
	if old != nil {
		existing, former = old.event.DeepCopy(), old.former(ctx)
	}
	if p := info.Preconditions(); p != nil && p.UID != nil && !former {
		if err := apistorage.NewUIDPreconditions(string(*p.UID)).Check(k.namespace+"/"+k.name, existing); err != nil {
			return nil, apierrors.NewConflict(s.resource, k.name, err)
		}
	}
	event, err := s.patchedEvent(ctx, info, existing)
	if err != nil {
		return nil, err
	}
	version, err := versioner.ObjectResourceVersion(event)
	if err != nil {
		return nil, err
	}
	if old == nil {
		return event, s.prepareCreate(ctx, k, event)
	}
	if former {
		version, event.UID, event.CreationTimestamp = 0, existing.UID, existing.CreationTimestamp
	}
	if version == 0 {
		event.ResourceVersion = existing.ResourceVersion
	} else if current, err := versioner.ObjectResourceVersion(existing); err != nil || version != current {
		return nil, apierrors.NewConflict(s.resource, k.name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if err := checkMetadata(event); err != nil {
		return nil, err
	}
	return event, s.beforeUpdate(ctx, k.namespace, event, existing)
}

// beforeCreate is rest.BeforeCreate. Of a valid Event with plain metadata it is only its validation: the rest would
// allocate a path for each field of the metadata, in case that the field has an error.
func (s *storage) beforeCreate(ctx context.Context, namespace string, event *corev1.Event) error {
	if err := checkMetadata(event); err != nil {
		return err
	}
	if isPlainMeta(&event.ObjectMeta) && event.Namespace == namespace {
		if prepare(event); len(validateCreate(event, s.api)) == 0 {
			return nil
		}
	}
	return rest.BeforeCreate(s.strategy, request.WithNamespace(ctx, namespace), event)
}

// beforeUpdate is rest.BeforeUpdate. If plain metadata stays the same, it is only validation, as in beforeCreate.
func (s *storage) beforeUpdate(ctx context.Context, namespace string, event, old *corev1.Event) error {
	if !old.CreationTimestamp.IsZero() {
		event.CreationTimestamp = old.CreationTimestamp
	}
	if isSamePlainMeta(&event.ObjectMeta, &old.ObjectMeta) && event.Namespace == namespace {
		if prepare(event); len(validateUpdate(event, old, s.api)) == 0 {
			return nil
		}
	}
	return rest.BeforeUpdate(s.strategy, request.WithNamespace(ctx, namespace), event, old)
}

// patchedEvent returns an Event with the change of a request, before validation. The limits of a posted Event apply to it,
// because many small patches make a large one.
func (s *storage) patchedEvent(ctx context.Context, info rest.UpdatedObjectInfo, existing *corev1.Event) (*corev1.Event, error) {
	reserved, err := callOf(ctx).decoding.reservePatch(ctx, int64(existing.Size()))
	if err != nil {
		return nil, err
	}
	defer reserved.release()
	obj, err := info.UpdatedObject(ctx, existing)
	if err != nil {
		return nil, err
	}
	event := obj.(*corev1.Event)
	if err := checkEvent(event); err != nil {
		return nil, err
	}
	if limit := s.intake.options.MaxBodyBytes; int64(event.Size()) > limit {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", limit))
	}
	return event, nil
}

// prepareCreate prepares an update that creates an Event.
func (s *storage) prepareCreate(ctx context.Context, k key, event *corev1.Event) error {
	event.ResourceVersion = ""
	rest.WipeObjectMetaSystemFields(event)
	rest.FillObjectMetaSystemFields(event)
	if err := s.beforeCreate(ctx, k.namespace, event); err != nil {
		return err
	}
	return s.mayCreate(ctx, k.namespace, k.name)
}

// early ends a context shortly before its deadline. So this package responds to a
// request that times out; the apiserver's handlers would log an error for each.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-earlyBy(time.Until(deadline))))
}

// earlyWithin is early with a timeout.
func earlyWithin(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline))
	}
	return context.WithTimeout(ctx, timeout-earlyBy(timeout))
}

// earlyBy is how long before its end a timeout ends for this package.
func earlyBy(timeout time.Duration) time.Duration { return min(100*time.Millisecond, timeout/10) }
