package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// bareServerEnv makes the process a bare server.
const bareServerEnv = "EVENTD_BENCH_BARE_SERVER"

// bareServer is a process with the HTTP/2 and TLS of Go, which reads a report and answers: the least that any server
// in Go takes for one.
type bareServer struct {
	process *exec.Cmd
	input   io.Closer // the process ends with it
	config  *rest.Config
}

// endpoint is what the process prints when it serves.
type endpoint struct {
	Host string
	CA   []byte
}

func startBareServer(ctx context.Context) (*bareServer, error) {
	process := exec.CommandContext(ctx, os.Args[0])
	process.Env = append(os.Environ(), bareServerEnv+"=1")
	process.Stderr = os.Stderr
	input, inputErr := process.StdinPipe()
	output, outputErr := process.StdoutPipe()
	if err := errors.Join(inputErr, outputErr); err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	s := &bareServer{process: process, input: input}
	var at endpoint
	if err := json.NewDecoder(output).Decode(&at); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.config = &rest.Config{Host: at.Host, TLSClientConfig: rest.TLSClientConfig{CAData: at.CA}}
	return s, nil
}

func (s *bareServer) stop() error {
	_ = s.input.Close()
	return s.process.Wait()
}

// cpu is what the process has taken.
func (s *bareServer) cpu(ctx context.Context, c *connection) (time.Duration, error) {
	body, err := c.RESTClient().Get().AbsPath("/cpu").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(body), 10, 64)
	return time.Duration(n), err
}

// serveBare serves until nothing more can be read.
func serveBare(until io.Reader, ready io.Writer) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: bareHandler(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(listener, "", "") }()
	if err := json.NewEncoder(ready).Encode(endpoint{"https://" + listener.Addr().String(), certificate}); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, until)
	err = server.Close()
	<-served
	return err
}

func bareHandler() http.Handler {
	// As long as the answer to a report.
	answer := fmt.Appendf(nil, `{"kind":"Event","apiVersion":"v1","metadata":{"name":"a","namespace":"a"},"message":%q}`, strings.Repeat("a", 1000))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
	mux.HandleFunc("/cpu", func(w http.ResponseWriter, _ *http.Request) {
		var used syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // never fails
		_, _ = fmt.Fprint(w, used.Utime.Nano()+used.Stime.Nano())
	})
	return mux
}
