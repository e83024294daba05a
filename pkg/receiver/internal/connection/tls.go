package connection

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
)

// tlsFiles makes the configuration of a TLS client from files that may change. It is for one
// goroutine.
type tlsFiles struct {
	serverName    string
	ca, cert, key *file // nil if not configured

	outdated bool        // a file has changed since config was made
	config   *tls.Config // nobody changes it
}

// TLS returns the configuration of a TLS client as the files are now. The argument may be nil.
func TLS(c *configv1alpha1.TLS) (*tls.Config, error) {
	t, err := newTLSFiles(c)
	if err != nil {
		return nil, err
	}
	return t.config, nil
}

func newTLSFiles(c *configv1alpha1.TLS) (*tlsFiles, error) {
	if c == nil {
		c = &configv1alpha1.TLS{}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, errors.New("tls: certFile and keyFile must be set together")
	}
	t := &tlsFiles{serverName: c.ServerName, outdated: true}
	if c.CAFile != "" {
		t.ca = &file{path: c.CAFile}
	}
	if c.CertFile != "" {
		t.cert, t.key = &file{path: c.CertFile}, &file{path: c.KeyFile}
	}
	return t, t.refresh()
}

// refresh makes another configuration if a file has changed. After an error the last one stays.
func (t *tlsFiles) refresh() error {
	for _, f := range []*file{t.ca, t.cert, t.key} {
		if f == nil {
			continue
		}
		changed, err := f.refresh()
		if err != nil {
			return fmt.Errorf("tls: %w", err)
		}
		t.outdated = t.outdated || changed
	}
	if !t.outdated {
		return nil
	}
	config, err := t.make()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	t.config, t.outdated = config, false
	return nil
}

func (t *tlsFiles) make() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.serverName}
	if t.ca != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.ca.content) {
			return nil, fmt.Errorf("%s has no certificate", t.ca.path)
		}
	}
	if t.cert != nil {
		pair, err := tls.X509KeyPair(t.cert.content, t.key.content)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", t.cert.path, t.key.path, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
