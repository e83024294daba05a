package jsonlines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records returns n records, whose IDs begin with a number.
func records(first, n int, message string) (out []receiver.Record) {
	for i := range n {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", UID: types.UID(fmt.Sprint(first + i)), ResourceVersion: "1"},
			Message:    message,
		}
		out = append(out, receiver.Record{ID: string(event.UID) + "/1", Cluster: "prod", Event: event, Observed: time.Unix(1e9, 0)})
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newFile(t testing.TB, config v1alpha1.JSONLines) *Receiver {
	t.Helper()
	r, err := New(config)
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func send(t testing.TB, r *Receiver, batch []receiver.Record) {
	t.Helper()
	if rejected, err := r.Send(t.Context(), batch); rejected != 0 || err != nil {
		t.Fatalf("Send returned %d, %v", rejected, err)
	}
}

func sendError(t testing.TB, r *Receiver, batch []receiver.Record, want string) {
	t.Helper()
	if _, err := r.Send(t.Context(), batch); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("Send returned %v, want an error with %q", err, want)
	}
}

// wantLines checks that data has the lines of records, and beside them some that are no JSON.
func wantLines(t testing.TB, data []byte, broken int, want []receiver.Record) {
	t.Helper()
	if len(data) > 0 && data[len(data)-1] != '\n' {
		t.Errorf("the last line is incomplete: %.100q", data[max(0, len(data)-100):])
	}
	for row := range bytes.Lines(data) {
		var got line
		if json.Unmarshal(row, &got) != nil {
			broken--
			continue
		}
		if len(want) == 0 || got.ID != want[0].ID || got.Message != want[0].Event.Message || got.UID != want[0].Event.UID {
			t.Fatalf("line %.200q, want %v and %d after it", row, want[:min(1, len(want))], len(want)-1)
		}
		want = want[1:]
	}
	if broken != 0 || len(want) != 0 {
		t.Fatalf("%d lines more that are broken, and %d that are missing", -broken, len(want))
	}
}

func wantFile(t testing.TB, path string, broken int, want []receiver.Record) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	wantLines(t, data, broken, want)
}

func TestEveryRecordIsALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path})
	batch := slices.Concat(records(0, 3, "0/3 nodes & <none>"), records(3, 1, "\"}\r\n{\u2028\u0085\x00\\"), records(4, 1, strings.Repeat("\x01x", 1<<20)), records(5, 9, ""))
	send(t, r, batch[:4])
	send(t, r, nil)
	send(t, r, batch[4:])
	wantFile(t, path, 0, batch)

	info, err := os.Stat(path)
	must(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("the mode is %s", info.Mode())
	}
	data, err := os.ReadFile(path)
	must(t, err)
	const want = `{"id":"0/1","clusterName":"prod","observedTime":"2001-09-09T01:46:40Z","kind":"Event","apiVersion":"v1","metadata":{"name":"pod",`
	if !bytes.HasPrefix(data, []byte(want)) || !bytes.Contains(data, []byte(`"message":"0/3 nodes & <none>"`)) {
		t.Errorf("the first line is %.400s", data)
	}
	if r.lines.Cap() > 2*maxChunk {
		t.Errorf("the receiver holds %d bytes", r.lines.Cap())
	}
}

func TestSummaryHasItsNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	r := newFile(t, v1alpha1.JSONLines{Path: path})
	batch := records(0, 2, "pulled image")
	batch[1].Summarized = 7
	send(t, r, batch)
	wantFile(t, path, 0, batch)
	data, err := os.ReadFile(path)
	must(t, err)
	if bytes.Count(data, []byte(`"summarized":`)) != 1 || !bytes.Contains(data, []byte(`,"summarized":7,"kind":"Event"`)) {
		t.Errorf("the lines are %s", data)
	}
}

