package destinations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
)

// binary is that of the collector.
var binary = os.Getenv("EVENTD_COLLECTOR")

func TestMain(m *testing.M) {
	if binary == "" {
		built, err := build()
		if err != nil {
			fmt.Fprintln(os.Stderr, "building the collector:", err)
			os.Exit(1)
		}
		binary = built
	}
	goleak.VerifyTestMain(m)
}

func build() (string, error) {
	command := exec.Command("../collector/build.sh")
	command.Stderr = os.Stderr
	stdout, err := command.Output()
	lines := strings.Split(strings.TrimSpace(string(stdout)), "\n")
	return lines[len(lines)-1], err
}

// collector is a collector with the same addresses and the same file from start to start.
type collector struct {
	dir        string
	grpc, http string // addresses
	running    *process.Process
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{dir: t.TempDir(), grpc: freeAddress(t), http: freeAddress(t)}
	c.configure(t, "")
	t.Cleanup(func() {
		if c.running != nil {
			c.running.Kill()
		}
	})
	return c
}

// configure writes the configuration of the next start. security is what both protocols have
// beside their endpoints: a line of YAML with an indent of 8.
func (c *collector) configure(t *testing.T, security string) {
	t.Helper()
	c.write(t, "config.yaml", fmt.Appendf(nil, `
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %s
%s
      http:
        endpoint: %s
%s
exporters:
  file:
    path: %s
    append: true
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    logs:
      receivers: [otlp]
      exporters: [file]
`, c.grpc, security, c.http, security, c.file()))
}

// write writes a file of the collector, and returns its path.
func (c *collector) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *collector) file() string { return filepath.Join(c.dir, "logs.json") }

func (c *collector) start(t *testing.T) {
	t.Helper()
	command := exec.Command(binary, "--config=file:"+filepath.Join(c.dir, "config.yaml"))
	running, err := process.Start("the collector", "", command)
	if err != nil {
		t.Fatal(err)
	}
	c.running = running
	ctx, cancel := await.Context(t)
	defer cancel()
	for _, address := range []string{c.grpc, c.http} {
		err := await.Success(ctx, await.Timeout, func() error {
			if running.Ended() {
				return await.Permanent(running.Failure("ended by itself"))
			}
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stop ends the collector, which then has written all that it has accepted.
func (c *collector) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := await.Context(t)
	defer cancel()
	if err := c.running.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

// records returns what the collector has written, in order.
func (c *collector) records(t *testing.T) []*logspb.ResourceLogs {
	t.Helper()
	content, err := os.ReadFile(c.file())
	if err != nil {
		t.Fatal(err)
	}
	var records []*logspb.ResourceLogs
	for decoder := json.NewDecoder(bytes.NewReader(content)); decoder.More(); {
		var line json.RawMessage
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		data := &logspb.LogsData{}
		if err := protojson.Unmarshal(line, data); err != nil {
			t.Fatal(err)
		}
		records = append(records, data.ResourceLogs...)
	}
	return records
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(t.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// send sends until it succeeds, as the caller of a receiver does.
func send(t *testing.T, r receiver.Receiver, batch []receiver.Record) {
	t.Helper()
	err := await.Success(t.Context(), await.Timeout, func() error {
		rejected, err := r.Send(t.Context(), batch)
		if rejected != 0 {
			return await.Permanent(fmt.Errorf("%d records are rejected", rejected))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
