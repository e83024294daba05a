package hostile

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// observing are the flags of observe in deploy/ that change its memory.
var observing = []string{"--role=" + app.RoleObserve, "--leader-elect=false", "--cluster-name=test", "--history-bytes=24Mi",
	"--max-connections=100", "--max-requests-inflight=64"}

// TestWhatIsStoredAndAskedTakesObserveNoMoreThanItsLimit: at once, Events as large as the apiserver stores them, some with
// 100,000 labels, as many receivers as there may be, of which one is well and the others never answer, metrics with as many
// labels and series as they may have, and readers of whom some read nothing.
func TestWhatIsStoredAndAskedTakesObserveNoMoreThanItsLimit(t *testing.T) {
	c := testenv.Shared(t)
	credentials := replica.Deploy(t, c)
	replica.DeployObserve(t, c)
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(file, []byte(greedyConfiguration(deafServer(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, c, replica.Options{Credentials: credentials, Flags: append([]string{"--config=" + file}, observing...)})
	g := &target{cluster: c, config: r.Config, pid: r.PID, eventd: r}

	ctx, stop := context.WithTimeout(t.Context(), longrun.Either(time.Minute, 8*time.Second))
	defer stop()
	var attacking sync.WaitGroup
	var stored, asked atomic.Int64
	admin := newAccount(t, c.Config(), c.Namespace(t))
	var many strings.Builder
	for i := range 100_000 {
		_, _ = fmt.Fprintf(&many, `"l%d":"",`, i)
	}
	labels := `"labels":{` + strings.TrimSuffix(many.String(), ",") + `},`
	attacking.Go(func() {
		crowd(ctx, 8, 60, func() {
			n := stored.Add(1)
			name := fmt.Sprint("stored-", n)
			event := admin.event(name, name, "Warning", 1)
			switch {
			case n%50 == 0:
				event = strings.Replace(event, `"metadata":{`, `"metadata":{`+labels, 1)
			case n%3 == 0:
				host := make([]byte, 512<<10) // which nothing compresses
				_, _ = rand.Read(host)
				event = strings.Replace(event, `"source":{`, fmt.Sprintf(`"source":{"host":"%x",`, host), 1)
			}
			if a := admin.postEvent(ctx, event); ctx.Err() == nil && a.Code != http.StatusCreated {
				t.Errorf("the apiserver answers %v", a)
			}
		})
	})
	var stalled stalledConns
	defer stalled.close()
	const queries = "/apis/observe.eventd.io/v1alpha1/"
	for _, config := range g.readers(t, 4) {
		reader := newAccount(t, config, "")
		attacking.Go(func() {
			crowd(ctx, 4, 20, func() {
				for _, query := range []string{"timeline?limit=5000&versions=all", "top?limit=1000", "why?kind=Pod&name=stored-1&namespace=" + admin.namespace} {
					if a := reader.do(ctx, http.MethodGet, reader.config.Host+queries+query, ""); a.Code == http.StatusOK {
						asked.Add(1)
					}
				}
			})
		})
		for _, path := range []string{queries + "tail?watch=true&include=events,steps", queries + "timeline?limit=5000&versions=all"} {
			attacking.Go(func() {
				if err := stalled.openStreams(ctx, t, reader, stalledRequest{http.MethodGet, path, ""}, 8); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			})
		}
	}
	attacking.Wait()
	stalled.close()
	m := g.metrics(t)
	longrun.Report(t, "%d Events, %d answers; %.0f versions pending", stored.Load(), asked.Load(), m.Sum("eventd_receiver_pending_versions"))
	if asked.Load() == 0 || m.Sum("eventd_history_bytes") == 0 || m.Sum("eventd_receiver_pending_versions") == 0 {
		t.Errorf("%d queries were answered, with %v bytes of history: the attack had no effect", asked.Load(), m.Sum("eventd_history_bytes"))
	}
}

// greedyConfiguration has as many receivers and series as there may be.
func greedyConfiguration(deaf string) string {
	var out strings.Builder
	out.WriteString("apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\nreceivers:\n- {name: stdout, from: Oldest, jsonLines: {}}\n")
	for i := range v1alpha1.MaxReceivers - 1 {
		_, _ = fmt.Fprintf(&out, "- {name: deaf-%d, from: Oldest, cloudEvents: {url: %q, batched: true, insecure: true}}\n", i, deaf)
	}
	_, _ = fmt.Fprintf(&out, "metrics:\n- name: all\n  maxSeries: %d\n  labels:\n", v1alpha1.MaxSeries)
	for i, field := range []string{"metadata.uid", "metadata.name", "metadata.namespace", "involvedObject.name", "message", "reason", "type", "reportingInstance"} {
		_, _ = fmt.Fprintf(&out, "    l%d: %s\n", i, field)
	}
	return out.String()
}

// deafServer accepts connections, and answers nothing.
func deafServer(t *testing.T) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "http://" + listener.Addr().String()
}
