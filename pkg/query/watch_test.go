package query_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

func TestTailSendsWhatIsObserved(t *testing.T) {
	s := newScene(t)
	s.happens("shop", "web", "before")
	root, client := s.listen(t)
	all := open(t.Context(), t, client, root+"tail?watch=true")
	shop := open(t.Context(), t, client, root+"tail?watch=1&namespace=shop&match="+url.QueryEscape("event.involvedObject.name == 'web'"))
	all.begun()
	shop.begun()
	s.happens("other", "web", "not for the shop")
	s.happens("shop", "db", "not matched")
	s.happens("shop", "web", "for both")
	for i, message := range []string{"not for the shop", "not matched", "for both"} {
		if item := all.item(); item.Event == nil || item.Event.Message != message || item.Kind != "TailItem" || item.Event.ResourceVersion != fmt.Sprint(i+2) {
			t.Errorf("the item is %+v, not %q", item, message)
		}
	}
	item := shop.item()
	if item.Event == nil || item.Event.Message != "for both" {
		t.Errorf("the item of the shop is %+v", item)
	}
	// A client that resumes misses nothing.
	s.happens("shop", "web", "the next one")
	resumed := open(t.Context(), t, client, root+"tail?watch=1&namespace=shop&resourceVersion="+item.ResourceVersion)
	for message := ""; message != "the next one"; {
		message = resumed.item().Event.Message
	}
}

// awaitWatches waits until so many watches follow the history.
func (s *scene) awaitWatches(t testing.TB, n int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d watches are open", n), func() bool { return int(s.Metric(t, "eventd_query_watches")) == n })
}

func TestBrowserGetsServerSentEventsAndResumes(t *testing.T) {
	s := newScene(t)
	s.happens("shop", "web", "first\n\ndata: forged")
	s.happens("shop", "web", "second")
	root, client := s.listen(t)
	w := open(t.Context(), t, client, root+"tail?watch=true", "Accept", "text/event-stream", "Last-Event-ID", "1")
	if got := w.body.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("the type is %q", got)
	}
	fields := map[string][]string{}
	for len(fields["data"]) < 2 && w.lines.Scan() {
		if name, value, ok := strings.Cut(w.lines.Text(), ": "); ok {
			fields[name] = append(fields[name], value)
		} else if w.lines.Text() != "" {
			t.Errorf("a line is %q", w.lines.Text())
		}
	}
	var frame struct {
		Type   string
		Object v1alpha1.TailItem
	}
	if err := json.Unmarshal([]byte(fields["data"][1]), &frame); err != nil || frame.Type != "ADDED" || frame.Object.Event.Message != "second" {
		t.Errorf("the frame is %+v, %v", frame, err)
	}
	if len(fields["retry"]) != 1 || fields["id"][0] != "1" {
		t.Errorf("the fields are %v", fields)
	}
}

func TestPlaceThatIsLostIs410(t *testing.T) {
	s := newScene(t)
	s.happens("shop", "web", "first")
	root, client := s.listen(t)
	for cursor, code := range map[string]int32{"1.7": http.StatusGone, "no-cursor": http.StatusBadRequest} {
		if status := open(t.Context(), t, client, root+"tail?watch=true&resourceVersion="+cursor).end(); status == nil || status.Code != code {
			t.Errorf("%s ends with %+v", cursor, status)
		}
	}
}

func TestWatchEndsWithTheRightToIt(t *testing.T) {
	s := newScene(t)
	root, client := s.listen(t)
	for path, denied := range map[string]string{"tail?watch=true&namespace=shop": "shop", "top?watch=true&namespace=club": "club", "status?watch=true": ""} {
		w := open(t.Context(), t, client, root+path)
		w.next()
		began := time.Now()
		s.deny(denied)
		status := w.end()
		if status == nil || status.Code != http.StatusForbidden {
			t.Errorf("%s ends with %+v", path, status)
		}
		if took := time.Since(began); took > await.Timeout {
			t.Errorf("%s ends after %s", path, took)
		}
		if denied == "" {
			continue
		}
		// The others are not concerned.
		s.Do(t, http.MethodGet, root[strings.Index(root, "/apis"):]+"timeline?namespace=third", nil).Want(t, http.StatusOK, "")
	}
}

