package jetstream

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
)

// serverConfig is the variable that makes this binary a NATS server.
const serverConfig = "EVENTD_TEST_NATS_CONFIG"

func TestMain(m *testing.M) {
	if path := os.Getenv(serverConfig); path != "" {
		if err := serve(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func serve(path string) error {
	options, err := server.ProcessConfigFile(path)
	if err != nil {
		return err
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	go s.Start()
	if !s.ReadyForConnections(await.Timeout) {
		return fmt.Errorf("not ready")
	}
	fmt.Println("ready")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	s.Shutdown()
	return nil
}

// natsServer is a NATS server in a process of its own, at an address that stays over restarts.
type natsServer struct {
	address string
	config  string // without the address and the directory
	dir     string
	process *process.Process
}

const withJetStream = "jetstream: enabled\n"

// newServer returns a server that is not started.
func newServer(t testing.TB, config string) *natsServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return &natsServer{address: l.Addr().String(), config: config, dir: t.TempDir()}
}

func startServer(t testing.TB, config string) *natsServer {
	t.Helper()
	s := newServer(t, config)
	s.start(t)
	return s
}

func (s *natsServer) start(t testing.TB) {
	t.Helper()
	path := filepath.Join(s.dir, "nats.conf")
	config := fmt.Sprintf("listen: %q\nstore_dir: %q\n%s", s.address, s.dir, s.config)
	must(t, os.WriteFile(path, []byte(config), 0o600))
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), serverConfig+"="+path)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	s.process, err = process.Start("nats-server", "", cmd)
	must(t, err)
	t.Cleanup(s.process.Kill)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(s.process.Failure(fmt.Sprintf("printed %q, %v", line, err)))
	}
}

func (s *natsServer) restart(t testing.TB) {
	t.Helper()
	s.process.Kill()
	s.start(t)
}

func (s *natsServer) url() string { return "nats://" + s.address }

// connect returns a connection of the test.
func (s *natsServer) connect(t testing.TB, options ...nats.Option) natsjs.JetStream {
	t.Helper()
	nc, err := nats.Connect(s.url(), append(options, nats.Timeout(await.Timeout))...)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := natsjs.New(nc, natsjs.WithDefaultTimeout(await.Timeout))
	must(t, err)
	return js
}

// stream creates or changes the stream of the tests.
func (s *natsServer) stream(t testing.TB, change func(*natsjs.StreamConfig), options ...nats.Option) natsjs.Stream {
	t.Helper()
	config := natsjs.StreamConfig{Name: "events", Subjects: []string{subject}, Storage: natsjs.FileStorage}
	if change != nil {
		change(&config)
	}
	stream, err := s.connect(t, options...).CreateOrUpdateStream(t.Context(), config)
	must(t, err)
	return stream
}

// stored checks that a stream has records, each once, and versions of an Event in order.
func stored(t testing.TB, stream natsjs.Stream, want []receiver.Record) {
	t.Helper()
	info, err := stream.Info(t.Context())
	must(t, err)
	if int(info.State.Msgs) != len(want) {
		t.Fatalf("the stream has %d messages, want %d", info.State.Msgs, len(want))
	}
	byID := make(map[string]*receiver.Record, len(want))
	for i := range want {
		byID[want[i].ID] = &want[i]
	}
	last := make(map[string]string)
	for n := info.State.FirstSeq; n <= info.State.LastSeq; n++ {
		m, err := stream.GetMsg(t.Context(), n)
		must(t, err)
		r := byID[m.Header.Get("Nats-Msg-Id")]
		if r == nil {
			t.Fatalf("unknown or repeated message %v", m.Header)
		}
		delete(byID, r.ID)
		var event corev1.Event
		must(t, json.Unmarshal(m.Data, &event))
		if event.Message != r.Event.Message || event.UID != r.Event.UID || event.Kind != "Event" {
			t.Fatalf("%s was stored as %.200s", r.ID, m.Data)
		}
		uid, version, _ := strings.Cut(r.ID, "/")
		if version <= last[uid] { // all have as many digits
			t.Fatalf("version %s of an Event after %s", version, last[uid])
		}
		last[uid] = version
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
