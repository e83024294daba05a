package app

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// endpointOf serves on an address, and returns the configuration of a client that has only
// the endpoint kubeconfig.
func endpointOf(t *testing.T, address string, o *Options) *rest.Config {
	t.Helper()
	s := serve(t, address, o)
	file := filepath.Join(t.TempDir(), "endpoint")
	if err := writeEndpoint(file, s.info); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, config, "/", http.StatusNotFound, "")
	if config.BearerToken != "" || config.CertData != nil || config.KeyData != nil {
		t.Errorf("the endpoint has credentials: %+v", config)
	}
	return config
}

func TestEndpointOfASelfMadeCertificateIsVerifiable(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "0.0.0.0"} {
		config := endpointOf(t, address, NewOptions())
		if !strings.HasPrefix(config.Host, "https://127.0.0.1:") || strings.HasSuffix(config.Host, ":0") {
			t.Errorf("listening on %s, the endpoint is %s", address, config.Host)
		}
	}
}

func TestEndpointOfACertificateForAnotherNameIsVerifiable(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("eventd.kube-system.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	pair := &o.SecureServing.ServerCert.CertKey
	pair.CertFile, pair.KeyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	if err := errors.Join(cert.WriteCert(pair.CertFile, certificate), keyutil.WriteKey(pair.KeyFile, key)); err != nil {
		t.Fatal(err)
	}
	config := endpointOf(t, "127.0.0.1", o)
	if config.ServerName != "eventd.kube-system.svc" {
		t.Errorf("the name to verify is %q", config.ServerName)
	}
}

func TestUnwritableEndpointIsAnError(t *testing.T) {
	if err := writeFile(filepath.Join(t.TempDir(), "missing", "endpoint"), nil); err == nil {
		t.Error("written into a folder that does not exist")
	}
}
