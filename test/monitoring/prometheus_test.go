package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
)

// prometheus is a running Prometheus.
type prometheus struct {
	url    string
	client *http.Client
}

// listening is in the log of Prometheus when it has a port.
var listening = regexp.MustCompile(`Listening on.*address=(\S+)`)

// startPrometheus starts a Prometheus on a free port, with a data directory of its
// own, and waits until it is ready.
func startPrometheus(t *testing.T, program, configFile string) *prometheus {
	t.Helper()
	child, err := process.Start("prometheus", "", exec.Command(program, "--config.file="+configFile,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"), "--web.listen-address=127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{client: &http.Client{Timeout: await.Timeout, Transport: &http.Transport{}}}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		ctx, cancel := await.Context(t)
		defer cancel()
		if err := child.Stop(ctx); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("prometheus's log:\n%s", child.Stderr())
		}
	})
	waitFor(t, "prometheus to be ready", func() error {
		found := listening.FindStringSubmatch(child.Stderr())
		switch {
		case child.Ended():
			return await.Permanent(errors.New("prometheus has ended"))
		case found == nil:
			return errors.New("it does not listen")
		}
		p.url = "http://" + strings.Trim(found[1], `"`)
		response, err := p.client.Get(p.url + "/-/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
	return p
}

// get makes a request to the HTTP API and decodes the data of the answer. An error of
// Prometheus is one here.
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

// writeConfig writes a configuration that scrapes targets as in deploy/monitoring, but
// every second, with a token, and with its alerts.
func writeConfig(t *testing.T, token string, targets ...string) (configFile string) {
	t.Helper()
	dir := t.TempDir()
	how := findServiceMonitor(t).Spec.Endpoints[0]
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
