package faultproxy

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
)

// front is the side of the clients: a constant address and certificate, and a server
// that is stopped and started.
type front struct {
	certificate tls.Certificate
	ca          []byte
	handle      func(*period, http.ResponseWriter, *http.Request)
	gate        gate
	address     *net.TCPAddr
	anchor      []net.Conn

	mu      sync.Mutex
	current *period // nil while paused
	closed  bool
}

func newFront(handle func(*period, http.ResponseWriter, *http.Request)) (*front, error) {
	f := &front{handle: handle}
	var err error
	if f.certificate, f.ca, err = newCertificate(); err != nil {
		return nil, err
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	f.address = listener.Addr().(*net.TCPAddr)
	if err := f.dropAnchor(listener); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	f.current = newPeriod(listener, f.certificate, &f.gate, f.handle)
	return f, nil
}

// dropAnchor reserves the port while the proxy does not listen: as long as there is a
// connection at it, no other process can get it, and the proxy may listen on it again.
func (f *front) dropAnchor(l *net.TCPListener) error {
	near, err := net.DialTCP("tcp", nil, f.address)
	if err != nil {
		return err
	}
	far, err := l.Accept()
	if err != nil {
		return errors.Join(err, near.Close())
	}
	f.anchor = []net.Conn{near, far}
	return nil
}

// Pause makes the proxy behave as a stopped apiserver: connections are reset, new ones
// are refused, and late writes that still wait are lost. When it returns, each request
// to the backend has been answered or, if no fault had struck, cancelled; a cancelled
// write may still take effect in the backend. A second Pause does nothing.
func (p *Proxy) Pause() { p.front.pause() }

// Freeze makes the proxy behave as a host behind a network that drops everything: its
// connections stay, and new ones can be made, but no byte passes in either direction.
// The proxy still forwards what it has received.
func (p *Proxy) Freeze() { p.front.gate.shut() }

// Resume ends Pause and Freeze, under the same address. What was held by Freeze
// passes now. It fails only if the address cannot be listened on, or after Close.
func (p *Proxy) Resume() error { return p.front.resume() }

func (f *front) pause() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.end()
		f.current = nil
	}
}

func (f *front) resume() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate.open()
	if f.closed {
		return errors.New("faultproxy: closed")
	}
	if f.current != nil {
		return nil
	}
	listener, err := net.ListenTCP("tcp", f.address)
	if err != nil {
		return err
	}
	f.current = newPeriod(listener, f.certificate, &f.gate, f.handle)
	return nil
}

// close is pause for good.
func (f *front) close() {
	f.pause()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.anchor {
		c.Close()
	}
	f.anchor = nil
}
