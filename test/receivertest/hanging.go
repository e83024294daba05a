package receivertest

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
)

// HangLookups makes all lookups of names hang until the test ends, or their context does. It is not for parallel
// tests.
func HangLookups(t testing.TB) {
	former := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = former })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

// Silent returns the address of a port where connections are made, and nothing is read or written.
func Silent(t testing.TB) string { return listen(t).Addr().String() }

// Unanswered returns the address of a port that does not answer who connects: on Linux, its backlog is full.
func Unanswered(t testing.TB) string {
	t.Helper()
	listener := listen(t)
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), 0) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", listener.Addr().String()) // as many as there is a place for
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return listener.Addr().String()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}
