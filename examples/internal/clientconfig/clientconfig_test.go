package clientconfig

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The server is another one than that of the credentials, as an eventd is.
func TestServerOfTheFlagsGetsTheCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer rotated" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	write := func(name, content string) (file string) {
		file = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	ca := write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	token := write("token", "rotated")
	kubeconfig := func(ca string) string {
		return write("kubeconfig", `
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", tls-server-name: apiserver, `+ca+`}}]
users: [{name: u, user: {tokenFile: `+token+`}}]
`)
	}
	for name, kubeconfig := range map[string]string{
		"of a Pod":                    "",
		"of a kubeconfig":             kubeconfig("certificate-authority-data: bm9uZQ=="),
		"of a kubeconfig that is lax": kubeconfig("insecure-skip-tls-verify: true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
			config, err := Load(kubeconfig, func() (*rest.Config, error) { // as rest.InClusterConfig makes it
				return &rest.Config{
					Host: "https://127.0.0.1:1", BearerToken: "first", BearerTokenFile: token,
					TLSClientConfig: rest.TLSClientConfig{CAFile: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"},
				}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			eventd := ForServer(config, server.URL, ca)
			if config.Host != "https://127.0.0.1:1" {
				t.Errorf("the kube-apiserver is %s", config.Host)
			}
			if eventd.BearerTokenFile != token || eventd.CAFile != ca { // both are read again
				t.Errorf("token %q, CA %q", eventd.BearerTokenFile, eventd.CAFile)
			}
			client, err := kubernetes.NewForConfig(eventd)
			if err != nil {
				t.Fatal(err)
			}
			if err := client.CoreV1().RESTClient().Get().AbsPath("/").Do(t.Context()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
}
