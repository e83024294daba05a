package monitoring

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
)

// prometheus is a client of a running Prometheus.
type prometheus struct {
	prometheusv1.API
	t *testing.T
}

// listening is in the log of Prometheus when it has a port.
var listening = regexp.MustCompile(`Listening on.*address="?([^"\s]+)`)

// startPrometheus starts a Prometheus on a free port, with a data directory of its
// own, and waits until it listens.
func startPrometheus(t *testing.T, program, configFile string) *prometheus {
	t.Helper()
	child, err := process.Start("prometheus", "", exec.Command(program, "--config.file="+configFile,
		"--storage.tsdb.path="+filepath.Join(t.TempDir(), "data"), "--web.listen-address=127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := await.Context(t)
		defer cancel()
		if err := child.Stop(ctx); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("prometheus's log:\n%s", child.Stderr())
		}
	})
	var address []string
	await.Until(t, "prometheus to listen", func() bool {
		address = listening.FindStringSubmatch(child.Stderr())
		return address != nil || child.Ended()
	})
	if address == nil {
		t.Fatal("prometheus has ended")
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address[1], RoundTripper: transport})
	if err != nil {
		t.Fatal(err)
	}
	return &prometheus{prometheusv1.NewAPI(client), t}
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) (model.Vector, error) {
	ctx, cancel := await.Context(p.t)
	defer cancel()
	result, _, _, err := p.Query(ctx, expr, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, ok := result.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s is a %s", expr, result.Type())
	}
	return vector, nil
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
