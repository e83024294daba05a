package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/eventd/eventd/test/metrics"
)

// usage is from the metrics of a process.
type usage struct {
	at       time.Time
	resident float64 // bytes
	own      string  // without the binary; known on Linux only
	cpu      float64 // seconds so far
	leading  bool
}

func (e *eventd) usage(ctx context.Context) (usage, error) {
	at := time.Now()
	m, err := metrics.Read(ctx, e.admin)
	return usage{
		at: at, resident: m.Sum("process_resident_memory_bytes"), own: ownMemory(e.PID()),
		cpu: m.Sum("process_cpu_seconds_total"), leading: m.Sum("eventd_election_leading") == 1,
	}, err
}

// ownMemory is the anonymous memory of a process, in MiB. The other resident memory is
// the binary, which the kernel maps once for all processes, and may drop.
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
