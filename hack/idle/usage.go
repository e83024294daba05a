package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// usage is what a process says of itself.
type usage struct {
	at       time.Time
	resident float64 // bytes
	own      string  // of these, what is not the binary's; unknown but on Linux
	cpu      float64 // seconds so far
	leading  bool
}

func (r *replica) usage(ctx context.Context) (u usage, err error) {
	u.at = time.Now()
	body, err := r.client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return u, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return u, err
	}
	value := func(name string) (sum float64) {
		for _, m := range families[name].GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		return sum
	}
	u.resident, u.cpu = value("process_resident_memory_bytes"), value("process_cpu_seconds_total")
	u.leading = value("eventd_election_leading") == 1
	u.own = ownMemory(r.command.Process.Pid)
	return u, nil
}

// ownMemory is in MiB what a process has that is no part of a file. The other
// part of what is resident is the binary: the kernel maps it as it is touched,
// once for all that run it, and may take it back.
func ownMemory(pid int) string {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "?"
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return fmt.Sprint(kib >> 10)
		}
	}
	return "?"
}

// withCodec has a client decode the Status of an error.
func withCodec(config *rest.Config) *rest.Config {
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config
}
