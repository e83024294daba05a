package app

import (
	"bytes"
	"strings"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestWithoutRoom sends requests with an HTTP/2 window of 0, and returns when the header
// of an answer has arrived. The body of none can be sent.
func requestWithoutRoom(t *testing.T, e *edge) {
	framer := e.openHTTP2(t, xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for id := uint32(1); id < 40; id += 2 {
		block.Reset()
		for _, field := range [][2]string{
			{":method", "GET"}, {":scheme", "https"}, {":authority", "eventd"}, {":path", "/version"},
			{"authorization", "Bearer " + goodToken},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		headers := xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}
		if err := framer.WriteHeaders(headers); err != nil {
			t.Fatal(err)
		}
	}
	for answered := false; !answered; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		_, answered = frame.(*xhttp2.HeadersFrame)
	}
}

// Clients that do not read answers, or do not send the rest of a request, or send
// nothing, do not delay a stop.
func TestStopDoesNotWaitForClientsThatStall(t *testing.T) {
	for name, stall := range map[string]func(t *testing.T, e *edge){
		"HTTP/2 with a window of 0": requestWithoutRoom,
		"HTTP/1.1, half of a body": func(t *testing.T, e *edge) {
			e.open(t, "http/1.1", "POST /api/v1/namespaces/shop/events HTTP/1.1\r\nHost: eventd\r\n"+
				"Content-Type: application/json\r\nAuthorization: Bearer "+goodToken+"\r\nContent-Length: 1000\r\n\r\n{")
		},
		"HTTP/1.1, nothing": func(t *testing.T, e *edge) { e.open(t, "http/1.1", "") },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRunning(t, startAPIServer(t))
			stall(t, &edge{address: strings.TrimPrefix(r.config.Host, "https://")})
			begun := time.Now()
			r.terminate(t)
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("the stop took %s", took)
			}
		})
	}
}
