package page_test

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/test/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visitor is a browser without a script.
type visitor struct {
	*http.Client
	// address is what Serve has printed, base what precedes the paths.
	address, base string
	stop          context.CancelFunc
}

// serve runs the page until the test ends, and opens its address.
func serve(t *testing.T, b page.Backend) *visitor {
	t.Helper()
	return serveWith(t, page.Options{Backend: b})
}

func serveWith(t *testing.T, o page.Options) *visitor {
	t.Helper()
	v := startWith(t, o)
	if code, body := v.get(t, v.address); code != http.StatusOK && strings.Contains(body, "works once") {
		t.Fatalf("the address is answered %d: %s", code, body)
	}
	return v
}

// start is serve without opening the address.
func start(t *testing.T, b page.Backend) *visitor {
	t.Helper()
	return startWith(t, page.Options{Backend: b})
}

func startWith(t *testing.T, o page.Options) *visitor {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	opened, ended := make(chan string, 1), make(chan error, 1)
	o.Open = func(address string) { opened <- address }
	go func() { ended <- page.Serve(ctx, o) }()
	v := &visitor{Client: newClient(t), stop: stop}
	t.Cleanup(func() {
		stop()
		v.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	select {
	case v.address = <-opened:
	case <-time.After(await.Timeout):
		t.Fatal("the page does not start")
	}
	v.base, _, _ = strings.Cut(v.address, "/open/")
	return v
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Transport: &http.Transport{}, Timeout: await.Timeout}
}

// get returns the answer of a path, or of an address.
func (v *visitor) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	response := v.do(t, http.MethodGet, path, nil)
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// do sends a request that change may change. Its body is closed when the test ends.
func (v *visitor) do(t *testing.T, method, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	if strings.HasPrefix(path, "/") {
		path = v.base + path
	}
	r, err := http.NewRequestWithContext(t.Context(), method, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	response, err := v.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

// parse returns all elements of a page.
func parse(t *testing.T, body string) iter.Seq[*html.Node] {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*html.Node) bool) {
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && !yield(n) {
				return
			}
		}
	}
}

// attr returns an attribute of an element.
func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// words returns the text of a page, with single spaces.
func words(t *testing.T, body string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
			b.WriteByte(' ')
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func wantWords(t *testing.T, body string, all ...string) {
	t.Helper()
	text := words(t, body)
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q, but:\n%s", want, text)
		}
	}
}
