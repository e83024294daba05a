package destinations_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/eventd/eventd/test/process"
)

// kafka is the broker of test/collector/kafka, which speaks Kafka's protocol. It is not Kafka.
type kafka struct {
	output *lines
}

func startKafka(t *testing.T, address string) destination {
	k := &kafka{output: &lines{}}
	command := exec.Command(filepath.Join(filepath.Dir(binary), "kafka"), "-address="+address, "-topic=kubernetes-events")
	command.Stdout = k.output
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	running, err := process.Start("kafka", "", command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		running.Kill()
	})
	return k
}

// lines are what a process has written to stdout.
type lines struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(data)
}

func (l *lines) complete() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.content.Bytes()
	return bytes.Clone(all[:bytes.LastIndexByte(all, '\n')+1])
}

// stored returns the messages. It checks that the versions of an Event are in one partition, and that
// they are in order, but for repetitions.
func (k *kafka) stored(t *testing.T) (records []written) {
	t.Helper()
	type place struct {
		partition int32
		version   string
	}
	last := map[string]place{}
	seen := map[string]bool{}
	for decoder := json.NewDecoder(bytes.NewReader(k.output.complete())); ; {
		var message struct {
			Partition  int32
			Key, Value []byte
		}
		if err := decoder.Decode(&message); err == io.EOF {
			return records
		} else if err != nil {
			t.Fatal(err)
		}
		data := &logspb.LogsData{}
		if err := proto.Unmarshal(message.Value, data); err != nil {
			t.Fatal(err)
		}
		if len(data.ResourceLogs) != 1 || len(message.Key) == 0 {
			t.Fatalf("a message has %d records, and the key %q", len(data.ResourceLogs), message.Key)
		}
		w := got(data.ResourceLogs[0])
		records = append(records, w)
		id := w.Attributes["log.record.uid"]
		if seen[id] {
			continue
		}
		seen[id] = true
		uid, version, _ := strings.Cut(id, "/")
		if before, ok := last[uid]; ok && (before.partition != message.Partition || before.version > version) {
			t.Fatalf("%s is in partition %d after %v", id, message.Partition, before)
		}
		last[uid] = place{message.Partition, version}
	}
}

func (k *kafka) want(*written) {}
