package pipeline

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/test/testenv"
)

// memorySink is a custom sink that stores Events by name. The function before, if not nil,
// runs before each call, and may refuse it.
type memorySink struct {
	before func(event *corev1.Event) error

	mu     sync.Mutex
	events map[string]*corev1.Event
	calls  int
}

var _ record.EventSink = &memorySink{}

func (m *memorySink) keep(event *corev1.Event) (*corev1.Event, error) {
	if m.before != nil {
		if err := m.before(event); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.events = make(map[string]*corev1.Event)
	}
	m.calls++
	m.events[event.Name] = event.DeepCopy()
	return event, nil
}

func (m *memorySink) Create(event *corev1.Event) (*corev1.Event, error) { return m.keep(event) }
func (m *memorySink) Update(event *corev1.Event) (*corev1.Event, error) { return m.keep(event) }
func (m *memorySink) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return m.keep(event)
}

// count returns the number of stored Events, and the sum of their counts.
func (m *memorySink) count() (objects int, sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		sum += countOf(e)
	}
	return len(m.events), sum
}

func countOf(e *corev1.Event) int64 {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.EventTime.IsZero():
		return int64(e.Count)
	default:
		return 1
	}
}

// writerClients returns clients of a ServiceAccount with the rights of most controllers: to
// create and patch events of the API groups in a namespace.
func writerClients(t *testing.T, namespace string, groups ...string) *kubernetes.Clientset {
	t.Helper()
	admin := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	config := testenv.Shared(t).ServiceAccount(t, namespace, "writer")
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: groups, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}},
	}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "writer"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "writer"}},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clients := kubernetes.NewForConfigOrDie(config)
	eventually(t, "the authorizer sees the new binding", func() bool {
		var err error
		if groups[0] == "" {
			_, err = clients.CoreV1().Events(namespace).Patch(t.Context(), "none", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
		} else {
			_, err = clients.EventsV1().Events(namespace).Patch(t.Context(), "none", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
		}
		return apierrors.IsNotFound(err)
	})
	return clients
}

// eventually polls a condition that cannot be waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatal("not in time: " + what)
		}
	}
}

func stored(t *testing.T, namespace string) []corev1.Event {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "uid-" + types.UID(name)}}
}

// drainer is a broadcaster or a shutdownOf.
type drainer interface {
	ShutdownWithContext(context.Context) error
}

// shutdownOf adapts a Pipeline to drainer.
type shutdownOf struct{ *Pipeline }

func (p shutdownOf) ShutdownWithContext(ctx context.Context) error { return p.Shutdown(ctx) }

func drain(t *testing.T, b drainer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.ShutdownWithContext(ctx); err != nil {
		t.Error(err)
	}
}

// ledgers returns the totals of all sinks that have not been stopped.
func ledgers(s *stations) (out []ledger.Totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.writers {
		out = append(out, w.ledger.Totals())
	}
	return out
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// recordTo returns a broadcaster that writes to a sink, and a recorder of classic Events.
func recordTo(to record.EventSink, opts ...BroadcasterOption) (*RecordBroadcaster, record.EventRecorderLogger) {
	b := NewRecordBroadcaster(opts...)
	b.StartRecordingToSink(to)
	return b, b.NewRecorder(scheme.Scheme, source)
}
