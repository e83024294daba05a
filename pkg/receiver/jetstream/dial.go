package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// connectTimeout is for one server: for the dial to the end of the TLS handshake, and for what the
// client does after it.
const connectTimeout = 3 * time.Second

// dialer implements nats.CustomDialer. It bounds what a server can send: the client allocates what
// the first line has until its newline comes, and as much as the head of a message announces, and it
// panics if that overflows. Within TLS only whoever makes the handshake can see what it sends, so the
// dialer makes the handshake.
type dialer struct {
	connection *connection
	ctx        context.Context // of the call that connects
	secure     *tls.Config     // nil if TLS is not configured
}

// SkipTLSHandshake tells the client that the dialer has made the handshake.
func (dialer) SkipTLSHandshake() bool { return true }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	began := time.Now()
	socket, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.connection.use(socket)
	var conn net.Conn
	if err = socket.SetDeadline(began.Add(connectTimeout)); err == nil { // the end of ctx closes the socket
		conn, err = d.begin(socket, address)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return conn, nil
}

// begin reads the first line, in which the server says whether it has TLS, and makes the handshake.
func (d dialer) begin(socket net.Conn, address string) (net.Conn, error) {
	r := bufio.NewReaderSize(socket, maxLine)
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = errOversized
	}
	if err != nil {
		return nil, err
	}
	line = bytes.Clone(line)
	config, err := d.tlsConfig(line, address)
	if err != nil || config == nil {
		return &framed{Conn: socket, from: io.MultiReader(bytes.NewReader(line), r)}, err
	}
	if r.Buffered() > 0 {
		return nil, fmt.Errorf("%w: the server has sent something before the handshake", nats.ErrTLS)
	}
	secured := tls.Client(socket, config)
	if err := secured.HandshakeContext(d.ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", nats.ErrTLS, err)
	}
	d.connection.setSecured()
	return &framed{Conn: secured, from: io.MultiReader(bytes.NewReader(line), secured)}, nil
}

// tlsConfig returns that of the handshake, or nil without TLS: if it is not configured, and the
// server does not require it.
func (d dialer) tlsConfig(line []byte, address string) (*tls.Config, error) {
	var info struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	if text, ok := bytes.CutPrefix(line, []byte("INFO ")); !ok || json.Unmarshal(text, &info) != nil {
		return nil, nats.ErrNoInfoReceived
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case d.secure != nil && !info.Required && !info.Available:
		return nil, nats.ErrSecureConnWanted
	case d.secure != nil:
		config = d.secure.Clone()
	case !info.Required:
		return nil, nil
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
	}
	return config, nil
}
