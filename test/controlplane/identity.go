package main

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
)

// identity is the folder of the keys and certificates that make a restarted
// control plane the same one to its clients. File names are kubeadm's where
// kubeadm has the file.
type identity struct {
	dir string
	// names are further subjects of the kube-apiserver's certificate, nodes the names of kubelets.
	names, nodes []string
}

func (id identity) cert(name string) string { return filepath.Join(id.dir, name+".crt") }
func (id identity) key(name string) string  { return filepath.Join(id.dir, name+".key") }

// Each CA is trusted for one thing only. With one CA for all, the certificate
// of a front proxy would be an administrator's and the other way round.
const (
	clusterCA    = "ca"
	frontProxyCA = "front-proxy-ca"
	etcdCA       = "etcd-ca"
)

const (
	apiserverCert        = "apiserver"
	adminCert            = "admin"
	frontProxyClientCert = "front-proxy-client"
	etcdServerCert       = "etcd-server"
	etcdClientCert       = "apiserver-etcd-client"
	serviceAccountKey    = "sa"

	// These are made if there are nodes. A kubelet's has the name of its node.
	kubeletClientCert     = "apiserver-kubelet-client"
	controllerManagerCert = "controller-manager"
	schedulerCert         = "scheduler"
	proxyCert             = "proxy"
)

// ensureIdentity returns the identity in dir, and makes it if it is not there.
// It is made aside and moved into place, so that an interrupted start leaves no
// half of an identity.
func ensureIdentity(dir string, names, nodes []string) (identity, error) {
	id := identity{dir: dir, names: names, nodes: nodes}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	id.dir += ".new"
	if err := os.RemoveAll(id.dir); err != nil {
		return id, err
	}
	if err := os.MkdirAll(id.dir, 0o700); err != nil {
		return id, err
	}
	if err := id.makeAll(); err != nil {
		return id, err
	}
	made := id.dir
	id.dir = dir
	return id, os.Rename(made, dir)
}

func (id identity) makeAll() error {
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	authorities := map[string]map[string]cert.Config{
		clusterCA: {
			apiserverCert: {CommonName: "kube-apiserver", Usages: []x509.ExtKeyUsage{server}},
			adminCert: {
				CommonName: "kubernetes-admin", Organization: []string{"system:masters"}, Usages: []x509.ExtKeyUsage{client},
			},
		},
		frontProxyCA: {
			frontProxyClientCert: {CommonName: "front-proxy-client", Usages: []x509.ExtKeyUsage{client}},
		},
		etcdCA: {
			// etcd is a client of itself: its gateway and its peers.
			etcdServerCert: {CommonName: "etcd", Usages: []x509.ExtKeyUsage{server, client}},
			etcdClientCert: {CommonName: "kube-apiserver", Usages: []x509.ExtKeyUsage{client}},
		},
	}
	maps.Copy(authorities[clusterCA], id.clusterLeaves())
	for ca, leaves := range authorities {
		signer, key, err := pkiutil.NewCertificateAuthority(ecdsaCert(cert.Config{CommonName: "controlplane-" + ca}))
		if err == nil {
			err = pkiutil.WriteCertAndKey(id.dir, ca, signer, key)
		}
		for name, leaf := range leaves {
			if err != nil {
				break
			}
			err = id.makeLeaf(name, leaf, signer, key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ca, err)
		}
	}
	key, err := pkiutil.GeneratePrivateKey(kubeadm.EncryptionAlgorithmECDSAP256)
	if err != nil {
		return err
	}
	return pkiutil.WriteKey(id.dir, serviceAccountKey, key)
}

// clusterLeaves are the certificates of controllers and kubelets, and of the kube-apiserver towards the latter.
func (id identity) clusterLeaves() map[string]cert.Config {
	if len(id.nodes) == 0 {
		return nil
	}
	leaf := func(name string, groups ...string) cert.Config {
		return cert.Config{CommonName: name, Organization: groups, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	leaves := map[string]cert.Config{
		kubeletClientCert:     leaf("kube-apiserver-kubelet-client", "system:masters"),
		controllerManagerCert: leaf("system:kube-controller-manager"),
		schedulerCert:         leaf("system:kube-scheduler"),
		proxyCert:             leaf("system:kube-proxy"),
	}
	for _, node := range id.nodes {
		leaves[node] = leaf("system:node:"+node, "system:nodes")
	}
	return leaves
}

func (id identity) makeLeaf(name string, c cert.Config, ca *x509.Certificate, caKey crypto.Signer) error {
	c.AltNames = cert.AltNames{
		IPs:      []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	for _, name := range id.names {
		if ip := net.ParseIP(name); ip != nil {
			c.AltNames.IPs = append(c.AltNames.IPs, ip)
		} else {
			c.AltNames.DNSNames = append(c.AltNames.DNSNames, name)
		}
	}
	leaf, key, err := pkiutil.NewCertAndKey(ca, caKey, ecdsaCert(c))
	if err != nil {
		return err
	}
	return pkiutil.WriteCertAndKey(id.dir, name, leaf, key)
}

func ecdsaCert(c cert.Config) *pkiutil.CertConfig {
	return &pkiutil.CertConfig{Config: c, EncryptionAlgorithm: kubeadm.EncryptionAlgorithmECDSAP256}
}

// adminConfig is the configuration of a client that may do everything.
func (id identity) adminConfig(server string) (*rest.Config, error) {
	config := &rest.Config{Host: server, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAFile: id.cert(clusterCA), CertFile: id.cert(adminCert), KeyFile: id.key(adminCert),
	}}
	return config, rest.LoadTLSFiles(config)
}
