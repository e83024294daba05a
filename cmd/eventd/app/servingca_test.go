package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/servingca"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

func (r *replicas) bindServingCA(rules []rbacv1.PolicyRule) {
	r.t.Helper()
	meta, rbac, none := metav1.ObjectMeta{Name: "eventd-serving-ca"}, r.client.RbacV1(), metav1.CreateOptions{}
	_, role := rbac.Roles(r.namespace).Create(r.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, none)
	_, bound := rbac.RoleBindings(r.namespace).Create(r.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceSystem, Name: "eventd"}},
	}, none)
	_, secret := r.client.CoreV1().Secrets(r.namespace).Create(r.t.Context(), &corev1.Secret{ObjectMeta: meta}, none)
	_, configMap := r.client.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, none)
	allowed := testenv.WaitAllowed(r.t.Context(), r.client, authorizationv1.SubjectAccessReviewSpec{
		User:               testenv.User(metav1.NamespaceSystem, "eventd"),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Resource: "secrets", Namespace: r.namespace, Name: meta.Name},
	})
	if err := errors.Join(role, bound, secret, configMap, allowed); err != nil {
		r.t.Fatal(err)
	}
}

// certificate returns that of a replica, for a client that names the server so, or names none.
func (c *child) certificate(name string) *x509.Certificate {
	c.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.URL(""), "https://"), &tls.Config{InsecureSkipVerify: true, ServerName: name})
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0]
}

func (c *child) awaitCertificate() {
	c.t.Helper()
	await.Until(c.t, "a certificate is issued", func() bool { return c.metric("eventd_serving_ca_certificates_issued_total") > 0 })
}

// Clients that name the server get a certificate that they can verify, from each replica. Who does not,
// as other replicas, gets the one that the Lease announces, which does not change.
func TestReplicasServeWithCertificatesOfTheirCA(t *testing.T) {
	r := newReplicas(t)
	r.copyServingCA()
	leader := r.start("--serving-ca=managed", "--serving-ca-dns-names=events.example,*.events.example")
	leader.awaitLeader()
	standby := r.start("--serving-ca=managed")
	standby.awaitStandby(r.holder())
	leader.awaitCertificate()
	standby.awaitCertificate()
	m, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), "eventd-serving-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(m.Data[servingca.BundleKey])) {
		t.Fatal("no CA is published")
	}
	service := "eventd." + r.namespace
	for _, to := range []*child{leader, standby} {
		for _, name := range []string{service + ".svc", service + ".svc.cluster.local", service, "eventd"} {
			if _, err := to.certificate(name).Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		own := to.certificate("")
		if !own.Equal(to.certificate("other.example")) || own.Equal(to.certificate(service)) {
			t.Error("who does not name the server gets the certificate of the CA")
		}
		to.requireReady()
	}
	for _, name := range []string{"events.example", "eu.events.example"} {
		if leader.certificate(name).VerifyHostname(name) != nil {
			t.Errorf("the certificate is not for %s", name)
		}
	}
	r.post(standby, "web.1")
	r.awaitCount(1)
	standby.terminate(0)
	leader.terminate(0)
}

// Without the rights, eventd works as without the flag, after a while.
func TestReplicaWithoutRightsOnItsCAServes(t *testing.T) {
	t.Setenv(quickServingCA, "1")
	r := newReplicas(t)
	c := r.start("--serving-ca=managed")
	c.awaitAnswer("/readyz?verbose", http.StatusInternalServerError, "[-]serving-certificate failed")
	c.awaitLog("Could not read or update the serving CA")
	c.awaitLeader()
	r.post(c, "web.1")
	r.awaitCount(1)
	c.terminate(0)
}

// A request for the CA that hangs delays neither the start nor the end.
func TestReplicaStartsAndEndsThoughItsCAHangs(t *testing.T) {
	cancelled := false
	ca := &servingCA{begun: time.Now(), cancel: func() { cancelled = true }}
	never := make(chan struct{})
	ca.running.Go(func() { <-never })
	begun := time.Now()
	ca.stop()
	if took := time.Since(begun); took > await.Timeout/2 || !cancelled {
		t.Errorf("it ended after %s, cancelled: %t", took, cancelled)
	}
	close(never)
	ca.running.Wait()
}

// Two that keep the CA would replace it in turn.
func TestOnlyTheLeaderKeepsTheCA(t *testing.T) {
	components := (&servingCA{}).components()
	if len(components) != 1 || !components[0].NeedsLeadership {
		t.Errorf("it runs %+v", components)
	}
}
