package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// unreadTimeout is how long a browser may not read a stream.
const unreadTimeout = 10 * time.Second

// frames is what a watch has sent, or why it has ended.
type frames struct {
	event metav1.WatchEvent
	err   error
}

// stream sends a tail as server-sent events: item has HTML, note, missing and problem a sentence, lost one after which
// the tail goes on with what comes. alive says that eventd has answered or has sent a bookmark, which it does every
// 4 s: never that this process is there. The id of an event is the cursor from which the next stream resumes.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	asked := query(r, v1alpha1.ParamWatch, "true", v1alpha1.ParamMatch, q.Get(v1alpha1.ParamMatch),
		v1alpha1.ParamInclude, q.Get(v1alpha1.ParamInclude), v1alpha1.ParamResourceVersion, q.Get(v1alpha1.ParamResourceVersion))
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := &sender{w: w, control: http.NewResponseController(w), patience: s.patience}
	w.Header().Set("Content-Type", "text/event-stream")

	source, err := s.backend.Watch(ctx, "tail", asked)
	if err != nil {
		out.end(err)
		return
	}
	received := make(chan frames)
	var reading sync.WaitGroup
	reading.Go(func() { read(ctx, source, received) })
	defer reading.Wait()
	defer source.Close()
	defer cancel()

	for err := out.send("alive", "", ""); err == nil; { // eventd has answered
		select {
		case <-ctx.Done():
			return
		case f := <-received:
			if err = f.err; err == nil {
				err = out.frame(f.event)
			}
			if err != nil {
				out.end(err)
			}
		}
	}
}

// read passes on what a watch sends until it ends, or ctx does.
func read(ctx context.Context, source Stream, to chan<- frames) {
	for {
		event, err := source.Next()
		select {
		case to <- frames{event, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// sender writes server-sent events.
type sender struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

// frame sends one frame of a tail.
func (s *sender) frame(event metav1.WatchEvent) error {
	if watch.EventType(event.Type) == watch.Error {
		status := metav1.Status{}
		if err := decode(event, &status); err != nil {
			return err
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	item := v1alpha1.TailItem{}
	if err := decode(event, &item); err != nil {
		return err
	}
	clean(&item)
	if item.Lost > 0 {
		if err := s.send("note", "", count(float64(item.Lost))+" steps are missing here: they came faster than they were read."); err != nil {
			return err
		}
	}
	if item.Missing != "" {
		return s.send("missing", "", "Missing: "+item.Missing)
	}
	if item.Event == nil && item.Step == nil {
		return s.send("alive", item.ResourceVersion, "")
	}
	var line bytes.Buffer
	if err := templates()["tail"].ExecuteTemplate(&line, "item", item); err != nil {
		return err
	}
	return s.send("item", item.ResourceVersion, line.String())
}

func decode(event metav1.WatchEvent, into any) error {
	if err := json.Unmarshal(event.Object.Raw, into); err != nil {
		return fmt.Errorf("decode a frame of the tail: %w", err)
	}
	return nil
}

// end says why a tail has ended. One that has ended normally is resumed by the script.
func (s *sender) end(err error) {
	switch {
	case errors.Is(err, io.EOF):
		s.send("ended", "", "")
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		s.send("lost", "", "What came meanwhile is no longer kept: items are missing here.")
	default:
		p := explain(err, "tail", nil)
		s.send("problem", "", p.Title+" "+p.Words)
	}
}

// send writes an event, and fails if the browser does not read it in time.
func (s *sender) send(event, id, data string) error {
	var b strings.Builder
	if id != "" {
		fmt.Fprintf(&b, "id: %s\n", id)
	}
	fmt.Fprintf(&b, "event: %s\n", event)
	for line := range strings.Lines(data) {
		fmt.Fprintf(&b, "data: %s\n", strings.TrimRight(line, "\r\n"))
	}
	if data == "" {
		b.WriteString("data:\n") // an event without data is none
	}
	b.WriteByte('\n')
	if err := s.control.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(s.w, b.String()); err != nil {
		return err
	}
	return s.control.Flush()
}
