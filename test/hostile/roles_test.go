package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// observer is a replica of observe, which has a history and two receivers: a file, and a NATS server.
type observer struct {
	*replica.Replica
	t             *testing.T
	cluster       *testenv.ControlPlane
	configuration string
	apiserver     *link.Link
}

// startObserver starts one that is well, and waits until it delivers.
func startObserver(t *testing.T, c *testenv.ControlPlane, credentials *rest.Config, l *load, nats string) *observer {
	t.Helper()
	dir := t.TempDir()
	o := &observer{t: t, cluster: c, configuration: filepath.Join(dir, "configuration.yaml")}
	file := filepath.Join(dir, "events.jsonl")
	o.configure(fmt.Sprintf(`
receivers:
- {name: file, from: Oldest, jsonLines: {path: %q}}
- {name: nats, from: Oldest, jetStream: {url: %q, subject: events}}
routes: [{name: all, receivers: [file, nats]}]
`, file, nats))
	apiserver, err := url.Parse(c.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	o.apiserver = link.New(t, apiserver.Host)
	credentials = rest.CopyConfig(credentials)
	credentials.Host = "https://" + o.apiserver.Address()
	o.Replica = start(t, c, replica.Options{Credentials: credentials, Flags: append([]string{"--config=" + o.configuration}, observing...)})
	await.Until(t, "it delivers", func() bool {
		l.report(t.Context(), loadPeriod)
		_, err := os.Stat(file)
		return err == nil
	})
	return o
}

// configure writes its configuration.
func (o *observer) configure(text string) {
	o.t.Helper()
	text = "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n" + text
	if err := os.WriteFile(o.configuration, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// limit sets what the process may have of a resource.
func (o *observer) limit(resource int, most uint64) {
	o.t.Helper()
	if err := unix.Prlimit(o.PID(), resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		o.t.Fatal(err)
	}
}

// send sends it a signal.
func (o *observer) send(signal os.Signal) {
	o.t.Helper()
	if err := o.Send(signal); err != nil {
		o.t.Fatal(err)
	}
}

// ask reads its metrics many times at once.
func (o *observer) ask() {
	var asking sync.WaitGroup
	for range 50 {
		asking.Go(func() {
			ctx, cancel := await.Context(o.t)
			defer cancel()
			_, _ = o.Metrics(ctx, o.cluster.Config())
		})
	}
	asking.Wait()
}

// awaitEnd waits until the process has ended.
func (o *observer) awaitEnd() { await.Until(o.t, "observe ends", o.Ended) }

// awaitMetric waits until a metric has a value.
func (o *observer) awaitMetric(value float64, name string, labels ...string) {
	o.t.Helper()
	await.Until(o.t, fmt.Sprintf("%s%v is %v", name, labels, value), func() bool {
		is, ok := o.WantMetrics(o.t, o.cluster).Lookup(name, labels...)
		return ok && is == value
	})
}

// fatalNATS is a NATS server that ends its clients, once it is told to: the head of a message says that it has
// more bytes than a slice can have.
func fatalNATS(t *testing.T, told <-chan struct{}) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, `INFO {"server_id":"A","version":"2.10.0","headers":true,"max_payload":1048576}`+"\r\n")
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if !strings.HasPrefix(line, "PING") {
						continue
					}
					answer := "PONG\r\n"
					select {
					case <-told:
						answer += "MSG a 1 9223372036854775807\r\nx"
					default:
					}
					_, _ = io.WriteString(conn, answer)
				}
			})
		}
	})
	return "nats://" + listener.Addr().String()
}

// TestClientsOfTheIntakeNoticeNothingOfObserve: whatever happens to those that observe, reports are answered as they
// are without them: none fails, and the p99 increases by at most 10 % or 5 ms. Other load on the machine can spoil a
// round, so one of a few has to succeed.
func TestClientsOfTheIntakeNoticeNothingOfObserve(t *testing.T) {
	c := testenv.Shared(t)
	credentials := replica.Deploy(t, c)
	replica.DeployObserve(t, c)
	g := startEventd(t, c, credentials, "--role="+app.RoleIntake)
	l := &load{account: g.account(t, "load", "create", "patch")}
	l.report(t.Context(), 2*time.Second)
	for _, harm := range []struct {
		name string
		does func(o *observer, tellNATS func())
	}{
		{"filled", func(o *observer, _ func()) {
			o.limit(unix.RLIMIT_FSIZE, 1)
			o.awaitMetric(1, "eventd_receiver_state", "receiver=file", "state=backing_off")
		}},
		{"stopped", func(o *observer, _ func()) { o.send(syscall.SIGSTOP) }},
		{"killed", func(o *observer, _ func()) { o.send(syscall.SIGKILL); o.awaitEnd() }},
		{"terminated", func(o *observer, _ func()) { o.send(syscall.SIGTERM); o.awaitEnd() }},
		{"cut off from the apiserver", func(o *observer, _ func()) { o.apiserver.Cut() }},
		{"out of memory", func(o *observer, _ func()) {
			o.limit(unix.RLIMIT_DATA, 1<<20)
			await.Until(o.t, "observe ends", func() bool { o.ask(); return o.Ended() })
		}},
		{"ended by a receiver's server", func(o *observer, tellNATS func()) { tellNATS(); o.awaitEnd() }},
		{"wrongly configured", func(o *observer, _ func()) {
			o.configure("receivers: [{name: file, jsonLines: {paht: none}}]\n")
			o.awaitMetric(0, "eventd_configuration_last_reload_successful")
		}},
	} {
		t.Run(harm.name, func(t *testing.T) {
			during, rounds := longrun.Either(20*time.Second, 2*time.Second), 6
			for range rounds {
				told := make(chan struct{})
				o := startObserver(t, c, credentials, l, fatalNATS(t, told))
				before := g.measure(t, l, during)
				harm.does(o, func() { close(told) })
				after := g.measure(t, l, during)
				wantWithinLimit(t, o.Replica)
				o.Kill()
				longrun.Report(t, "p50, p99 in ms: before %s, after %s", before, after)
				was, is := before.percentile(99), after.percentile(99)
				if is <= was+max(was/10, 5*time.Millisecond) {
					return
				}
			}
			t.Errorf("the p99 of reports increased in each of %d rounds", rounds)
		})
	}
}
