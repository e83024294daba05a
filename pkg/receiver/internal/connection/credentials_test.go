package connection_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver/internal/connection"
	"github.com/eventd/eventd/test/receivertest"
)

func TestHeadersAreReadAgainWhenTheirFilesChange(t *testing.T) {
	dir := t.TempDir()
	token := receivertest.WriteFile(t, dir, "token", []byte("first\n"))
	tenant := receivertest.WriteFile(t, dir, "tenant", []byte("a"))
	credentials, err := connection.NewCredentials(&configv1alpha1.Connection{
		Headers:         []configv1alpha1.Header{{Name: "x-constant", Value: "c"}, {Name: "X-Tenant", File: tenant}},
		BearerTokenFile: token,
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what, tenant, token string) {
		t.Helper()
		want := []connection.Header{{Name: "X-Constant", Value: "c"}, {Name: "X-Tenant", Value: tenant}, {Name: "Authorization", Value: "Bearer " + token}}
		if diff := cmp.Diff(want, credentials.Headers(t.Context())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("at first", "a", "first")
	receivertest.WriteFile(t, dir, "token", []byte("other"))
	check("after a rotation to the same length", "a", "other")
	if err := errors.Join(os.WriteFile(token, []byte("third"), 0o600), os.Chtimes(token, time.Time{}, time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	check("after a change of the same file", "a", "third")
	receivertest.WriteFile(t, dir, "token", []byte("bad\r\nX-Injected: 1"))
	receivertest.WriteFile(t, dir, "tenant", nil)
	check("after one to what is no header", "a", "third")
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	receivertest.WriteFile(t, dir, "tenant", []byte("b"))
	check("while a file is away", "b", "third")
	receivertest.WriteFile(t, dir, "token", []byte("fourth"))
	check("when it is back", "b", "fourth")
	info, err := os.Stat(token)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what, token string
		write       func()
	}{
		{"after a rotation to a file of the same size and time", "number", func() { receivertest.WriteFile(t, dir, "token", []byte("number")) }},
		{"after another size at the same time", "fifth", func() { err = os.WriteFile(token, []byte("fifth"), 0o600) }},
	} {
		step.write()
		if err := errors.Join(err, os.Chtimes(token, time.Time{}, info.ModTime())); err != nil {
			t.Fatal(err)
		}
		check(step.what, "b", step.token)
	}
}

func TestConfigurationThatCannotWorkIsRefused(t *testing.T) {
	dir := t.TempDir()
	token := receivertest.WriteFile(t, dir, "token", []byte("t"))
	empty := receivertest.WriteFile(t, dir, "empty", nil)
	cert, key := receivertest.NewCA(t, "ca").Issue(t, "client")
	certFile := receivertest.WriteFile(t, dir, "tls.crt", cert)
	keyFile := receivertest.WriteFile(t, dir, "tls.key", key)
	huge := receivertest.WriteFile(t, dir, "huge", make([]byte, 1<<20+1))
	pipe := dir + "/pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	headers := func(h ...configv1alpha1.Header) configv1alpha1.Connection {
		return configv1alpha1.Connection{Headers: h}
	}
	withTLS := func(c configv1alpha1.TLS) configv1alpha1.Connection { return configv1alpha1.Connection{TLS: &c} }
	for name, test := range map[string]struct {
		config configv1alpha1.Connection
		want   string
	}{
		"header without a value":      {headers(configv1alpha1.Header{Name: "X"}), "headers[0]"},
		"header with two values":      {headers(configv1alpha1.Header{Name: "X", Value: "v", File: token}), "headers[0]"},
		"header with a line break":    {headers(configv1alpha1.Header{Name: "X", Value: "a\nb"}), "headers[0]"},
		"name with a space":           {headers(configv1alpha1.Header{Name: "a b", Value: "v"}), "headers[0]"},
		"header of the protocol":      {headers(configv1alpha1.Header{Name: "content-type", Value: "v"}), "headers[0]"},
		"header of the connection":    {headers(configv1alpha1.Header{Name: "Host", Value: "v"}), "headers[0]"},
		"header of gRPC":              {headers(configv1alpha1.Header{Name: "grpc-timeout", Value: "v"}), "headers[0]"},
		"header twice":                {headers(configv1alpha1.Header{Name: "X", Value: "v"}, configv1alpha1.Header{Name: "x", Value: "v"}), "twice"},
		"missing file of a header":    {headers(configv1alpha1.Header{Name: "X", File: dir + "/none"}), "headers[0]"},
		"missing token":               {configv1alpha1.Connection{BearerTokenFile: dir + "/none"}, "bearerTokenFile"},
		"empty token":                 {configv1alpha1.Connection{BearerTokenFile: empty}, "bearerTokenFile"},
		"token that is a pipe":        {configv1alpha1.Connection{BearerTokenFile: pipe}, "regular"},
		"token that is a device":      {configv1alpha1.Connection{BearerTokenFile: "/dev/zero"}, "regular"},
		"huge token":                  {configv1alpha1.Connection{BearerTokenFile: huge}, "bytes"},
		"TLS with insecure":           {configv1alpha1.Connection{Insecure: true, TLS: &configv1alpha1.TLS{}}, "tls"},
		"certificate without a key":   {withTLS(configv1alpha1.TLS{CertFile: certFile}), "tls"},
		"key of something else":       {withTLS(configv1alpha1.TLS{CertFile: certFile, KeyFile: token}), "tls"},
		"CA that is no certificate":   {withTLS(configv1alpha1.TLS{CAFile: token}), "tls"},
		"CA that is not there":        {withTLS(configv1alpha1.TLS{CAFile: dir + "/none"}), "tls"},
		"certificate used as its key": {withTLS(configv1alpha1.TLS{CertFile: keyFile, KeyFile: keyFile}), "tls"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connection.NewCredentials(&test.config)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestTLSConfigurationChangesOnlyToOneThatWorks(t *testing.T) {
	dir := t.TempDir()
	ca := receivertest.NewCA(t, "ca")
	write := func(cert, key []byte) {
		receivertest.WriteFile(t, dir, "tls.crt", cert)
		if key != nil {
			receivertest.WriteFile(t, dir, "tls.key", key)
		}
	}
	write(ca.Issue(t, "client"))
	credentials, err := connection.NewCredentials(&configv1alpha1.Connection{TLS: &configv1alpha1.TLS{
		CAFile: receivertest.WriteFile(t, dir, "ca.crt", ca.PEM), CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key",
	}})
	if err != nil {
		t.Fatal(err)
	}
	first := credentials.TLS(t.Context())
	if credentials.TLS(t.Context()) != first {
		t.Error("another configuration without a change")
	}
	cert, key := ca.Issue(t, "next")
	write(cert, nil)
	if credentials.TLS(t.Context()) != first {
		t.Error("another configuration while the key is that of the previous certificate")
	}
	write(cert, key)
	second := credentials.TLS(t.Context())
	if second == first || cmp.Equal(first.Certificates[0].Certificate, second.Certificates[0].Certificate) {
		t.Error("the next certificate is not used")
	}
	receivertest.WriteFile(t, dir, "ca.crt", []byte("half a cert"))
	if credentials.TLS(t.Context()) != second {
		t.Error("another configuration without a CA")
	}
	receivertest.WriteFile(t, dir, "ca.crt", receivertest.NewCA(t, "other").PEM)
	if third := credentials.TLS(t.Context()); third == second || third.RootCAs.Equal(second.RootCAs) {
		t.Error("the next CA is not used")
	}
}
