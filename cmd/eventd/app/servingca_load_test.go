package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/servingca"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
)

// quickServingCA makes an eventd of these tests replace its CA about twice a minute.
const quickServingCA = "EVENTD_TEST_QUICK_SERVING_CA"

func quickServingCATimes() servingca.Times {
	return servingca.Times{
		Backdate: time.Hour, CALife: time.Hour, CARenewBefore: time.Hour - 25*time.Second,
		LeafLife: 20 * time.Second, LeafRenewAfter: 2500 * time.Millisecond,
		PublishFor: 4 * time.Second, RetireAfter: 21 * time.Second,
		Resync: 10 * time.Second, RetryAfter: 500 * time.Millisecond, CallTimeout: 5 * time.Second,
	}
}

// Clients that verify eventd as usual programs do, with a bundle that they see late, notice nothing of
// new certificates and CAs, at the leader and through a standby.
func TestRotationsFailNoRequest(t *testing.T) {
	t.Setenv(quickServingCA, "1")
	r := newReplicas(t)
	r.copyServingCA()
	leader := r.start("--serving-ca=managed")
	leader.awaitLeader()
	standby := r.start("--serving-ca=managed")
	standby.awaitStandby(r.holder())
	leader.awaitCertificate()
	standby.awaitCertificate()
	v := newVerifying(r)
	offered := longrun.Either(1.4, 0.2) // times 500 per second: who waits for an answer, or connects, comes late
	for _, to := range []*child{leader, standby} {
		v.startClientGo(to, 175*offered)
		v.startCurl(to, 25*offered)
		v.startPython(to, 50*offered)
	}
	begun := time.Now()
	leaves, authorities := longrun.Either(20.0, 4), longrun.Either(3.0, 1)
	await.Within(t, longrun.Either(10*time.Minute, await.Timeout), "enough has been replaced", func() bool {
		return min(leader.metric("eventd_serving_ca_certificates_issued_total"), standby.metric("eventd_serving_ca_certificates_issued_total")) > leaves &&
			leader.metric("eventd_serving_ca_rotations_total") >= authorities
	})
	took := time.Since(begun)
	v.stop()
	answered, failed := v.answered.Load(), v.failed.Load()
	rate := float64(answered) / took.Seconds()
	longrun.Report(t, "%v certificates of the leader, %v of the standby, %v CAs replaced, %d requests answered (%.0f/s), %d failed, in %s",
		leader.metric("eventd_serving_ca_certificates_issued_total"), standby.metric("eventd_serving_ca_certificates_issued_total"),
		leader.metric("eventd_serving_ca_rotations_total"), answered, rate, failed, took.Round(time.Second))
	if failed > 0 {
		t.Errorf("%d requests failed, of %d, the first one with: %s", failed, answered, *v.first.Load())
	}
	if *longrun.Full && rate < 500 {
		t.Errorf("%.0f requests per second, and not 500: the machine is too busy", rate)
	}
	for _, to := range []*child{leader, standby} {
		if n := to.metric("eventd_serving_ca_errors_total"); n > 0 {
			t.Errorf("%v errors about the CA", n)
		}
	}
	standby.terminate(0)
	leader.terminate(0)
}

// copyServingCA creates both objects for the test, with the rights that deploy/ grants on those in
// kube-system.
func (r *replicas) copyServingCA() {
	r.t.Helper()
	deployed, err := r.client.RbacV1().Roles(metav1.NamespaceSystem).Get(r.t.Context(), "eventd-serving-ca", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.bindServingCA(deployed.Rules)
}

// verifying are clients that verify the Service eventd of a namespace.
type verifying struct {
	r                *replicas
	name, path, file string // of the server, of a POST, and of the mounted CAs
	reporter         *rest.Config
	event            []byte
	ctx              context.Context
	end              []func()

	answered, failed atomic.Int64
	first            atomic.Pointer[string] // failure
}

// mountDelay is how late clients see the ConfigMap.
const mountDelay = 1500 * time.Millisecond

func newVerifying(r *replicas) *verifying {
	r.t.Helper()
	v := &verifying{
		r: r, name: "eventd." + r.namespace + ".svc", path: "/api/v1/namespaces/" + r.namespace + "/events",
		file: filepath.Join(r.t.TempDir(), "ca.crt"), reporter: replica.Reporter(r.t, r.cluster, r.namespace),
	}
	event := replica.Event(r.namespace, "", "web")
	event.GenerateName = "web."
	v.event, _ = json.Marshal(event)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	v.ctx = ctx
	v.end = append(v.end, cancel)
	r.t.Cleanup(cancel)
	v.mount()
	return v
}

// mount writes the ConfigMap to the file, late, as a kubelet does, and returns when it is there.
func (v *verifying) mount() {
	type seen struct {
		at   time.Time
		data string
	}
	var queue []seen
	stop := await.Every(50*time.Millisecond, func(ctx context.Context) {
		m, err := v.r.client.CoreV1().ConfigMaps(v.r.namespace).Get(ctx, "eventd-serving-ca", metav1.GetOptions{})
		if err == nil && m.Data[servingca.BundleKey] != "" {
			queue = append(queue, seen{time.Now(), m.Data[servingca.BundleKey]})
		}
		for len(queue) > 0 && time.Since(queue[0].at) > mountDelay {
			if err := writeFile(v.file, []byte(queue[0].data)); err != nil {
				v.failure(err)
			}
			queue = queue[1:]
		}
	})
	v.r.t.Cleanup(stop)
	await.Until(v.r.t, "the CAs are mounted", func() bool {
		_, err := os.Stat(v.file)
		return err == nil
	})
}

func (v *verifying) failure(err error) {
	v.failed.Add(1)
	text := err.Error()
	v.first.CompareAndSwap(nil, &text)
}

// stop ends all clients, and counts what they have not counted yet.
func (v *verifying) stop() {
	for _, end := range v.end {
		end()
	}
}

func portOf(t *testing.T, to *child) string {
	t.Helper()
	address, err := url.Parse(to.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	return address.Port()
}

// perConnection is how many requests use a connection. Each reads the file of the CAs again.
const perConnection = 20

// startClientGo posts with the client of client-go.
func (v *verifying) startClientGo(to *child, rate float64) {
	const workers = 12
	port := portOf(v.r.t, to)
	config := rest.CopyConfig(v.reporter)
	config.Host = "https://" + v.name + ":" + port
	config.CAData, config.CAFile = nil, v.file
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			ticker := time.NewTicker(time.Duration(workers / rate * float64(time.Second)))
			defer ticker.Stop()
			for v.ctx.Err() == nil {
				v.connectClientGo(config, port, ticker.C)
			}
		})
	}
	v.end = append(v.end, running.Wait)
}

