package app

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeEndpoint writes a kubeconfig for clients of this eventd, without credentials.
// The file is created complete, so that others can wait for it to exist.
func writeEndpoint(file string, info *server.SecureServingInfo) error {
	cluster, err := endpoint(info)
	if err != nil {
		return fmt.Errorf("describing the endpoint: %w", err)
	}
	const name = "eventd"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name}},
		CurrentContext: name,
	})
	if err != nil {
		return fmt.Errorf("describing the endpoint: %w", err)
	}
	if err := writeFile(file, content); err != nil {
		return fmt.Errorf("writing --endpoint-kubeconfig: %w", err)
	}
	return nil
}

// endpoint returns how a client on this machine connects to info and verifies it. The
// CA is the certificate file itself: a self-signed certificate includes its CA.
func endpoint(info *server.SecureServingInfo) (*clientcmdapi.Cluster, error) {
	address, ok := info.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("not a TCP address: %s", info.Listener.Addr())
	}
	host := address.IP.String()
	if address.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	chain, _ := info.Cert.CurrentCertKeyContent()
	leaf, err := firstCertificate(chain)
	if err != nil {
		return nil, err
	}
	cluster := &clientcmdapi.Cluster{
		Server:                   "https://" + net.JoinHostPort(host, strconv.Itoa(address.Port)),
		CertificateAuthorityData: chain,
	}
	if leaf.VerifyHostname(host) != nil {
		cluster.TLSServerName = verifiableName(leaf)
	}
	return cluster, nil
}

func firstCertificate(chain []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, errors.New("the serving certificate is not PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

// verifiableName returns a DNS name of the certificate, or "".
func verifiableName(leaf *x509.Certificate) string {
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			return name
		}
	}
	return ""
}

func writeFile(file string, content []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // finds nothing after the rename
	_, err = temp.Write(content)
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