func TestWatchesEndAtOnceWhenTheProcessDoes(t *testing.T) {
	s := newScene(t)
	root, client := s.listen(t)
	var watches []*tail
	for _, path := range []string{"tail?watch=true", "status?watch=true", "top?watch=true", "drops?watch=true", "tail?watch=true&include=events,steps"} {
		watches = append(watches, open(t.Context(), t, client, root+path))
	}
	s.awaitWatches(t, len(watches))
	began := time.Now()
	close(s.stopping)
	for _, w := range watches {
		if status := w.end(); status != nil {
			t.Errorf("it ends with %+v", status)
		}
	}
	if took := time.Since(began); took > await.Timeout {
		t.Errorf("they end after %s", took)
	}
	s.awaitWatches(t, 0)
}

func TestWatchesOfALeaderEndWithItsTerm(t *testing.T) {
	s := newScene(t)
	s.happens("shop", "web", "before")
	root, client := s.listen(t)
	ended := open(t.Context(), t, client, root+"status?watch=true")
	goesOn := open(t.Context(), t, client, root+"tail?watch=true")
	ended.next()
	goesOn.begun()
	s.api.LeaderChanged()
	if status := ended.end(); status != nil {
		t.Errorf("it ends with %+v", status)
	}
	s.happens("shop", "web", "still here")
	if item := goesOn.item(); item.Event.Message != "still here" {
		t.Errorf("the tail has %+v", item)
	}
}

// A replica that does not know a leader answers for itself, until there is one.
func TestWatchedStatusOfAReplicaEndsWhenThereIsALeader(t *testing.T) {
	s := newScene(t, func(o *query.Options) { o.Leading = func() bool { return false } })
	root, client := s.listen(t)
	ctx, leave := context.WithTimeout(t.Context(), await.Timeout)
	defer leave()
	w := open(ctx, t, client, root+"status?watch=true")
	w.next()
	s.api.LeaderChanged()
	w.end()
	if ctx.Err() != nil {
		t.Error("it goes on")
	}
}

func TestWatchedStatusIsSentWhenItChanges(t *testing.T) {
	identity := make(chan string, 1)
	identity <- "a"
	s := newScene(t, func(o *query.Options) {
		o.Status = func() v1alpha1.PipelineStatus {
			now := <-identity
			identity <- now
			return v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: now}}
		}
	})
	root, client := s.listen(t)
	w := open(t.Context(), t, client, root+"status?watch=true")
	if f, _ := w.next(); f.Type != "ADDED" || !bytes.Contains(f.Object, []byte(`"identity":"a"`)) {
		t.Errorf("the first frame is %s %s", f.Type, f.Object)
	}
	<-identity
	identity <- "b"
	for {
		f, ok := w.next()
		if !ok || f.Type != "MODIFIED" {
			t.Fatalf("the next frame is %q", f.Type)
		}
		if bytes.Contains(f.Object, []byte(`"identity":"b"`)) {
			break
		}
	}
}

