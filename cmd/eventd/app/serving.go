package app

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// serving is the HTTPS server of the process: listener, certificate, authentication
// and authorization.
type serving struct {
	info          *server.SecureServingInfo
	authenticator authenticator.Request
	authorizer    authorizer.Authorizer
	// queryAuthorizer has a client of its own, and so a rate limit of its own.
	queryAuthorizer authorizer.Authorizer
	clientCA        *publishedCA // nil if the cluster's CA is not used
	// verifyOptions returns the CAs of client certificates, wherever they are from; nil without any.
	verifyOptions func() (x509.VerifyOptions, bool)
	frontProxyCA  *publishedCA // nil if the cluster's front proxy is not used
	ca            *servingCA   // nil without --serving-ca
	listener      *boundedListener
}

// newServing listens, so that a port in use is an error at the start. It accepts no
// connection yet. The caller calls close or start.
func newServing(o *Options, r prometheus.Registerer) (*serving, error) {
	secure := *o.SecureServing
	s := &serving{}
	if err := s.listen(&secure, o.MaxConnections, r); err != nil {
		if secure.Listener != nil {
			_ = secure.Listener.Close()
		}
		return nil, err
	}
	return s, nil
}

// listen opens the port first: if it is in use, no other error matters.
func (s *serving) listen(secure *options.SecureServingOptions, maxConnections int, r prometheus.Registerer) error {
	if err := openPort(secure); err != nil {
		return err
	}
	var names []string
	if hostname, err := os.Hostname(); err == nil {
		names = append(names, hostname)
	}
	if err := secure.MaybeDefaultWithSelfSignedCerts("localhost", names, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return fmt.Errorf("creating a serving certificate: %w", err)
	}
	if err := secure.ApplyTo(&s.info); err != nil {
		return fmt.Errorf("reading the serving certificate: %w", err)
	}
	s.listener = newBoundedListener(s.info.Listener, maxConnections, r)
	s.info.Listener = s.listener
	return nil
}

func openPort(secure *options.SecureServingOptions) (err error) {
	if secure.BindPort == 0 {
		address := net.JoinHostPort(secure.BindAddress.String(), strconv.Itoa(secure.BindPort))
		secure.Listener, secure.BindPort, err = options.CreateListener(secure.BindNetwork, address, net.ListenConfig{})
		return err
	}
	// Options without a certificate: ApplyTo opens the port with the sharing options.
	port := options.SecureServingOptions{
		BindAddress: secure.BindAddress, BindPort: secure.BindPort, BindNetwork: secure.BindNetwork,
		PermitPortSharing: secure.PermitPortSharing, PermitAddressSharing: secure.PermitAddressSharing,
	}
	var info *server.SecureServingInfo
	err = port.ApplyTo(&info)
	secure.Listener = port.Listener
	return err
}

// delegate sets up authentication by TokenReview and authorization by
// SubjectAccessReview. It reads the CAs of client certificates and of the front proxy from
// the apiserver, and fails without an answer.
func (s *serving) delegate(ctx context.Context, o *Options) error {
	authentication, authorization := *o.Authentication, *o.Authorization
	authentication.RemoteKubeConfigFile = cmp.Or(authentication.RemoteKubeConfigFile, o.Kubeconfig)
	authorization.RemoteKubeConfigFile = cmp.Or(authorization.RemoteKubeConfigFile, o.Kubeconfig)
	if err := s.lookUpClientCA(ctx, &authentication); err != nil {
		return fmt.Errorf("looking up the CA of client certificates: %w", err)
	}
	provider, err := authentication.ClientCert.GetClientCAContentProvider()
	if err != nil {
		return fmt.Errorf("reading the CA of client certificates: %w", err)
	}
	if provider != nil {
		authentication.ClientCert.CAContentProvider, s.verifyOptions = provider, provider.VerifyOptions
	}
	var authn server.AuthenticationInfo
	if err := authentication.ApplyTo(&authn, s.info, nil); err != nil {
		return fmt.Errorf("setting up delegated authentication: %w", err)
	}
	if err := s.lookUpFrontProxyCA(ctx, &authentication, &authn); err != nil {
		return fmt.Errorf("looking up the CA of the front proxy: %w", err)
	}
	authz, err := newAuthorizer(&authorization)
	queryAuthz, queryErr := newAuthorizer(&authorization)
	if err := errors.Join(err, queryErr); err != nil {
		return fmt.Errorf("setting up delegated authorization: %w", err)
	}
	s.authenticator, s.authorizer, s.queryAuthorizer = authn.Authenticator, authz, queryAuthz
	return nil
}

