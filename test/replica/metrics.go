package replica

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Metrics are the counters and gauges of a process, by name and labels, such as
// eventd_occurrences_settled_total{outcome=created,reason=}.
type Metrics map[string]float64

// Metrics asks the process, with credentials that may read them.
func (r *Replica) Metrics(ctx context.Context, credentials *rest.Config) (Metrics, error) {
	client, err := kubernetes.NewForConfig(r.Config(credentials))
	if err != nil {
		return nil, err
	}
	body, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

func parseMetrics(body []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out := Metrics{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[name+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out, nil
}

// Sum adds up all series of a metric whose labels include all the given ones.
func (m Metrics) Sum(name string, labels ...string) (sum float64) {
	for series, value := range m {
		base, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if base == name && includesAll(","+rest+",", labels) {
			sum += value
		}
	}
	return sum
}

func includesAll(has string, labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(has, ","+label+",") {
			return false
		}
	}
	return true
}

// Accounts are the occurrences of a process by what became of them, and as
// "recorded" and "pending".
type Accounts map[string]int64

// Written is how many of them are in the apiserver by this process.
func (a Accounts) Written() int64 { return a["created"] + a["merged"] + a["aggregated"] }

// FinalAccounts is what a process that has ended in order logged of its ledger.
func (r *Replica) FinalAccounts() (Accounts, error) {
	content, err := os.ReadFile(r.log)
	if err != nil {
		return nil, err
	}
	return finalAccounts(content)
}

func finalAccounts(log []byte) (Accounts, error) {
	for line := range bytes.Lines(log) {
		var entry map[string]any
		if json.Unmarshal(line, &entry) != nil || entry["msg"] != "Final accounts" {
			continue
		}
		out := Accounts{}
		for name, value := range entry {
			if n, ok := value.(float64); ok {
				out[name] = int64(n)
			}
		}
		return out, nil
	}
	return nil, errors.New("eventd logged no final accounts")
}
