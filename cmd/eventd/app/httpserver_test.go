package app

import (
	"bytes"
	"flag"
	"io"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// A client can cause a message with each frame that it sends.
func TestServerLimitsItsErrorLog(t *testing.T) {
	var written bytes.Buffer
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	state := klog.CaptureState()
	defer state.Restore()
	_ = flags.Set("logtostderr", "false")
	klog.SetOutput(&written)
	server := newServerLog()
	for range 1000 {
		server.Print("http2: received GOAWAY")
		server.Print("http: TLS handshake error from 10.0.0.1:1: EOF")
	}
	klog.Flush()
	klog.SetOutput(io.Discard) // goroutines of tests before may log, too
	if lines := strings.Count(written.String(), "HTTP server error"); lines != 1 || !strings.Contains(written.String(), "GOAWAY") {
		t.Errorf("%d lines: %.300s", lines, written.String())
	}
}
