package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/intake"
)

// The server is that of k8s.io/apiserver (SecureServingInfo.Serve) with other limits:
// that one lets each connection of anybody have 1 MiB of headers, a frame of 256 KiB,
// and 25 MiB of bodies that nobody has read yet. Bodies with Events are small.
const (
	// handshakeTimeout is for the TLS handshake, and with HTTP/1.1 for the headers of
	// a request.
	handshakeTimeout = 10 * time.Second
	// idleTimeout is as in kube components, and as long as client-go keeps its side.
	idleTimeout = 90 * time.Second
	// maxStreams are the requests that a connection may have under way, unless
	// --http2-max-streams-per-connection says otherwise. Clients assume as many.
	maxStreams = 100
	// frameBytes is the least that the protocol allows. A connection keeps a buffer for
	// the largest frame that it has been announced.
	frameBytes = 16 << 10
	// A client presents its own certificate and those between it and its CA.
	maxClientCerts, maxClientCertBytes = 10, 16 << 10
)

func newHTTPServer(info *server.SecureServingInfo, handler http.Handler, stopping <-chan struct{}) (*http.Server, error) {
	config, err := serverTLS(info, stopping)
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		MaxHeaderBytes:    intake.MaxHeaderBytes,
		ReadHeaderTimeout: handshakeTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          newServerLog(),
	}
	if info.DisableHTTP2 {
		return s, nil
	}
	streams := uint32(maxStreams)
	if n := info.HTTP2MaxStreamsPerConnection; n > 0 {
		streams = uint32(n)
	}
	if err := xhttp2.ConfigureServer(s, &xhttp2.Server{
		IdleTimeout:              idleTimeout,
		MaxConcurrentStreams:     streams,
		MaxReadFrameSize:         frameBytes,
		MaxUploadBufferPerStream: intake.UploadBufferBytes,
		// As much as all streams, so that none of them keeps the others of another
		// replica's connection waiting. What is not read is bounded by the requests
		// in flight, and the answers being written.
		MaxUploadBufferPerConnection: int32(min(int64(streams)*intake.UploadBufferBytes, 1<<30)),
	}); err != nil {
		return nil, err
	}
	// For each protocol as few bytes of headers as it can do with.
	serveHTTP2 := s.TLSNextProto[xhttp2.NextProtoTLS]
	ofHTTP2 := &http.Server{MaxHeaderBytes: intake.MaxHeaderBytesHTTP2, IdleTimeout: s.IdleTimeout, ErrorLog: s.ErrorLog}
	s.TLSNextProto[xhttp2.NextProtoTLS] = func(_ *http.Server, c *tls.Conn, handler http.Handler) {
		serveHTTP2(ofHTTP2, c, handler)
	}
	return s, nil
}

// serverTLS follows the certificates and the CA of clients as they change, until
// stopping is closed.
func serverTLS(info *server.SecureServingInfo, stopping <-chan struct{}) (*tls.Config, error) {
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

// follow has changes of a certificate or CA reach those who use it.
func follow(ctx context.Context, content dynamiccertificates.Notifier, user dynamiccertificates.Listener) {
	content.AddListener(user)
	if runner, ok := content.(dynamiccertificates.ControllerRunner); ok {
		// What was read at the start is good until another one is.
		if err := runner.RunOnce(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Could not read a certificate or CA again")
		}
		go runner.Run(ctx, 1)
	}
}

// checkClientCertSize keeps what a connection holds for as long as it lasts small.
func checkClientCertSize(certs [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, cert := range certs {
		size += len(cert)
	}
	if len(certs) > maxClientCerts || size > maxClientCertBytes {
		return errors.New("the client's certificates are too many or too large")
	}
	return nil
}

// serverLog writes what the server has to say of its clients: now and then, since
// anybody can cause any number of lines, and all of it at a high level.
type serverLog struct{ sometimes *rate.Sometimes }

func newServerLog() *log.Logger {
	return log.New(serverLog{&rate.Sometimes{First: 1, Interval: time.Minute}}, "", 0)
}

// Write implements io.Writer.
func (l serverLog) Write(line []byte) (int, error) {
	message := strings.TrimSpace(string(line))
	klog.V(5).Info(message)
	if !strings.Contains(message, "TLS handshake error") {
		l.sometimes.Do(func() { klog.InfoS("The server says of a client", "message", message) })
	}
	return len(line), nil
}
