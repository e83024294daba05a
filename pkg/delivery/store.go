package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/internal/grace"
)

const fieldManager = "eventd"

// errCallNotReturned: a call ignores its context, and no other one is made beside it.
var errCallNotReturned = errors.New("an earlier call to the apiserver ignores its timeout and has not returned")

// snapshot is the content of the ConfigMap.
type snapshot struct {
	resourceVersion string
	data            map[string]string
	created         bool // it did not exist before
}

// store reads and writes the ConfigMap. It is safe for concurrent use. A call ends soon after its
// context: if the client ignores the context, the call is abandoned, and the ones after it fail
// until it has returned.
type store struct {
	client          typedcorev1.ConfigMapsGetter
	namespace, name string
	idle            chan struct{} // has an element while no call is made
}

func newStore(client typedcorev1.ConfigMapsGetter, namespace, name string) *store {
	s := &store{client: client, namespace: namespace, name: name, idle: make(chan struct{}, 1)}
	s.idle <- struct{}{}
	return s
}

// load reads the ConfigMap, and creates it if it does not exist.
func (s *store) load(ctx context.Context) (snapshot, error) {
	created := false
	loaded, err := s.call(ctx, func() (*corev1.ConfigMap, error) {
		m, err := s.client.ConfigMaps(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			created = true
			return s.create(ctx)
		}
		return m, err
	})
	if err != nil { // perhaps of a call that has not returned
		return snapshot{}, err
	}
	loaded.created = created
	return loaded, nil
}

// create creates the ConfigMap by server-side apply: unlike that of a POST, the right to do so can
// be limited to the name. It applies no data, so it changes nothing if another process has created
// it meanwhile.
func (s *store) create(ctx context.Context) (*corev1.ConfigMap, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": s.name, "namespace": s.namespace},
	})
	if err != nil {
		return nil, err
	}
	return s.client.ConfigMaps(s.namespace).Patch(ctx, s.name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)})
}

// patch sets the keys of changes, or deletes those that are nil, and leaves all others. It fails
// with a conflict if the ConfigMap no longer has the resource version, and with NotFound if it
// does not exist.
func (s *store) patch(ctx context.Context, resourceVersion string, changes map[string]*string) (snapshot, error) {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion},
		"data":     changes,
	})
	if err != nil {
		return snapshot{}, err
	}
	return s.call(ctx, func() (*corev1.ConfigMap, error) {
		return s.client.ConfigMaps(s.namespace).Patch(ctx, s.name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: fieldManager})
	})
}

// call makes a call in a goroutine, which it abandons some time after ctx has ended.
func (s *store) call(ctx context.Context, request func() (*corev1.ConfigMap, error)) (snapshot, error) {
	select {
	case <-s.idle:
	case <-ctx.Done():
		return snapshot{}, fmt.Errorf("%w: %w", errCallNotReturned, context.Cause(ctx))
	}
	var m *corev1.ConfigMap
	var err error
	returned := make(chan struct{})
	go func() {
		defer func() { s.idle <- struct{}{} }()
		m, err = request()
		close(returned)
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		if !grace.Wait(returned) {
			return snapshot{}, fmt.Errorf("%w: %w", errCallNotReturned, context.Cause(ctx))
		}
	}
	if err != nil {
		return snapshot{}, err
	}
	return snapshot{resourceVersion: m.ResourceVersion, data: m.Data}, nil
}
