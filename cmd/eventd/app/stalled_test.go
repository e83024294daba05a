package app

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

// dial opens a connection for a client that misbehaves.
func dial(t *testing.T, config *rest.Config, protocol string) net.Conn {
	t.Helper()
	where, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", where.Host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Clients that do not read answers, or do not send the rest of a request, or send
// nothing, do not delay a stop.
func TestStopDoesNotWaitForClientsThatStall(t *testing.T) {
	for name, stall := range map[string]func(t *testing.T, config *rest.Config){
		"HTTP/2 with a window of 0": func(t *testing.T, config *rest.Config) {
			conn := dial(t, config, "h2")
			if _, err := io.WriteString(conn, xhttp2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			framer := xhttp2.NewFramer(conn, conn)
			if err := framer.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0}); err != nil {
				t.Fatal(err)
			}
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			for id := uint32(1); id < 40; id += 2 {
				block.Reset()
				for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "eventd"}, {":path", "/version"},
					{"authorization", "Bearer " + config.BearerToken}} {
					_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
				}
				if err := framer.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
					t.Fatal(err)
				}
			}
			for answered := false; !answered; { // the header goes out, and the body does not
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				_, answered = frame.(*xhttp2.HeadersFrame)
			}
		},
		"HTTP/1.1, half of a body": func(t *testing.T, config *rest.Config) {
			conn := dial(t, config, "http/1.1")
			_, err := io.WriteString(conn, "POST /api/v1/namespaces/shop/events HTTP/1.1\r\nHost: eventd\r\nContent-Type: application/json\r\n"+
				"Authorization: Bearer "+config.BearerToken+"\r\nContent-Length: 1000\r\n\r\n{")
			if err != nil {
				t.Fatal(err)
			}
		},
		"HTTP/1.1, nothing": func(t *testing.T, config *rest.Config) { dial(t, config, "http/1.1") },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRunning(t, startAPIServer(t))
			stall(t, r.config)
			begun := time.Now()
			r.terminate(t)
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("the stop took %s", took)
			}
		})
	}
}