func (v *verifying) connectClientGo(config *rest.Config, port string, tick <-chan time.Time) {
	own := rest.CopyConfig(config)
	own.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}
	connection, err := rest.HTTPClientFor(own)
	if err != nil {
		v.failure(err)
		return
	}
	defer utilnet.CloseIdleConnectionsFor(connection.Transport) // http.Client does not find it behind those of client-go
	client, err := kubernetes.NewForConfigAndClient(own, connection)
	if err != nil {
		v.failure(err)
		return
	}
	for range perConnection {
		select {
		case <-tick:
		case <-v.ctx.Done():
			return
		}
		event := replica.Event(v.r.namespace, "", "web")
		event.GenerateName = "web."
		// The last request is answered, too.
		if _, err := client.CoreV1().Events(v.r.namespace).Create(context.WithoutCancel(v.ctx), event, metav1.CreateOptions{}); err != nil {
			v.failure(err)
			continue
		}
		v.answered.Add(1)
	}
}

// startCurl runs curl again and again, for a few requests each.
func (v *verifying) startCurl(to *child, rate float64) {
	port := portOf(v.r.t, to)
	const each = 5
	stop := await.Every(time.Duration(each/rate*float64(time.Second)), func(context.Context) {
		cmd := exec.Command("curl", "--silent", "--show-error", "--cacert", v.file, "--resolve", v.name+":"+port+":127.0.0.1",
			"--max-time", "60", "--header", "Authorization: Bearer "+v.reporter.BearerToken, "--header", "Content-Type: application/json",
			"--data-binary", string(v.event), "--output", os.DevNull, "--write-out", "%{http_code}\n",
			"https://"+v.name+":"+port+v.path+fmt.Sprintf("?n=[1-%d]", each))
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			v.failure(fmt.Errorf("curl: %w: %s", err, stderr.String()))
			return
		}
		for code := range strings.FieldsSeq(string(out)) {
			if !strings.HasPrefix(code, "20") {
				v.failure(errors.New("curl: " + code))
				continue
			}
			v.answered.Add(1)
		}
	})
	v.end = append(v.end, stop)
}

// startPython runs a client with the TLS of Python.
func (v *verifying) startPython(to *child, rate float64) {
	v.r.t.Helper()
	script, err := filepath.Abs("app/testdata/verifying_client.py") // newReplicas has changed the directory
	if err != nil {
		v.r.t.Fatal(err)
	}
	cmd := exec.Command("python3", script, "127.0.0.1", portOf(v.r.t, to), v.name, v.file, v.reporter.BearerToken, v.path, fmt.Sprint(rate))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		v.r.t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		v.r.t.Fatal(err)
	}
	if _, err := io.WriteString(stdin, string(v.event)+"\n"); err != nil {
		v.r.t.Error(err)
	}
	end := sync.OnceFunc(func() {
		_ = stdin.Close()
		timer := time.AfterFunc(await.Timeout, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		var answered, failed int64
		err := cmd.Wait()
		if _, scanned := fmt.Sscan(stdout.String(), &answered, &failed); scanned != nil || err != nil {
			v.failure(fmt.Errorf("python3: %w: %s", errors.Join(err, scanned), stderr.String()))
			return
		}
		v.answered.Add(answered)
		for range failed {
			v.failure(fmt.Errorf("python3: %s", stderr.String()))
		}
	})
	v.r.t.Cleanup(end)
	v.end = append(v.end, end)
}
