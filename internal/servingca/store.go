package servingca

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
)

const fieldManager = "eventd"

// store reads and writes the Secret and the ConfigMap, which have the same name. It needs the rights
// to get, watch and patch the two, and to create the ConfigMap: a server-side apply creates it, because
// unlike that of a POST the right to do so can be limited to a name. It creates no Secret, for which
// deploy/ grants no right: the apiserver would put the token of any ServiceAccount into one of that type.
type store struct {
	client          typedcorev1.CoreV1Interface
	namespace, name string
	timeout         time.Duration // of one call
}

// content is what both objects have. A resourceVersion is empty if there is no such object.
type content struct {
	secretVersion, configMapVersion string
	secret                          map[string][]byte
	bundle                          []byte
	// others are the keys of the ConfigMap that it must not have.
	others []string
}

func (s *store) read(ctx context.Context) (c content, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
	defer cancel()
	secret, err := s.client.Secrets(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case err == nil:
		c.secretVersion, c.secret = secret.ResourceVersion, secret.Data
	case !apierrors.IsNotFound(err):
		return content{}, err
	}
	// After the Secret: a CA that is in it is published later.
	configMap, err := s.client.ConfigMaps(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	switch {
	case err == nil:
		c.configMapVersion, c.bundle = configMap.ResourceVersion, []byte(configMap.Data[BundleKey])
		for key := range configMap.Data {
			if key != BundleKey {
				c.others = append(c.others, key)
			}
		}
	case !apierrors.IsNotFound(err):
		return content{}, err
	}
	return c, nil
}

// errNoSecret: somebody has deleted it, or the manifest was never applied.
var errNoSecret = errors.New("there is no Secret, and eventd does not create it: apply its manifest")

// writeSecret writes keys of the Secret that was read, and removes those that are nil and all others:
// with them, it could be too large. It fails with a conflict if the Secret has changed, and with
// errNoSecret if there was none.
func (s *store) writeSecret(ctx context.Context, read content, data map[string][]byte) error {
	if read.secretVersion == "" {
		return errNoSecret
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	all := maps.Clone(data)
	for key := range read.secret {
		if _, ours := data[key]; !ours {
			all[key] = nil
		}
	}
	kind, body, options, err := merge(read.secretVersion, map[string]any{"data": all})
	if err == nil {
		_, err = s.client.Secrets(s.namespace).Patch(ctx, s.name, kind, body, options)
	}
	return err
}

// writeBundle writes the ConfigMap, as writeSecret does the Secret. If there is none, it only creates an
// empty one. A key is not allowed to be in both of its maps.
func (s *store) writeBundle(ctx context.Context, read content, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	data := map[string]any{BundleKey: string(bundle)}
	for _, key := range read.others {
		data[key] = nil
	}
	kind, body, options, err := merge(read.configMapVersion, map[string]any{"data": data, "binaryData": nil})
	if read.configMapVersion == "" {
		kind, body, options, err = s.emptyConfigMap()
	}
	if err == nil {
		_, err = s.client.ConfigMaps(s.namespace).Patch(ctx, s.name, kind, body, options)
	}
	return err
}

// merge returns a patch of the fields of an object that has a version.
func merge(version string, fields map[string]any) (types.PatchType, []byte, metav1.PatchOptions, error) {
	fields["metadata"] = map[string]any{"resourceVersion": version}
	body, err := json.Marshal(fields)
	return types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}, err
}

// emptyConfigMap returns a patch that creates the ConfigMap. It applies no data, so it changes nothing if
// another process has created it meanwhile.
func (s *store) emptyConfigMap() (types.PatchType, []byte, metav1.PatchOptions, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": s.name, "namespace": s.namespace,
			"labels": map[string]string{"app.kubernetes.io/name": "eventd"},
		},
	})
	return types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)}, err
}

// watchFor is the shortest time after which the apiserver ends a watch; the longest is twice as long.
const watchFor = 5 * time.Minute

// watch calls changed at each change of an object, and when the watch has begun. It returns when the
// watch has ended.
func (s *store) watch(ctx context.Context, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), changed func()) error {
	limit := watchFor + time.Duration(rand.Int64N(int64(watchFor)))
	ctx, cancel := context.WithTimeout(ctx, limit+s.timeout)
	defer cancel()
	w, err := begin(ctx, metav1.ListOptions{
		FieldSelector:  "metadata.name=" + s.name,
		TimeoutSeconds: ptr.To(int64(limit / time.Second)),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	changed()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		changed()
	}
	return nil
}

func (s *store) watchSecret(ctx context.Context, changed func()) error {
	return s.watch(ctx, s.client.Secrets(s.namespace).Watch, changed)
}

func (s *store) watchConfigMap(ctx context.Context, changed func()) error {
	return s.watch(ctx, s.client.ConfigMaps(s.namespace).Watch, changed)
}
