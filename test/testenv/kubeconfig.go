package testenv

import (
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes config as a kubeconfig, with certificates and token
// embedded and readable by the owner only. The file appears whole: a process
// that waits for it never reads a part.
func WriteKubeconfig(path string, config *rest.Config) error {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	const name = "testenv"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:                   config.Host,
			CertificateAuthorityData: config.CAData,
			InsecureSkipTLSVerify:    config.Insecure,
			TLSServerName:            config.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
			TokenFile:             config.BearerTokenFile,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails once it is renamed, as it should
	_, err = temp.Write(content)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
