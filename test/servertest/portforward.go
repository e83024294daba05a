package servertest

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// PEM encodes a certificate.
func PEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// ServePortForward is the end of port forwarding in a kubelet whose Pods are on the loopback address. It returns
// when the connection has ended.
func ServePortForward(w http.ResponseWriter, req *http.Request) {
	if _, err := httpstream.Handshake(req, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
		return // answered
	}
	streams, ended := make(chan httpstream.Stream), make(chan struct{})
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, req, func(s httpstream.Stream, _ <-chan struct{}) error {
		select {
		case streams <- s:
		case <-ended:
		}
		return nil
	})
	if conn == nil {
		return // answered
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer conn.Close()
	defer close(ended)
	var failures httpstream.Stream
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-streams:
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				failures = s // comes first
				continue
			}
			working.Go(func() { carry(s, failures, s.Headers().Get(corev1.PortHeader)) })
		}
	}
}

// carry connects a stream to a port.
func carry(data, failures httpstream.Stream, port string) {
	defer failures.Close()
	defer data.Close()
	to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		fmt.Fprintf(failures, "an error occurred forwarding to port %s: %v", port, err)
		return
	}
	defer to.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(to, data)
		_ = to.Close()
	})
	_, _ = io.Copy(data, to)
	_ = data.Reset()
	both.Wait()
}
