package app

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/test/await"
)

// endpointOf serves with the options and returns the configuration of a client that has
// only the endpoint kubeconfig.
func endpointOf(t *testing.T, o *Options) *rest.Config {
	t.Helper()
	s := &serving{}
	if err := s.listen(o.SecureServing, o.MaxConnections, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	stop, err := s.start(http.NotFoundHandler(), await.Timeout, func() int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { receive(t, "the server ends", stop()) })
	file := filepath.Join(t.TempDir(), "endpoint")
	if err := writeEndpoint(file, s.info); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestEndpointOfASelfMadeCertificateIsVerifiable(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "0.0.0.0"} {
		o := NewOptions()
		o.SecureServing.BindPort = 0
		o.SecureServing.BindAddress = net.ParseIP(address)
		config := endpointOf(t, o)
		if !strings.HasPrefix(config.Host, "https://127.0.0.1:") || strings.HasSuffix(config.Host, ":0") {
			t.Errorf("listening on %s, the endpoint is %s", address, config.Host)
		}
		wantAnswer(t, config, "/", http.StatusNotFound, "")
	}
}

func TestEndpointOfACertificateForAnotherNameIsVerifiable(t *testing.T) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("eventd.kube-system.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	o.SecureServing.BindPort = 0
	o.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	pair := &o.SecureServing.ServerCert.CertKey
	pair.CertFile, pair.KeyFile = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	for file, content := range map[string][]byte{pair.CertFile: certificate, pair.KeyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := endpointOf(t, o)
	if config.ServerName != "eventd.kube-system.svc" {
		t.Errorf("the name to verify is %q", config.ServerName)
	}
	wantAnswer(t, config, "/", http.StatusNotFound, "")
}

func TestEndpointHasNoCredentials(t *testing.T) {
	o := NewOptions()
	o.SecureServing.BindPort = 0
	config := endpointOf(t, o)
	if config.BearerToken != "" || config.CertData != nil || config.KeyData != nil {
		t.Errorf("%+v", config)
	}
}

func TestUnwritableEndpointIsAnError(t *testing.T) {
	if err := writeFile(filepath.Join(t.TempDir(), "missing", "endpoint"), nil); err == nil {
		t.Error("written into a folder that does not exist")
	}
}
