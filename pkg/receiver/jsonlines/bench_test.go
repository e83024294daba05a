package jsonlines

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/test/cputime"
)

// BenchmarkSend sends 10,000 records in batches of 512.
func BenchmarkSend(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(b, err)
	for name, r := range map[string]*Receiver{
		"file":   newFile(b, v1alpha1.JSONLines{Path: filepath.Join(b.TempDir(), "events")}),
		"stream": newReceiver("null", turnOf(b.Name()), &stream{w: null}, maxChunk),
	} {
		b.Run(name, func(b *testing.B) {
			batch := records(0, 10_000, strings.Repeat("Back-off restarting failed container ", 4))
			for i := range batch {
				e := batch[i].Event
				e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod", UID: e.UID, APIVersion: "v1", FieldPath: "spec.containers{app}"}
				e.Reason, e.Type, e.Count = "BackOff", corev1.EventTypeWarning, 7
				e.Source = corev1.EventSource{Component: "kubelet", Host: "node-1"}
				e.FirstTimestamp.Time, e.LastTimestamp.Time = time.Unix(1e9, 0), time.Unix(2e9, 0)
			}
			before := cputime.Spent(b)
			for b.Loop() {
				for part := range slices.Chunk(batch, 512) {
					send(b, r, part)
				}
			}
			b.ReportMetric(float64((cputime.Spent(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
	must(b, null.Close())
}
