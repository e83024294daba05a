package cluster

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/eventd/eventd/test/await"
)

// startCollector starts that of examples/delivery on a node. Here it writes to a file, which ends with its Pod.
func startCollector(t *testing.T, on string) {
	t.Helper()
	manifest, err := os.ReadFile("../../examples/delivery/collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := string(manifest)
	for from, to := range map[string]string{
		"debug: {verbosity: normal, sampling_initial: 1000}": "file: {path: /data/records.json}",
		"exporters: [debug]":        "exporters: [file]",
		"          volumeMounts:\n": "          volumeMounts:\n            - {name: data, mountPath: /data}\n",
		"      containers:\n":       "      nodeName: " + on + "\n      containers:\n",
		"      volumes:\n":          "      volumes:\n        - {name: data, emptyDir: {}}\n",
	} {
		if strings.Count(changed, from) != 1 {
			t.Fatalf("the example does not have %q once", from)
		}
		changed = strings.Replace(changed, from, to, 1)
	}
	apply(t, changed)
	kubectl(t, "-n", "eventd-collector", "rollout", "status", "--timeout=120s", "deployment/collector")
	await.Within(t, startTimeout, "an earlier collector has ended, to which eventd may still send", func() bool {
		list, err := client.CoreV1().Pods("eventd-collector").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 1
	})
}

// collected are the attributes of all records that the collector has, with their body, severity and time.
func collected(t *testing.T) (records []map[string]string) {
	t.Helper()
	for line := range strings.Lines(kubectl(t, "-n", "eventd-collector", "exec", "deployment/collector", "--", "/busybox", "cat", "/data/records.json")) {
		data := &logspb.LogsData{}
		if err := protojson.Unmarshal([]byte(line), data); err != nil {
			continue // the last line, which is being written
		}
		for _, resource := range data.ResourceLogs {
			for _, scope := range resource.ScopeLogs {
				for _, r := range scope.LogRecords {
					record := flat(append(slices.Clone(resource.Resource.Attributes), r.Attributes...))
					record["body"], record["severity"] = r.Body.GetStringValue(), r.SeverityText
					record["time"] = time.Unix(0, int64(r.TimeUnixNano)).UTC().Format(time.RFC3339Nano)
					records = append(records, record)
				}
			}
		}
	}
	return records
}

func flat(attributes []*commonpb.KeyValue) map[string]string {
	values := map[string]string{}
	for _, a := range attributes {
		values[a.Key] = a.Value.GetStringValue()
		if n, ok := a.Value.Value.(*commonpb.AnyValue_IntValue); ok {
			values[a.Key] = strconv.FormatInt(n.IntValue, 10)
		}
	}
	return values
}
