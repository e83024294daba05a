package main

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes config as a kubeconfig with everything embedded, so
// that it may be copied elsewhere. It holds credentials, so it is the owner's
// alone; and it appears at once and whole, so that its existence may be waited
// for.
func writeKubeconfig(file string, config *rest.Config, namespace string) error {
	const name = "controlplane"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts: map[string]*clientcmdapi.Context{name: {
			Cluster: name, AuthInfo: name, Namespace: namespace,
		}},
		CurrentContext: name,
	})
	if err != nil {
		return err
	}
	// CreateTemp makes files of mode 0600.
	temp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails after the rename, as it should
	_, err = temp.Write(content)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), file)
}
