package jetstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/cputime"
)

// BenchmarkSend sends 10,000 records in batches of 512 to a server in another process, whose CPU
// time is not in cpu-ms/op.
func BenchmarkSend(b *testing.B) {
	s := startServer(b, withJetStream)
	stream := s.stream(b, nil)
	r := newReceiver(b, v1alpha1.JetStream{URL: s.url()})
	batch := records(10_000, 1, strings.Repeat("Back-off restarting failed container ", 4))
	for i := range batch {
		e := batch[i].Event
		e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod", UID: e.UID, APIVersion: "v1", FieldPath: "spec.containers{app}"}
		e.Reason, e.Type, e.Count = "BackOff", corev1.EventTypeWarning, 7
		e.Source = corev1.EventSource{Component: "kubelet", Host: "node-1"}
		e.FirstTimestamp.Time, e.LastTimestamp.Time = time.Unix(1e9, 0), time.Unix(2e9, 0)
	}
	before, rounds := cputime.Spent(b), 0
	for b.Loop() {
		rounds++
		for i := range batch {
			batch[i].ID = fmt.Sprintf("%s/%d", batch[i].Event.UID, rounds) // no duplicates
		}
		for part := range slices.Chunk(batch, 512) {
			send(b, r, part)
		}
	}
	b.ReportMetric(float64((cputime.Spent(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
	info, err := stream.Info(b.Context())
	must(b, err)
	if int(info.State.Msgs) != rounds*len(batch) {
		b.Errorf("the stream has %d messages of %d", info.State.Msgs, rounds*len(batch))
	}
}
