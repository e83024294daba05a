package observer

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

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
	if w, err := source.Watch(t.Context(), "1", time.Minute); err != nil {
		t.Error(err)
	} else {
		w.Stop()
	}
}

type counting struct{ n *int }

func (c counting) Write(p []byte) (int, error) {
	*c.n += len(p)
	return len(p), nil
}
