package page_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/test/pagetest"
)

var paths = []string{"/", "/top", "/drops", "/object", "/object?kind=Pod&name=web", "/tail", "/assets/page.css", "/assets/page.js", "/assets/icon.svg", "/nothing"}

func TestNothingIsAnsweredWithoutTheCookie(t *testing.T) {
	b := pagetest.Busy(time.Now())
	v := start(t, b)
	for _, path := range append(paths, "/tail/stream", "/open/", "/open/"+strings.Repeat("A", 26)) {
		if code, body := v.get(t, path); code != http.StatusUnauthorized && code != http.StatusForbidden {
			t.Errorf("%s is answered %d: %s", path, code, body)
		}
	}
	forged := func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "eventd-page-" + r.URL.Port(), Value: strings.Repeat("A", 52)})
	}
	if code := v.do(t, http.MethodGet, "/", forged).StatusCode; code != http.StatusUnauthorized {
		t.Errorf("a forged cookie is answered %d", code)
	}
	if asked := b.Asked(); len(asked) > 0 {
		t.Errorf("eventd is asked %q", asked)
	}
}

func TestTheAddressWorksOnce(t *testing.T) {
	v := start(t, pagetest.Empty(time.Now()))
	if code := v.do(t, http.MethodHead, v.address, nil).StatusCode; code != http.StatusMethodNotAllowed {
		t.Errorf("HEAD of the address is answered %d, and may have used it up", code)
	}
	var entered atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		other := &visitor{Client: newClient(t), base: v.base}
		all.Go(func() {
			defer other.CloseIdleConnections()
			if response, err := other.Get(v.address); err != nil {
				t.Error(err)
			} else if response.Body.Close(); response.StatusCode == http.StatusOK {
				entered.Add(1)
			} else if response.StatusCode != http.StatusForbidden {
				t.Errorf("the address is answered %d", response.StatusCode)
			}
		})
	}
	if all.Wait(); entered.Load() != 1 {
		t.Errorf("%d of 20 browsers got in by the same address", entered.Load())
	}
}

func TestTheCookieIsForThisPageOnly(t *testing.T) {
	v := start(t, pagetest.Empty(time.Now()))
	v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response := v.do(t, http.MethodGet, v.address, nil)
	cookies := response.Cookies()
	if len(cookies) != 1 || response.StatusCode != http.StatusSeeOther || response.Header.Get("Location") != "/" {
		t.Fatalf("the address is answered %d, %v", response.StatusCode, response.Header)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || len(c.Value) < 40 {
		t.Errorf("the cookie is %+v", c)
	}
	if strings.Contains(v.address, c.Value) {
		t.Error("the cookie is in the address")
	}
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	v := serve(t, pagetest.Empty(time.Now()))
	port := v.base[strings.LastIndex(v.base, ":"):]
	for _, test := range []struct {
		name, method string
		change       func(*http.Request)
		code         int
	}{
		{"as it is", http.MethodGet, nil, http.StatusOK},
		{"HEAD", http.MethodHead, nil, http.StatusOK},
		{"localhost", http.MethodGet, func(r *http.Request) {
			r.AddCookie(v.Jar.Cookies(r.URL)[0])
			r.Host = "localhost" + port
		}, http.StatusOK},
		{"a name that leads here", http.MethodGet, func(r *http.Request) { r.Host = "evil.example.com" + port }, http.StatusMisdirectedRequest},
		{"a name that begins alike", http.MethodGet, func(r *http.Request) { r.Host = "127.0.0.1" + port + ".evil.example.com" }, http.StatusMisdirectedRequest},
		{"no port", http.MethodGet, func(r *http.Request) { r.Host = "127.0.0.1" }, http.StatusMisdirectedRequest},
		{"another address", http.MethodGet, func(r *http.Request) { r.Host = "0.0.0.0" + port }, http.StatusMisdirectedRequest},
		{"POST", http.MethodPost, nil, http.StatusMethodNotAllowed},
		{"DELETE", http.MethodDelete, nil, http.StatusMethodNotAllowed},
		{"OPTIONS", http.MethodOptions, nil, http.StatusMethodNotAllowed},
		{"typed", http.MethodGet, fetchSite("none"), http.StatusOK},
		{"by the page", http.MethodGet, fetchSite("same-origin"), http.StatusOK},
		{"by another port", http.MethodGet, fetchSite("same-site"), http.StatusForbidden},
		{"by another site", http.MethodGet, fetchSite("cross-site"), http.StatusForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := v.do(t, test.method, "/", test.change)
			if response.StatusCode != test.code {
				t.Errorf("answered %d, not %d", response.StatusCode, test.code)
			}
			wantSafe(t, response)
		})
	}
}

func fetchSite(value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", value) }
}

func TestAllAnswersHaveTheHeaders(t *testing.T) {
	v := start(t, pagetest.Failing(time.Now()))
	wantSafe(t, v.do(t, http.MethodGet, "/", nil))
	wantSafe(t, v.do(t, http.MethodGet, v.address, nil))
	for _, path := range paths {
		wantSafe(t, v.do(t, http.MethodGet, path, nil))
	}
}

// wantSafe checks the headers that restrict what a browser does with an answer.
func wantSafe(t *testing.T, response *http.Response) {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
			"frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("%s: %s is %q", response.Request.URL.Path, name, got)
		}
	}
}

func TestThePageIsOnThisMachineOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.com:80", "127.0.0.1", "192.0.2.1:0"} {
		if err := page.Serve(t.Context(), page.Options{Backend: pagetest.NewBackend(), Address: address}); err == nil {
			t.Errorf("it is served at %s", address)
		}
	}
	if err := page.Serve(t.Context(), page.Options{}); err == nil {
		t.Error("it is served without a backend")
	}
}

func TestServeSaysWhereItIsAndEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	opened := ""
	err := page.Serve(ctx, page.Options{Backend: pagetest.NewBackend(), Address: "localhost:0", Out: &out, Open: func(string) {}})
	if err == nil {
		t.Error("a name is an address")
	}
	err = page.Serve(ctx, page.Options{Backend: pagetest.NewBackend(), Out: &out, Open: func(address string) {
		opened = address
		stop()
	}})
	if err != nil || !strings.Contains(out.String(), opened) || !strings.HasPrefix(opened, "http://127.0.0.1:") {
		t.Errorf("%v, printed %q, opened %q", err, out.String(), opened)
	}
}
