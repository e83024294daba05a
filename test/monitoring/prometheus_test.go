package monitoring

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// prometheus is a running Prometheus.
type prometheus struct {
	t       *testing.T
	command *exec.Cmd
	exited  chan struct{}
	url     string
	client  *http.Client

	mu  sync.Mutex
	log strings.Builder
}

// listening is what Prometheus says when it has a port.
var listening = regexp.MustCompile(`Listening on.*address=(\S+)`)

// startPrometheus starts a Prometheus on a free port, with a data directory of its
// own, and waits until it is ready.
func startPrometheus(t *testing.T, program, configFile string) *prometheus {
	t.Helper()
	p := &prometheus{t: t, exited: make(chan struct{}), client: &http.Client{Timeout: deadline, Transport: &http.Transport{}}}
	p.command = exec.Command(program, "--config.file="+configFile,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"), "--web.listen-address=127.0.0.1:0")
	stderr, err := p.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() {
		defer close(p.exited)
		p.read(stderr, address)
		_ = p.command.Wait()
	}()
	t.Cleanup(p.stop)
	select {
	case at := <-address:
		p.url = "http://" + at
	case <-p.exited:
		t.Fatal("prometheus has ended")
	case <-time.After(deadline):
		t.Fatal("prometheus does not listen")
	}
	waitFor(t, "prometheus to be ready", func() (string, error) {
		response, err := p.client.Get(p.url + "/-/ready")
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status, nil
		}
		return "", nil
	})
	return p
}

// read keeps the log until its end, and sends the address in it.
func (p *prometheus) read(log io.Reader, address chan<- string) {
	told := false
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		if found := listening.FindStringSubmatch(lines.Text()); found != nil && !told {
			told = true
			address <- strings.Trim(found[1], `"`)
		}
	}
}

func (p *prometheus) stop() {
	p.client.CloseIdleConnections()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(deadline):
		p.t.Error("prometheus did not end")
		_ = p.command.Process.Kill()
		<-p.exited
	}
	if p.t.Failed() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Logf("prometheus's log:\n%s", p.log.String())
	}
}

// get asks the HTTP API, and decodes the data that it answers with. What Prometheus
// itself has to say against a request is an error.
func (p *prometheus) get(path string, parameters url.Values, data any) error {
	response, err := p.client.Get(p.url + "/api/v1/" + path + "?" + parameters.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return nil
}

// sample is one series of the result of a query, with its value now.
type sample struct {
	Metric map[string]string
	Value  [2]any // time and value
}

func (s *sample) value() (float64, error) {
	text, _ := s.Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) ([]sample, error) {
	var data struct{ Result []sample }
	if err := p.get("query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	return data.Result, nil
}

// writeConfig writes a configuration that scrapes targets as deploy/monitoring
// says, but every second, with a token, and with its alerts.
func writeConfig(t *testing.T, token string, targets ...string) (configFile string) {
	t.Helper()
	dir := t.TempDir()
	how := scrapeConfig(t)
	write := func(name string, content []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	rules, _ := ruleFile(t)
	config, err := json.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{write("rules.yaml", rules)},
		"scrape_configs": []any{map[string]any{
			"job_name":       "eventd",
			"scheme":         how.Scheme,
			"metrics_path":   how.Path,
			"authorization":  map[string]any{"credentials_file": write("token", []byte(token))},
			"tls_config":     map[string]any{"insecure_skip_verify": how.TLSConfig.InsecureSkipVerify},
			"static_configs": []any{map[string]any{"targets": targets}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return write("prometheus.yaml", config)
}