// lookUpClientCA sets the cluster's CA of client certificates, unless flags set another
// CA or disable the lookup.
func (s *serving) lookUpClientCA(ctx context.Context, authentication *options.DelegatingAuthenticationOptions) error {
	if authentication.SkipInClusterLookup || authentication.ClientCert.ClientCA != "" {
		return nil
	}
	config, err := loadConfig(authentication.RemoteKubeConfigFile)
	if err != nil {
		return err
	}
	config.UserAgent = userAgent()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	switch s.clientCA, err = followClientCA(ctx, client); {
	case err != nil && authentication.TolerateInClusterLookupFailure:
		klog.FromContext(ctx).Error(err, "Starting without the CA of client certificates")
		return nil
	case err != nil:
		return err
	}
	if s.clientCA != nil {
		authentication.ClientCert.CAContentProvider = s.clientCA
	}
	return nil
}

// lookUpFrontProxyCA waits for the CA of the cluster's front proxy.
func (s *serving) lookUpFrontProxyCA(ctx context.Context, authentication *options.DelegatingAuthenticationOptions, authn *server.AuthenticationInfo) (err error) {
	s.frontProxyCA, err = followFrontProxyCA(ctx, s.info.ClientCA, authn.RequestHeaderConfig)
	if err != nil && authentication.TolerateInClusterLookupFailure {
		klog.FromContext(ctx).Error(err, "Starting without the CA of the front proxy")
		return nil
	}
	if s.frontProxyCA != nil {
		s.info.ClientCA = s.frontProxyCA
	}
	return err
}

// close closes a listener that was not started.
func (s *serving) close() {
	_ = s.info.Listener.Close()
	s.stopFollowing()
}

func (s *serving) stopFollowing() {
	s.clientCA.stop()
	s.frontProxyCA.stop()
	s.ca.stop()
}

// start serves until stop is called. stop closes the listener and all idle connections,
// and returns at once. Its channel is closed when all connections are closed: when no
// request is in flight, when the process has worked on none for lingerTime, or after
// timeout.
func (s *serving) start(handler http.Handler, timeout time.Duration, working func() int) (stop func() <-chan struct{}, err error) {
	stopping := make(chan struct{})
	httpServer, err := newHTTPServer(s.info, s.ca, handler, stopping)
	var idle <-chan struct{}
	if err == nil {
		klog.Infof("Serving securely on %s", s.info.Listener.Addr())
		idle, _, err = server.RunServer(httpServer, s.info.Listener, timeout, stopping)
	}
	if err != nil {
		close(stopping)
		s.close()
		return nil, err
	}
	return func() <-chan struct{} {
		close(stopping)
		s.stopFollowing()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			waitIdle(idle, timeout, working)
			s.listener.closeConns()
		}()
		return closed
	}, nil
}

// lingerTime is how long a stop waits for clients that read the last answer or send
// the rest of a request, when nothing else is in flight.
const lingerTime = 500 * time.Millisecond

// waitIdle returns when the server is idle, has worked on no request for lingerTime, or after timeout.
func waitIdle(idle <-chan struct{}, timeout time.Duration, working func() int) {
	ticker := time.NewTicker(lingerTime / 20)
	defer ticker.Stop()
	end := time.NewTimer(timeout)
	defer end.Stop()
	worked := time.Now()
	for {
		select {
		case <-idle:
			return
		case <-end.C:
			return
		case <-ticker.C:
		}
		if working() > 0 {
			worked = time.Now()
		}
		if time.Since(worked) > lingerTime {
			return
		}
	}
}
