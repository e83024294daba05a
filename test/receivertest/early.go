package receivertest

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// TestBodiesOfEarlyAnswers sends one record after another to a server that answers each request before it
// reads the body, and checks that no body has anything of a later one. The race detector notices if the
// memory of a body is used again while the transport may read it.
func TestBodiesOfEarlyAnswers(t *testing.T, send func(url string, message byte)) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const requests = 4
	var serving sync.WaitGroup
	read, bodies := make(chan struct{}), make([][]byte, requests)
	serve := func(i int, conn net.Conn) {
		defer conn.Close()
		request, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		<-read
		bodies[i], _ = io.ReadAll(request.Body) // the client may close the connection before its end
	}
	serving.Go(func() {
		for i := range requests {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			serving.Go(func() { serve(i, conn) })
		}
	})
	for i := range requests {
		send("http://"+listener.Addr().String()+"/v1/logs", byte('A'+i))
	}
	close(read)
	listener.Close()
	serving.Wait()
	for i, body := range bodies {
		for later := i + 1; later < requests; later++ {
			if bytes.Contains(body, bytes.Repeat([]byte{byte('A' + later)}, 100)) {
				t.Errorf("body %d has the message of request %d", i, later)
			}
		}
	}
}
