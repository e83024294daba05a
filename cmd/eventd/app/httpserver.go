package app

//lint:file-ignore SA1019 net/http has the settings of x/net/http2 (http.HTTP2Config), but
// only one limit of headers for both protocols.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/intake"
)

// The server is that of k8s.io/apiserver (SecureServingInfo.Serve) with lower limits.
// That one allows each connection 1 MiB of headers, frames of 256 KiB, and 25 MiB of
// unread bodies. Bodies with Events are small.
const (
	// handshakeTimeout limits the TLS handshake and, with HTTP/1.1, the headers of a
	// request.
	handshakeTimeout = 10 * time.Second
	// idleTimeout is that of kube components and of client-go.
	idleTimeout = 90 * time.Second
	// maxStreams is the default of --http2-max-streams-per-connection. Clients assume
	// this number.
	maxStreams = 100
	// frameBytes is the minimum of the protocol. Each connection has a buffer for the
	// largest frame that it allows.
	frameBytes = 16 << 10
	// A client presents its own certificate and the intermediate ones.
	maxClientCerts, maxClientCertBytes = 10, 8 << 10
)

func newHTTPServer(info *server.SecureServingInfo, ca *servingCA, handler http.Handler, stopping <-chan struct{}) (*http.Server, error) {
	config, err := serverTLS(info, ca, stopping)
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler:           countBodies(handler),
		TLSConfig:         config,
		MaxHeaderBytes:    intake.MaxHeaderBytes,
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          newLibraryLog(klog.Background(), "HTTP server error"),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateActive {
				boundedOf(c).consumed()
			}
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, http1Key{}, boundedOf(c))
		},
	}
	if info.DisableHTTP2 {
		return s, nil
	}
	streams := uint32(maxStreams)
	if n := info.HTTP2MaxStreamsPerConnection; n > 0 {
		streams = uint32(n)
	}
	ofHTTP2 := &xhttp2.Server{
		IdleTimeout:              idleTimeout,
		MaxConcurrentStreams:     streams,
		MaxReadFrameSize:         frameBytes,
		MaxUploadBufferPerStream: intake.UploadBufferBytes,
		// Enough for all streams, so that no stream on another replica's connection
		// delays the others. The requests in flight limit the unread bytes.
		MaxUploadBufferPerConnection: int32(min(int64(streams)*intake.UploadBufferBytes, 1<<30)),
	}
	if err := xhttp2.ConfigureServer(s, ofHTTP2); err != nil {
		return nil, err
	}
	// Each protocol has its own minimal limit for headers.
	limits := &http.Server{MaxHeaderBytes: intake.MaxHeaderBytesHTTP2, IdleTimeout: s.IdleTimeout, ErrorLog: s.ErrorLog}
	s.TLSNextProto[xhttp2.NextProtoTLS] = func(_ *http.Server, c *tls.Conn, handler http.Handler) {
		conn, server := newHTTP2Conn(c), *ofHTTP2
		server.NewWriteScheduler = func() xhttp2.WriteScheduler { return conn }
		server.ServeConn(conn, &xhttp2.ServeConnOpts{BaseConfig: limits, Handler: handler})
	}
	return s, nil
}

// http1Key is the key of the boundedConn in the context of a connection of HTTP/1.1.
type http1Key struct{}

// countBodies has bodies of HTTP/1.1 say when they are read.
func countBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if bounded, ok := req.Context().Value(http1Key{}).(*boundedConn); ok && req.Body != http.NoBody {
			req = req.WithContext(req.Context()) // net/http looks at the body of its own
			req.Body = http1Body{req.Body, bounded}
		}
		next.ServeHTTP(w, req)
	})
}

// serverTLS returns a configuration that reloads the certificates and the client CA
// when they change, until stopping is closed.
//
// The certificate of a managed CA is only for clients that name the server. Other replicas and kubectl
// eventd do not: they expect the certificate whose fingerprint is in the Lease, which stays the same.
func serverTLS(info *server.SecureServingInfo, ca *servingCA, stopping <-chan struct{}) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:            max(tls.VersionTLS12, info.MinTLSVersion),
		CipherSuites:          info.CipherSuites,
		CurvePreferences:      info.CurvePreferences,
		NextProtos:            []string{"h2", "http/1.1"},
		VerifyPeerCertificate: checkClientCertSize,
	}
	if info.DisableHTTP2 {
		config.NextProtos = config.NextProtos[1:]
	}
	if ca != nil {
		config.GetCertificate = ca.GetCertificate
	}
	if info.ClientCA != nil {
		config.ClientAuth = tls.RequestClientCert // the intake verifies it
	}
	certs := dynamiccertificates.NewDynamicServingCertificateController(config, info.ClientCA, info.Cert, info.SNICerts, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		<-stopping
	}()
	if info.ClientCA != nil {
		follow(ctx, info.ClientCA, certs)
	}
	follow(ctx, info.Cert, certs)
	for _, cert := range info.SNICerts {
		follow(ctx, cert, certs)
	}
	if err := certs.RunOnce(); err != nil {
		return nil, fmt.Errorf("loading the certificates: %w", err)
	}
	go certs.Run(1, stopping)
	config.GetConfigForClient = certs.GetConfigForClient
	return config, nil
}

// follow notifies user of changes of a certificate or CA, until ctx ends.
func follow(ctx context.Context, content dynamiccertificates.Notifier, user dynamiccertificates.Listener) {
	content.AddListener(user)
	if runner, ok := content.(dynamiccertificates.ControllerRunner); ok {
		// The content that was read at the start stays in use.
		if err := runner.RunOnce(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Could not reload a certificate or CA")
		}
		go runner.Run(ctx, 1)
	}
}

// checkClientCertSize limits the memory of client certificates, which a connection
// keeps until it closes.
func checkClientCertSize(certs [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, cert := range certs {
		size += len(cert)
	}
	if len(certs) > maxClientCerts || size > maxClientCertBytes {
		return errors.New("the client presents too many or too large certificates")
	}
	return nil
}
