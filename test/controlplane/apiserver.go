package main

import (
	"context"
	"errors"
	"net"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// errNoReason stands in for the error of a server that ended without one.
var errNoReason = errors.New("without an error")

// apiServer is a running kube-apiserver. done is closed when it has ended; err
// may be read from then on.
type apiServer struct {
	url    string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// startAPIServer starts the kube-apiserver on listener, which it takes over. It
// returns at once; waitReady tells when it serves.
func startAPIServer(ctx context.Context, listener net.Listener, etcdURL string, id identity, further []string) (*apiServer, error) {
	s := apiserver.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(append(apiServerArgs(etcdURL, id), further...)); err != nil {
		return nil, err
	}
	address := listener.Addr().(*net.TCPAddr)
	s.SecureServing.Listener = listener
	s.SecureServing.BindAddress = address.IP
	s.SecureServing.BindPort = address.Port

	completed, err := complete(ctx, s)
	if err != nil {
		return nil, err
	}
	// Not derived from ctx: the server is stopped by stop, in its turn.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	server := &apiServer{url: "https://" + address.String(), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(server.done)
		if server.err = app.Run(ctx, completed); server.err == nil {
			server.err = errNoReason
		}
	}()
	return server, nil
}

// complete does what the command of the kube-apiserver does between parsing and
// running (k8s.io/kubernetes/cmd/kube-apiserver/app, NewAPIServerCommand). The
// command itself cannot be used: it takes over the signals of the process.
func complete(ctx context.Context, s *apiserver.ServerRunOptions) (apiserver.CompletedOptions, error) {
	registry := s.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := registry.Set(); err != nil {
		return apiserver.CompletedOptions{}, err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	gate := registry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := setUpLogging(s.Logs, gate); err != nil {
		return apiserver.CompletedOptions{}, err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return apiserver.CompletedOptions{}, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return apiserver.CompletedOptions{}, utilerrors.NewAggregate(errs)
	}
	utilfeature.DefaultMutableFeatureGate.AddMetrics()
	registry.AddMetrics()
	return completed, nil
}

// clusterArgs are the flags that depend on whether there are controllers and these nodes.
func clusterArgs(id identity, nodes []string) []string {
	if len(nodes) == 0 {
		return []string{
			"--authorization-mode=RBAC",
			// ServiceAccount wants a "default" account in every namespace before it
			// lets a Pod in, and StorageObjectInUseProtection adds a finalizer to
			// claims; the controllers that answer to them are not here.
			"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
			// Without it the address of an interface is looked for, and a machine
			// without a network has none. Endpoints may not hold a loopback address.
			"--advertise-address=127.0.0.1",
			"--endpoint-reconciler-type=none",
		}
	}
	return []string{
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// There is no kube-proxy beside the kube-apiserver.
		"--enable-aggregator-routing=true",
		"--kubelet-client-certificate=" + id.cert(kubeletClientCert),
		"--kubelet-client-key=" + id.key(kubeletClientCert),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

// apiServerArgs are the flags of the kube-apiserver in any case.
func apiServerArgs(etcdURL string, id identity) []string {
	const issuer = "https://kubernetes.default.svc.cluster.local"
	return []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-cafile=" + id.cert(etcdCA),
		"--etcd-certfile=" + id.cert(etcdClientCert),
		"--etcd-keyfile=" + id.key(etcdClientCert),

		"--cert-dir=" + id.dir,
		"--tls-cert-file=" + id.cert(apiserverCert),
		"--tls-private-key-file=" + id.key(apiserverCert),
		"--client-ca-file=" + id.cert(clusterCA),

		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + id.key(serviceAccountKey),
		"--service-account-signing-key-file=" + id.key(serviceAccountKey),

		// Also published for delegated authentication, and used by the
		// aggregation layer towards servers behind an APIService.
		"--requestheader-client-ca-file=" + id.cert(frontProxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + id.cert(frontProxyClientCert),
		"--proxy-client-key-file=" + id.key(frontProxyClientCert),

		"--service-cluster-ip-range=10.0.0.0/24",
	}
}

func (s *apiServer) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *apiServer) stop() {
	s.cancel()
	waitStopped(s.done, "kube-apiserver")
}
