package delivery

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// memoryConfigMap is the ConfigMap of the cursors in memory, with optimistic concurrency.
type memoryConfigMap struct {
	mu     sync.Mutex
	data   map[string]string // nil while it does not exist
	rv     int
	writes int
	// begun is the first value of each key.
	begun map[string]entry
}

func (m *memoryConfigMap) object() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(m.rv)}, Data: maps.Clone(m.data)}
}

// set is the write of another client. It creates the ConfigMap.
func (m *memoryConfigMap) set(key, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.data == nil {
		m.data = make(map[string]string)
	}
	m.data[key] = value
	m.rv++
}

func (m *memoryConfigMap) countWrites() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

func (m *memoryConfigMap) remove() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = nil
}

func (m *memoryConfigMap) get(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.data[key]
	return value, ok
}

func (m *memoryConfigMap) patch(kind types.PatchType, body []byte) (*corev1.ConfigMap, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kind == types.ApplyPatchType {
		if m.data == nil {
			m.data = make(map[string]string)
			m.rv++
		}
		return m.object(), nil
	}
	if m.data == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), DefaultConfigMap)
	}
	var p struct {
		Metadata metav1.ObjectMeta  `json:"metadata"`
		Data     map[string]*string `json:"data"`
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return nil, err
	}
	if p.Metadata.ResourceVersion != strconv.Itoa(m.rv) {
		return nil, apierrors.NewConflict(corev1.Resource("configmaps"), DefaultConfigMap, nil)
	}
	m.rv++
	m.writes++
	for key, value := range p.Data {
		if value == nil {
			delete(m.data, key)
			continue
		}
		m.data[key] = *value
		if e, err := decodeEntry(*value); err == nil && m.begun != nil {
			if _, ok := m.begun[key]; !ok {
				m.begun[key] = e
			}
		}
	}
	return m.object(), nil
}

// configMapClient is the client of one process.
type configMapClient struct {
	typedcorev1.ConfigMapInterface
	of *memoryConfigMap
	mu *sync.Mutex // of before and after, nil if they do not change
	// before may refuse a call or delay it, after may lose its answer.
	before, after func(ctx context.Context) error
}

func (c *configMapClient) ConfigMaps(string) typedcorev1.ConfigMapInterface { return c }

func (c *configMapClient) faults() (before, after func(context.Context) error) {
	if c.mu != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return c.before, c.after
}

func (c *configMapClient) do(ctx context.Context, call func() (*corev1.ConfigMap, error)) (*corev1.ConfigMap, error) {
	before, after := c.faults()
	if before != nil {
		if err := before(ctx); err != nil {
			return nil, err
		}
	}
	m, err := call()
	if err == nil && after != nil {
		err = after(ctx)
	}
	return m, err
}

func (c *configMapClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.ConfigMap, error) {
	return c.do(ctx, func() (*corev1.ConfigMap, error) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if c.of.data == nil {
			return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
		}
		return c.of.object(), nil
	})
}

func (c *configMapClient) Patch(ctx context.Context, _ string, kind types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*corev1.ConfigMap, error) {
	return c.do(ctx, func() (*corev1.ConfigMap, error) { return c.of.patch(kind, body) })
}
