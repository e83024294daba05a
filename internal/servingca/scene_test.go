package servingca

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

const (
	objectName = "eventd-serving-ca"
	serverName = "eventd.test.svc"
)

// quickTimes replace the CA every few seconds, and certificates more often. They stay valid for
// longer than a busy machine may stop.
func quickTimes() Times {
	return Times{
		Backdate: time.Hour, CALife: time.Hour, CARenewBefore: time.Hour - 2*time.Second,
		LeafLife: time.Minute, LeafRenewAfter: 500 * time.Millisecond, // a busy machine may renew late
		PublishFor: time.Second, RetireAfter: 61 * time.Second,
		Resync: 5 * time.Second, RetryAfter: 200 * time.Millisecond, CallTimeout: 5 * time.Second,
	}
}

// steadyTimes are the default ones, with short pauses.
func steadyTimes() Times {
	times := DefaultTimes()
	times.Resync, times.RetryAfter = 5*time.Second, 200*time.Millisecond
	return times
}

// scene is a namespace with both objects, as deploy/ creates them, and an account with the rights of
// deploy/ on them.
type scene struct {
	t         *testing.T
	namespace string
	account   *rest.Config
	client    typedcorev1.CoreV1Interface // of an administrator
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return newSceneAt(t, testenv.Shared(t))
}

func newSceneAt(t *testing.T, cluster *testenv.ControlPlane) *scene {
	t.Helper()
	s := &scene{t: t, namespace: cluster.Namespace(t), client: typedcorev1.NewForConfigOrDie(cluster.Config())}
	meta := metav1.ObjectMeta{Name: objectName}
	_, err := s.client.Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
	_, mapErr := s.client.ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
	if err := errors.Join(err, mapErr); err != nil {
		t.Fatal(err)
	}
	s.account = cluster.ServiceAccount(t, s.namespace, "eventd")
	var rules []rbacv1.PolicyRule
	for resource, verbs := range map[string][]string{
		"secrets": {"get", "watch", "patch"}, "configmaps": {"get", "watch", "patch", "create"},
	} {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{objectName}, Verbs: verbs,
		})
	}
	cluster.Grant(t, s.namespace, "eventd", rules...)
	return s
}

// member is a Manager that runs until its test ends.
type member struct {
	*Manager
	t    *testing.T
	stop func() // ends Run, and returns when it has ended
}

func (s *scene) start(times Times, change ...func(*Options)) *member {
	s.t.Helper()
	o := Options{Config: s.account, Namespace: s.namespace, Name: objectName, DNSNames: []string{serverName}, Times: times}
	for _, c := range change {
		c(&o)
	}
	manager, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { manager.Run(ctx) })
	m := &member{Manager: manager, t: s.t, stop: sync.OnceFunc(func() { cancel(); running.Wait() })}
	s.t.Cleanup(m.stop)
	return m
}

// lead begins a term, which end ends.
func (m *member) lead() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var leading sync.WaitGroup
	leading.Go(func() { _ = m.Lead(ctx) })
	end = sync.OnceFunc(func() { cancel(); leading.Wait() })
	m.t.Cleanup(end)
	return end
}

func (m *member) awaitIssued() *leaf {
	m.t.Helper()
	await.Until(m.t, "a certificate is issued", func() bool { return m.leaf.Load() != nil })
	return m.leaf.Load()
}

func (m *member) awaitIssuer(c *x509.Certificate) {
	m.t.Helper()
	await.Until(m.t, "the certificate is one of "+c.Subject.CommonName, func() bool {
		l := m.leaf.Load()
		return l != nil && l.issuer.Equal(c)
	})
}

func (m *member) count(reason string) float64 {
	return testutil.ToFloat64(m.metrics.failures.WithLabelValues(reason))
}

// bundle is what clients trust.
func (s *scene) bundle() []*x509.Certificate {
	s.t.Helper()
	bundle, _ := parseBundle([]byte(s.text()))
	return bundle
}

