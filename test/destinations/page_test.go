package destinations_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/otlp"
	"github.com/eventd/eventd/test/await"
)

// pageDestination is a section of docs/destinations.md.
type pageDestination struct {
	section, address string // in the page
	start            func(t *testing.T, address string) destination
}

// The destinations of the page. The last one does not speak OTLP.
var pageDestinations = []pageDestination{
	{"Loki", "http://loki-gateway.loki:80", startLoki},
	{"Elasticsearch", "https://elasticsearch.elastic:9200", startElasticsearch},
	{"Kafka", "kafka-bootstrap.kafka:9092", startKafka},
}

// destination is where the exporter of a collector sends to.
type destination interface {
	// stored returns what it has stored, the same as often as it was, in the order of each Event.
	stored(t *testing.T) []written
	// want adjusts what is sent to what it stores.
	want(w *written)
}

// pageCollector returns a collector that is configured as a section of the page has it, with a
// destination at an address of this machine.
func pageCollector(t *testing.T, d pageDestination, address string) *collector {
	t.Helper()
	t.Setenv("ELASTICSEARCH_API_KEY", apiKey)
	content, err := os.ReadFile("../../docs/destinations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(content), "\n## "+d.section+"\n")
	_, text, found2 := strings.Cut(text, "```yaml\n")
	text, _, found3 := strings.Cut(text, "```\n")
	if !found || !found2 || !found3 {
		t.Fatalf("docs/destinations.md has no configuration for %s", d.section)
	}
	if strings.Contains(d.address, "://") {
		address = "http://" + address
	}
	return localCollector(t, text, d.address, address)
}

// localCollector returns a collector with a configuration in which addresses are replaced: those of
// its own receivers, and pairs of others.
func localCollector(t *testing.T, config string, addresses ...string) *collector {
	t.Helper()
	c := newCollector(t)
	replace := append([]string{
		"0.0.0.0:4317", c.grpc, "0.0.0.0:4318", c.http,
		"\nservice:\n", "\nservice:\n  telemetry: {metrics: {level: none}}\n", // no port of its own
	}, addresses...)
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(config, replace[i]) != 1 {
			t.Fatalf("%q is not once in the configuration:\n%s", replace[i], config)
		}
		config = strings.Replace(config, replace[i], replace[i+1], 1)
	}
	c.write(t, "config.yaml", []byte(config))
	return c
}

// versions returns several versions of each of n Events, one after another, and Events as large as
// there are.
func versions(n int) (batch []receiver.Record) {
	for version := range 3 {
		for i := range n {
			r := record(2 * i) // without a series
			r.ID = fmt.Sprintf("uid %d/%d", i, version)
			r.Event.Count = int32(version + 1)
			batch = append(batch, r)
		}
	}
	batch[0].Event.Message = strings.Repeat("m", 1<<20)
	batch[1].Event.Message = strings.Repeat("\u0001", 1<<20)
	return batch
}

// While a destination is away, the collector acknowledges nothing. What it has acknowledged is stored,
// also if the collector is killed then.
func TestCollectorOfThePageStoresWhatItAcknowledges(t *testing.T) {
	for _, d := range pageDestinations {
		t.Run(d.section, func(t *testing.T) {
			address := freeAddress(t)
			c := pageCollector(t, d, address)
			c.start(t)
			batch := versions(50)
			for _, protocol := range []configv1alpha1.OTLPProtocol{configv1alpha1.OTLPGRPC, configv1alpha1.OTLPHTTP} {
				r := impatientReceiver(t, c, protocol)
				if _, err := r.Send(t.Context(), batch[:1]); err == nil {
					t.Fatalf("%s: acknowledged, though the destination is away", protocol)
				}
			}
			to := d.start(t, address)
			for i, way := range ways {
				r := newReceiver(t, c, way, configv1alpha1.Connection{Insecure: true})
				begin, end := i*len(batch)/len(ways), (i+1)*len(batch)/len(ways)
				send(t, r, batch[begin:end])
			}
			c.running.Kill()
			awaitStored(t, to, batch)
		})
	}
}

// impatientReceiver returns one that waits for a second.
func impatientReceiver(t *testing.T, c *collector, protocol configv1alpha1.OTLPProtocol) receiver.Receiver {
	t.Helper()
	config := &configv1alpha1.OTLP{Protocol: protocol, Endpoint: c.grpc, Connection: configv1alpha1.Connection{Insecure: true}}
	if protocol == configv1alpha1.OTLPHTTP {
		config.Endpoint = "http://" + c.http + "/v1/logs"
	}
	r, err := otlp.New(config, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// awaitStored waits until everything is stored as it was sent, however often.
func awaitStored(t *testing.T, to destination, batch []receiver.Record) {
	t.Helper()
	want := map[string]written{}
	for _, r := range batch {
		w := wanted(r)
		to.want(&w)
		want[r.ID] = w
	}
	err := await.Success(t.Context(), await.Timeout, func() error {
		stored := map[string]written{}
		for _, w := range to.stored(t) {
			id := w.Attributes["log.record.uid"]
			if before, again := stored[id]; again && !cmp.Equal(before, w) {
				return await.Permanent(fmt.Errorf("%s is stored in two ways:\n%s", id, cmp.Diff(before, w)))
			}
			stored[id] = w
		}
		for id := range maps.Keys(want) {
			if _, ok := stored[id]; !ok {
				return fmt.Errorf("%d of %d are stored, and %s is not", len(stored), len(want), id)
			}
		}
		if diff := cmp.Diff(want, stored); diff != "" {
			return await.Permanent(errors.New("what is stored (-want +got):\n" + diff[:min(len(diff), 4000)]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// allOf are the records of a request, each with its resource.
func allOf(data []*logspb.ResourceLogs) (records []written) {
	for _, l := range data {
		records = append(records, got(l))
	}
	return records
}

// isPermanent reports whether eventd gives up what was sent.
func isPermanent(err error) bool {
	var failed *receiver.Error
	return errors.As(err, &failed) && failed.Permanent
}
