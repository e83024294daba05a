package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

// servingCA is the Secret and the ConfigMap of deploy/.
const servingCA = "eventd-serving-ca"

// servingCAOf are those of an account with a Lease of its name.
func servingCAOf(account string) string { return account + "-serving-ca" }

// contentOfCA is what an account's Secret and ConfigMap have; nothing if there are none.
func contentOfCA(t *testing.T, account string) (secret map[string][]byte, bundle map[string]string) {
	t.Helper()
	client := administrator().CoreV1()
	if s, err := client.Secrets(metav1.NamespaceSystem).Get(t.Context(), servingCAOf(account), metav1.GetOptions{}); err == nil {
		secret = s.Data
	}
	if m, err := client.ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), servingCAOf(account), metav1.GetOptions{}); err == nil {
		bundle = m.Data
	}
	return secret, bundle
}

// hasACertificate waits until the leader has one of its CA.
func hasACertificate(t *testing.T, s *scene) error {
	if err := s.waitLeading(t); err != nil {
		return err
	}
	return s.hasACertificate(t, s.leader)
}

func (s *scene) hasACertificate(t *testing.T, r *replica.Replica) error {
	return await.Success(t.Context(), s.patience, func() error {
		m, err := metricsOf(t, r)
		if err == nil && m.Sum("eventd_serving_ca_certificates_issued_total") == 0 {
			err = errors.New("it has no serving certificate")
		}
		return err
	})
}

func followsTheServingCA(resource string) check {
	return func(t *testing.T, s *scene) error {
		if err := serves(t, s.leader); err != nil {
			return err
		}
		return s.follows(t, resource, servingCAOf(s.account))
	}
}

// putsItsCABack deletes the ConfigMap.
func putsItsCABack(t *testing.T, s *scene) error {
	return s.restoresItsCA(t, func() error {
		return administrator().CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), servingCAOf(s.account), metav1.DeleteOptions{})
	})
}

// fillsItsSecretAgain empties the Secret.
func fillsItsSecretAgain(t *testing.T, s *scene) error {
	return s.restoresItsCA(t, func() error {
		_, err := administrator().CoreV1().Secrets(metav1.NamespaceSystem).Patch(
			t.Context(), servingCAOf(s.account), types.MergePatchType, []byte(`{"data":null}`), metav1.PatchOptions{})
		return err
	})
}

func (s *scene) restoresItsCA(t *testing.T, spoil func() error) error {
	if err := hasACertificate(t, s); err != nil {
		return err
	}
	if err := spoil(); err != nil {
		return err
	}
	return await.Success(t.Context(), s.patience, func() error {
		if secret, bundle := contentOfCA(t, s.account); len(secret) == 0 || len(bundle["ca.crt"]) == 0 {
			return fmt.Errorf("what was deleted of %s is not put back", servingCAOf(s.account))
		}
		return nil
	})
}

// Whoever may create a Secret, and read it, gets the token of any ServiceAccount of its namespace: it
// names that in an annotation.
func TestNoSecretCanBeCreated(t *testing.T) {
	for _, r := range granted(t, intake) {
		if name := r.String(); strings.Contains(name, "secrets") && (strings.HasPrefix(name, "create ") || strings.HasPrefix(name, "update ") || strings.HasPrefix(name, "* ")) {
			t.Errorf("it may %s", name)
		}
	}
}

// isVerified connects to both replicas as a client that verifies the Service.
func isVerified(t *testing.T, s *scene) error {
	for _, r := range []*replica.Replica{s.leader, s.standby} {
		if err := s.hasACertificate(t, r); err != nil {
			return err
		}
		_, bundle := contentOfCA(t, s.account)
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(bundle["ca.crt"])) {
			return errors.New("no CA is published")
		}
		dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{RootCAs: roots, ServerName: "eventd.kube-system.svc"}}
		conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(r.URL(""), "https://"))
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	return nil
}

// The names of the objects are those of the flags, and the certificate is for the Service.
func TestServingCAIsThatOfTheFlags(t *testing.T) {
	o, _ := options(t, intake)
	if o.ServingCA != "managed" || o.ServingCAName() != servingCA {
		t.Errorf("--serving-ca=%s keeps the CA in %s", o.ServingCA, o.ServingCAName())
	}
	found := 0
	for _, object := range rendered(t, manifests) {
		switch o := object.(type) {
		case *corev1.Secret:
			found++
			if o.Name != servingCA || o.Data != nil || o.StringData != nil {
				t.Errorf("the Secret %s has data", o.Name)
			}
		case *corev1.ConfigMap:
			if o.Name != servingCA {
				continue
			}
			if found++; o.Data != nil {
				t.Errorf("the ConfigMap %s has data", o.Name)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d objects", found)
	}
}

// With a certificate of somebody else, eventd keeps no CA, and has no right to.
func TestCertificateOfSomebodyElseReplacesTheServingCA(t *testing.T) {
	for _, object := range rendered(t, complete) {
		if o, ok := object.(metav1.Object); ok && o.GetName() == servingCA {
			t.Errorf("there is a %T %s", object, servingCA)
		}
	}
	args := containerOf(t, complete, intake).Args
	for flag, want := range map[string]bool{"--serving-ca": false, "--tls-cert-file": true, "--tls-private-key-file": true} {
		if has := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag+"=") }); has != want {
			t.Errorf("%s: %t, want %t", flag, has, want)
		}
	}
}

// Not in parallel: other tests delete theirs.
func TestUninstallRemovesTheServingCA(t *testing.T) {
	out, err := cluster.Kubectl(t.Context(), "delete", "-k", manifests, "--dry-run=server", "--ignore-not-found", "-o=name")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"secret/", "configmap/", "role.rbac.authorization.k8s.io/", "rolebinding.rbac.authorization.k8s.io/"} {
		if !strings.Contains("\n"+string(out), "\n"+want+servingCA+"\n") {
			t.Errorf("%s%s stays:\n%s", want, servingCA, out)
		}
	}
}