func (s *scene) text() string {
	s.t.Helper()
	m, err := s.client.ConfigMaps(s.namespace).Get(s.t.Context(), objectName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return m.Data[BundleKey]
}

func (s *scene) state() state {
	s.t.Helper()
	secret, err := s.client.Secrets(s.namespace).Get(s.t.Context(), objectName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
	return decode(secret.Data)
}

// awaitSettled waits until a Secret without problems agrees with the ConfigMap, and returns it.
func (s *scene) awaitSettled(is func(*state) bool) state {
	s.t.Helper()
	var found state
	err := await.Success(s.t.Context(), await.Timeout, func() error {
		found = s.state()
		if found.problem != nil || !is(&found) || s.text() != string(encodeBundle(found.bundle())) {
			return fmt.Errorf("the Secret has %d CAs (%v), and the ConfigMap %d", len(found.bundle()), found.problem, len(s.bundle()))
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

func (s *scene) editSecret(data map[string][]byte) {
	s.t.Helper()
	body := mustJSON(s.t, map[string]any{"data": data})
	if _, err := s.client.Secrets(s.namespace).Patch(s.t.Context(), objectName, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) editConfigMap(data map[string]any) {
	s.t.Helper()
	body := mustJSON(s.t, map[string]any{"data": data})
	if _, err := s.client.ConfigMaps(s.namespace).Patch(s.t.Context(), objectName, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// replaceSecret deletes it, and applies its manifest again once the leader has found that it is gone.
func (s *scene) replaceSecret(leader *member) {
	s.t.Helper()
	before := leader.count(failedWrite)
	s.deleteSecret()
	await.Until(s.t, "the leader does not create it", func() bool { return leader.count(failedWrite) > before })
	s.createSecret()
}

func (s *scene) createSecret() {
	s.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: objectName}}
	if _, err := s.client.Secrets(s.namespace).Create(s.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) deleteSecret() {
	s.t.Helper()
	if err := s.client.Secrets(s.namespace).Delete(s.t.Context(), objectName, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) deleteConfigMap() {
	s.t.Helper()
	if err := s.client.ConfigMaps(s.namespace).Delete(s.t.Context(), objectName, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// mount is the ConfigMap as a client has it: it is read all the time, and seen with a delay, as by a
// kubelet.
type mount struct {
	mu   sync.Mutex
	seen []mounted
}

type mounted struct {
	bundle []*x509.Certificate
	at     time.Time
}

const mountDelay = 400 * time.Millisecond

func (s *scene) mount() *mount {
	m := &mount{}
	s.t.Cleanup(await.Every(20*time.Millisecond, func(ctx context.Context) {
		c, err := s.client.ConfigMaps(s.namespace).Get(ctx, objectName, metav1.GetOptions{})
		if err != nil {
			return // a mounted file stays
		}
		bundle, _ := parseBundle([]byte(c.Data[BundleKey]))
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, mounted{bundle, time.Now()})
	}))
	return m
}

// trusted is what a client trusts now: what was seen mountDelay ago.
func (m *mount) trusted() (bundle []*x509.Certificate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, seen := range m.seen {
		if time.Since(seen.at) < mountDelay {
			break
		}
		bundle = seen.bundle
	}
	return bundle
}

// verifyAll connects, so to speak, to members all the time, and returns how often no client could.
func (s *scene) verifyAll(m *mount, members ...*member) (end func() (checks, failures int, err error)) {
	var checks, failures int
	var first error
	stop := await.Every(5*time.Millisecond, func(context.Context) {
		for _, member := range members {
			checks++
			if err := verify(member.leaf.Load(), m.trusted(), serverName, time.Now()); err != nil {
				failures++
				first = errors.Join(first, err)
			}
		}
	})
	return func() (int, int, error) { stop(); return checks, failures, first }
}