func TestStdout(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer write.Close()
	stdout := os.Stdout
	os.Stdout = write
	r, err := New(v1alpha1.JSONLines{})
	os.Stdout = stdout
	must(t, err)

	batch := records(0, 1000, "longer than the buffer of a pipe")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.Send(ctx, batch); err == nil || !strings.Contains(err.Error(), "has not returned") {
		t.Fatalf("Send to a pipe that nobody reads returned %v", err)
	}
	got := make(chan []byte)
	go func() {
		data, _ := io.ReadAll(read)
		got <- data
	}()
	send(t, r, batch)
	must(t, r.Close())
	must(t, write.Close())
	wantLines(t, <-got, 0, batch)
}

func TestStdoutThatIsClosedIsAnError(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	must(t, read.Close())
	s := &stream{w: write}
	r := newReceiver("pipe", turnOf(t.Name()), s, maxChunk)
	sendError(t, r, records(0, 1, ""), "broken pipe")
	must(t, r.Close())
}

// halves writes half of what it gets once, and fails.
type halves struct {
	bytes.Buffer
	failed bool
}

func (h *halves) Close() error { return nil }
func (h *halves) Write(data []byte) (int, error) {
	if h.failed {
		return h.Buffer.Write(data)
	}
	h.failed = true
	n, _ := h.Buffer.Write(data[:len(data)/2+1])
	return n, io.ErrShortWrite
}

func TestLineThatStdoutHasInPartIsEnded(t *testing.T) {
	out := new(halves)
	r := newReceiver("halves", turnOf(t.Name()), &stream{w: out}, maxChunk)
	batch := records(0, 1, "cut")
	sendError(t, r, batch, "short write")
	send(t, r, batch)
	send(t, r, records(1, 1, ""))
	wantLines(t, out.Bytes(), 1, slices.Concat(batch, records(1, 1, "")))
}

// slow is a destination whose writes return when the test lets them.
type slow struct {
	bytes.Buffer
	write   func()
	writing int
	closed  bool
}

func (s *slow) Close() error { s.closed = true; return nil }
func (s *slow) Write(data []byte) (int, error) {
	if s.writing++; s.writing > 1 {
		panic("two writers")
	}
	s.write()
	s.writing--
	return s.Buffer.Write(data)
}

// trySend sends with a timeout.
func trySend(t *testing.T, r *Receiver, batch []receiver.Record, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := r.Send(ctx, batch)
	return err
}

func TestWriteThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		out := &slow{write: func() { <-release }}
		turn := make(chan struct{}, 1)
		r := newReceiver("pipe", turn, &stream{w: out}, maxChunk)
		batch := records(0, 3, "")
		begin := time.Now()
		for range 3 {
			if err := trySend(t, r, batch, time.Second); err == nil || !strings.Contains(err.Error(), "has not returned") {
				t.Fatalf("Send returned %v", err)
			}
		}
		// The configuration was reloaded.
		next := newReceiver("pipe", turn, &stream{w: out}, maxChunk)
		if err := trySend(t, next, batch, time.Second); err == nil {
			t.Fatal("there are two writers")
		}
		if err := next.Close(); err == nil || out.closed {
			t.Fatalf("Close returned %v, and closed: %v", err, out.closed)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("four Sends of 1 s and Close took %s", took)
		}
		close(release)
		synctest.Wait()
		if !out.closed {
			t.Error("not closed after the write")
		}
		must(t, trySend(t, r, append(batch, records(3, 1, "")...), time.Second))
		wantLines(t, out.Bytes(), 0, records(0, 4, ""))
	})
}

func TestDestinationThatIsTooSlowForABatchMakesProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &slow{write: func() { time.Sleep(time.Second) }}
		r := newReceiver("pipe", make(chan struct{}, 1), &stream{w: out}, 1)
		batch := records(0, 9, "")
		if trySend(t, r, batch, 2500*time.Millisecond) == nil {
			t.Fatal("nine writes of 1 s took less than 2.5 s")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLines(t, out.Bytes(), 0, batch[:3]) // nothing is begun after ctx
		sends := 2
		for ; trySend(t, r, batch, 2500*time.Millisecond) != nil; sends++ {
		}
		if sends > 5 {
			t.Errorf("%d Sends", sends)
		}
		wantLines(t, out.Bytes(), 0, batch)
		if r.delivered != nil {
			t.Errorf("%v are remembered after a success", r.delivered)
		}
	})
}