// A client that reads nothing is cut, costs a bounded buffer, and delays nobody.
func TestTailThatIsNotReadDelaysNoOther(t *testing.T) {
	s := newScene(t)
	s.happens("shop", "web", "before")
	root, client := s.listen(t)
	ctx, leave := context.WithCancel(t.Context())
	// On a connection of its own: the others share theirs.
	_, alone := s.listen(t)
	alone.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	open(ctx, t, alone, root+"tail?watch=true")
	const tails, events = 49, 200
	var reading sync.WaitGroup
	for i := range tails {
		w := open(ctx, t, client, root+"tail?watch=true", "Authorization", fmt.Sprint("Bearer user-", i%10))
		w.begun()
		reading.Go(func() {
			for i := range events {
				if item := w.item(); item.Event.ResourceVersion != fmt.Sprint(i+2) {
					t.Errorf("Event %d has the version %s", i+1, item.Event.ResourceVersion)
					return
				}
			}
		})
	}
	s.awaitWatches(t, tails+1)
	for range events { // more than all buffers of a stream
		text := make([]byte, 1500) // which nothing compresses
		_, _ = rand.Read(text)
		s.happens("shop", "web", base64.StdEncoding.EncodeToString(text))
	}
	reading.Wait()
	s.awaitWatches(t, tails) // after the timeout of a write
	leave()
	s.awaitWatches(t, 0)
}

// A watch ends some time: so does one whose client has vanished without a trace.
func TestWatchEndsAfterItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, func(o *query.Options) { o.History, o.Trail = nil, nil })
		began := time.Now()
		a := s.Do(t, http.MethodGet, root+"status?watch=true", nil)
		if took := time.Since(began); took < 5*time.Minute || took > 10*time.Minute {
			t.Errorf("it ends after %s", took)
		}
		// Every few seconds there is a frame.
		if n := bytes.Count(a.Body, []byte("\n")); n < 60 {
			t.Errorf("it has sent %d frames", n)
		}
	})
}

// Clients take a watch without a frame for dead. What happens elsewhere must not keep it silent.
func TestTailOfAQuietNamespaceHasAFrameEveryFewSeconds(t *testing.T) {
	for _, include := range []string{"events", "steps"} {
		t.Run(include, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				ctx, leave := context.WithCancel(t.Context())
				var elsewhere sync.WaitGroup
				elsewhere.Go(func() {
					for ctx.Err() == nil {
						s.happens("other", "web", "not for the shop")
						s.trail.Delivered("archive", &corev1.Event{
							ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "web"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"},
						}, 0)
						select {
						case <-time.After(3 * time.Second):
						case <-ctx.Done():
						}
					}
				})
				began := time.Now()
				a := s.Do(t, http.MethodGet, root+"tail?watch=true&namespace=shop&include="+include, nil)
				took := time.Since(began)
				leave()
				elsewhere.Wait()
				if n := bytes.Count(a.Body, []byte("\n")); n < int(took/(5*time.Second)) {
					t.Errorf("it has sent %d frames in %s", n, took)
				}
				// More would show when something happens elsewhere.
				if n := bytes.Count(a.Body, []byte("\n")); n > int(took/(4*time.Second))+2 {
					t.Errorf("it has sent %d frames in %s", n, took)
				}
			})
		})
	}
}

// The leader's watch passes through as it comes, and ends with its client.
func TestRelayedWatchIsNotBuffered(t *testing.T) {
	leader, ended := make(chan io.Writer, 1), make(chan struct{})
	follow := func(ctx context.Context, _ *http.Request) (*http.Response, error) {
		body, w := io.Pipe()
		leader <- w
		context.AfterFunc(ctx, func() {
			_ = body.CloseWithError(ctx.Err())
			close(ended)
		})
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, Body: body}, nil
	}
	s := newScene(t, func(o *query.Options) {
		o.Leading = func() bool { return false }
		o.Relay = follow
	})
	root, client := s.listen(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	opened := intaketest.Background(func() *tail { return open(ctx, t, client, root+"top?watch=true") })
	w := <-leader
	go func() {
		compressed := gzip.NewWriter(w)
		_, _ = io.WriteString(compressed, `{"type":"ADDED","object":{}}`+"\n")
		_ = compressed.Flush()
	}()
	if f, ok := (<-opened).next(); !ok || f.Type != "ADDED" {
		t.Errorf("the first frame is %+v", f)
	}
	leave()
	<-ended
	s.awaitWatches(t, 0)
}
