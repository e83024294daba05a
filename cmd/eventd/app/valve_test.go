package app

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// valve is a way to a server that can be closed: what is sent then stays
// where it is, on old connections and new ones, and nobody is told.
type valve struct {
	listener net.Listener
	work     sync.WaitGroup

	mu          sync.Mutex
	to          string
	open        chan struct{} // closed while it is open
	connections []net.Conn
	over        bool
}

func newValve(t *testing.T, host string) *valve {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{listener: listener, open: make(chan struct{})}
	v.lead(t, host)
	close(v.open)
	v.work.Go(v.accept)
	t.Cleanup(v.end)
	return v
}

// lead sets where new connections lead to.
func (v *valve) lead(t *testing.T, host string) {
	t.Helper()
	to, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.to = to.Host
}

// host is what leads through it.
func (v *valve) host() string { return "https://" + v.listener.Addr().String() }

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = make(chan struct{})
}

func (v *valve) reopen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.open:
	default:
		close(v.open)
	}
}

// end ends all connections.
func (v *valve) end() {
	_ = v.listener.Close()
	v.reopen()
	v.mu.Lock()
	v.over = true
	for _, c := range v.connections {
		_ = c.Close()
	}
	v.mu.Unlock()
	v.work.Wait()
}

func (v *valve) accept() {
	for {
		in, err := v.listener.Accept()
		if err != nil {
			return
		}
		v.work.Go(func() {
			v.mu.Lock()
			to := v.to
			v.mu.Unlock()
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				return
			}
			v.keep(in, out)
			v.work.Go(func() { v.pour(in, out) })
			v.pour(out, in)
		})
	}
}

func (v *valve) keep(connections ...net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connections = append(v.connections, connections...)
	if v.over {
		for _, c := range connections {
			_ = c.Close()
		}
	}
}

func (v *valve) pour(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		v.mu.Lock()
		open := v.open
		v.mu.Unlock()
		<-open
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}
