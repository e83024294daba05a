package link

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

func TestLinkThatIsCutDeliversWhenItIsMended(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	l := New(t, echo.Addr().String())
	send := func(c net.Conn, word string) {
		t.Helper()
		if _, err := c.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	dial := func(word string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		send(c, word)
		return c
	}
	wantRead := func(c net.Conn, word string) {
		t.Helper()
		got := make([]byte, len(word))
		_ = c.SetReadDeadline(time.Now().Add(await.Timeout))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != word {
			t.Fatalf("read %q (%v), want %q", got, err, word)
		}
	}
	before := dial("one")
	wantRead(before, "one")
	l.Cut()
	send(before, "two")
	meanwhile := dial("three")
	for _, c := range []net.Conn{before, meanwhile} {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes (%v) over a link that is cut", n, err)
		}
	}
	l.Mend()
	wantRead(before, "two")
	wantRead(meanwhile, "three")
	if err := before.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, before); err != nil {
		t.Errorf("the end did not arrive: %v", err)
	}
}
