package page_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/pagetest"
)

// sent is one server-sent event.
type sent struct{ event, id, data string }

// tail opens a stream, which ends with the test or with stop.
func (v *visitor) tail(t *testing.T, parameters string) (lines *bufio.Scanner, stop func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	response := v.do(t, http.MethodGet, "/tail/stream?"+parameters, func(r *http.Request) { *r = *r.WithContext(ctx) })
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("answered %d, %s", response.StatusCode, kind)
	}
	return bufio.NewScanner(response.Body), stop
}

// next returns the next event that does not only say that the stream is alive.
func next(t *testing.T, lines *bufio.Scanner) (out sent) {
	t.Helper()
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			out.event = value
		case "id":
			out.id = value
		case "data":
			out.data += value
		case "":
			if out.event != "alive" || out.id != "" {
				return out
			}
			out = sent{}
		}
	}
	return out
}

func stream(t *testing.T, b *pagetest.Backend, n int) *pagetest.Stream {
	t.Helper()
	var s *pagetest.Stream
	await.Until(t, "a watch", func() bool {
		last, opened := b.Last()
		s = last
		return opened >= n
	})
	return s
}

func TestATailSendsWhatComes(t *testing.T) {
	b := pagetest.Busy(time.Now())
	lines, _ := serve(t, b).tail(t, "namespace=a+b&match=true&include=events,steps&resourceVersion=7")
	from := stream(t, b, 1)
	if want := "tail?include=events%2Csteps&match=true&namespace=a&namespace=b&resourceVersion=7&watch=true"; b.Asked()[len(b.Asked())-1] != want {
		t.Errorf("asked for %q", b.Asked())
	}
	from.Send("ADDED", v1alpha1.TailItem{ResourceVersion: "8", Event: &v1alpha1.TimelineItem{Reason: "BackOff", Message: hostile, Count: 3}})
	got := next(t, lines)
	if got.event != "item" || got.id != "8" || !strings.Contains(got.data, "BackOff") || !strings.Contains(got.data, "&lt;script&gt;") || strings.Contains(got.data, "<script") || strings.Contains(got.data, "\x1b") {
		t.Errorf("%+v", got)
	}
	from.Send("BOOKMARK", v1alpha1.TailItem{ResourceVersion: "9"})
	if got := next(t, lines); got != (sent{event: "alive", id: "9"}) {
		t.Errorf("%+v", got)
	}
	from.Send("BOOKMARK", v1alpha1.TailItem{Lost: 1204})
	if got := next(t, lines); got.event != "note" || !strings.Contains(got.data, "1,204 steps are missing") {
		t.Errorf("%+v", got)
	}
	from.Send("BOOKMARK", v1alpha1.TailItem{Missing: "What is observed is not known: \x1b refused"})
	if got := next(t, lines); got != (sent{event: "missing", data: "Missing: What is observed is not known: ␛ refused"}) {
		t.Errorf("%+v", got)
	}
	from.Send("ADDED", v1alpha1.TailItem{ResourceVersion: "9", Step: &v1alpha1.Step{Action: v1alpha1.ActionSettled, Outcome: "dropped", Cause: "forbidden"}})
	if got := next(t, lines); got.event != "item" || !strings.Contains(got.data, "forbidden") {
		t.Errorf("%+v", got)
	}
}

func TestATailSaysHowItEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end         func(*pagetest.Stream)
		event, data string
	}{
		"normally": {func(s *pagetest.Stream) { s.End() }, "ended", ""},
		"lost": {func(s *pagetest.Stream) {
			s.Send("ERROR", apierrors.NewResourceExpired("too old").Status())
		}, "lost", "items are missing"},
		"refused": {func(s *pagetest.Stream) {
			s.Send("ERROR", apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("tail").GroupResource(), "", fmt.Errorf("no right")).Status())
		}, "problem", "no right"},
		"garbage": {func(s *pagetest.Stream) { s.Send("ADDED", "text") }, "problem", "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			b := pagetest.Busy(time.Now())
			lines, _ := serve(t, b).tail(t, "")
			test.end(stream(t, b, 1))
			if got := next(t, lines); got.event != test.event || !strings.Contains(got.data, test.data) {
				t.Errorf("%+v", got)
			}
			if lines.Scan() {
				t.Errorf("it goes on with %q", lines.Text())
			}
			await.Until(t, "the watch is closed", func() bool { return b.Open() == 0 })
		})
	}
}

func TestATailThatCannotBeOpenedSaysWhy(t *testing.T) {
	b := pagetest.NewBackend()
	b.Set("tail", apierrors.NewServiceUnavailable("no history"))
	lines, _ := serve(t, b).tail(t, "")
	if got := next(t, lines); got.event != "problem" || !strings.Contains(got.data, "no history") {
		t.Errorf("%+v", got)
	}
}

func TestATailEndsWithItsBrowser(t *testing.T) {
	b := pagetest.Busy(time.Now())
	v := serve(t, b)
	_, stop := v.tail(t, "")
	stream(t, b, 1)
	v.tail(t, "") // ends with the page
	stream(t, b, 2)
	stop()
	await.Until(t, "its watch is closed", func() bool { return b.Open() == 1 })
	v.stop()
	await.Until(t, "the other watch is closed", func() bool { return b.Open() == 0 })
}

// A browser that does not read costs one stream for a limited time.
func TestATailThatNobodyReadsEnds(t *testing.T) {
	b := pagetest.Busy(time.Now())
	server := httptest.NewUnstartedServer(nil)
	handler, path := page.NewHandler(b, server.Listener.Addr().String(), 50*time.Millisecond)
	server.Config.Handler = handler
	server.Start()
	defer server.Close()
	client := newClient(t)
	defer client.CloseIdleConnections()
	response, err := client.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	cookie := client.Jar.Cookies(response.Request.URL)[0]

	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET /tail/stream HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\n\r\n", server.Listener.Addr(), cookie.Name, cookie.Value)
	from := stream(t, b, 1)
	large := v1alpha1.TailItem{Event: &v1alpha1.TimelineItem{Message: strings.Repeat("m", 1000)}}
	for deadline := time.Now().Add(await.Timeout); from.Send("ADDED", large); {
		if time.Now().After(deadline) {
			t.Fatal("the stream is still written")
		}
	}
	await.Until(t, "the watch is closed", func() bool { return b.Open() == 0 })
}

func TestStreamsAreBounded(t *testing.T) {
	const most = 16
	b := pagetest.Busy(time.Now())
	v := serve(t, b)
	full := make(chan struct{})
	var all sync.WaitGroup
	for range 2 * most {
		all.Go(func() {
			response, err := v.Get(v.base + "/tail/stream")
			if err != nil {
				t.Error(err)
				return
			}
			<-full
			response.Body.Close()
		})
	}
	stream(t, b, most)
	if code, _ := v.get(t, "/"); code != http.StatusOK {
		t.Errorf("the status is answered %d meanwhile", code)
	}
	close(full) // the others begin as those end
	all.Wait()
	if _, opened := b.Last(); opened != 2*most || b.Peak() != most {
		t.Errorf("%d streams, %d at once", opened, b.Peak())
	}
}
