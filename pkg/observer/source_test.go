package observer

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whoever may create Events could else have pages read that take all memory.
func TestAPageThatIsTooLargeIsNotRead(t *testing.T) {
	read := 0
	source, err := NewSource(&rest.Config{Host: "http://apiserver.invalid", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body := io.TeeReader(bytes.NewReader(make([]byte, 10*maxPageBytes)), counting{&read})
		return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(body), Header: http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf"}}}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := source.List(t.Context(), 500, ""); !errors.Is(err, ErrPageTooLarge) {
		t.Errorf("List: %v, want ErrPageTooLarge", err)
	}
	if read > 2*maxPageBytes {
		t.Errorf("%d bytes were read", read)
	}
	limited := limitedPages{roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{Request: r, Body: io.NopCloser(bytes.NewReader(make([]byte, 10*maxPageBytes)))}, nil
	})}
	for query, want := range map[string]int{"limit=2": maxPageBytes, "limit=1": maxEventBytes, "watch=true": 10 * maxPageBytes} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apiserver.invalid/?"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := limited.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := io.Copy(io.Discard, response.Body); n > int64(want) || n < int64(want)*9/10 {
			t.Errorf("%s: %d bytes are read, want %d", query, n, want)
		}
	}
}

// A list is a consistent read, a watch lasts as long as it says, and neither waits for a rate limiter.
func TestRequestsOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last *http.Request
		source, err := NewSource(&rest.Config{Host: "http://apiserver.invalid", Timeout: time.Second, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			last = r
			body := `{"kind": "EventList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}`
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}}}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 100 {
			if page, err := source.List(t.Context(), 500, "token"); err != nil || page.ResourceVersion != "7" {
				t.Fatal(page, err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("100 lists took %s", took)
		}
		if diff := cmp.Diff(url.Values{"limit": {"500"}, "continue": {"token"}}, last.URL.Query()); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		w, err := source.Watch(t.Context(), "7", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		want := url.Values{"watch": {"true"}, "resourceVersion": {"7"}, "timeoutSeconds": {"60"}, "timeout": {"1m0s"}, "allowWatchBookmarks": {"true"}}
		if diff := cmp.Diff(want, last.URL.Query()); diff != "" {
			t.Errorf("watch (-want +got):\n%s", diff)
		}
		if _, limited := last.Context().Deadline(); limited {
			t.Error("the watch has the timeout of other requests")
		}
	})
}

type counting struct{ n *int }

func (c counting) Write(p []byte) (int, error) {
	*c.n += len(p)
	return len(p), nil
}
