package page

import (
	"embed"
	"io/fs"
	"net"
	"net/http"
	"time"
)

const (
	// maxRequests bounds the requests that are rendered at once, and maxStreams the tails. A browser opens
	// six connections, and a hidden tab has no tail.
	maxRequests, maxStreams = 16, 16
	// policy allows nothing from elsewhere, nothing inline, and no frame around the page.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

//go:embed assets
var assets embed.FS

// server answers the browser.
type server struct {
	backend Backend
	session *session
	kind    func(typed string) (group, kind string) // nil, or Options.Kind
	advice  func(err error) string                  // nil, or Options.Advice
	last    lastStatus
	// host is what browsers send as Host.
	host, local       string
	requests, streams chan struct{}
	// patience is unreadTimeout, but for tests.
	patience time.Duration
}

func newServer(b Backend, address string) *server {
	_, port, _ := net.SplitHostPort(address)
	return &server{
		backend: b, session: newSession(port), host: address, local: "localhost:" + port,
		requests: make(chan struct{}, maxRequests), streams: make(chan struct{}, maxStreams),
		patience: unreadTimeout,
	}
}

func (s *server) handler() http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is embedded
	}
	views := http.NewServeMux()
	views.Handle("GET /{$}", limit(s.requests, s.status))
	views.Handle("GET /top", limit(s.requests, s.top))
	views.Handle("GET /drops", limit(s.requests, s.drops))
	views.Handle("GET /object", limit(s.requests, s.object))
	views.Handle("GET /tail", limit(s.requests, s.tail))
	views.Handle("GET /tail/stream", limit(s.streams, s.stream))
	views.Handle("GET /assets/", http.StripPrefix("/assets/", http.FileServerFS(files)))
	views.HandleFunc("GET /", s.unknown)

	all := http.NewServeMux()
	all.HandleFunc(entrance+"{token}", s.session.enter)
	all.Handle("/", s.session.require(views))
	return s.guard(all)
}

// guard refuses what no browser of this page sends, before anything else looks at it.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		// Against DNS rebinding: a name of somebody else's may lead here.
		if r.Host != s.host && r.Host != s.local {
			refuse(w, http.StatusMisdirectedRequest, "The page is at http://"+s.host+"/ only.")
			return
		}
		// Other ports of this machine are the same site, and get no answers either. Programs and old
		// browsers send no such header; they need the cookie, as all others do.
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "none", "same-origin":
			next.ServeHTTP(w, r)
		default:
			refuse(w, http.StatusForbidden, "Another site has led here. Type or paste the address instead.")
		}
	})
}

// limit bounds how many requests are handled at once. Others wait for one to end.
func limit(seats chan struct{}, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seats <- struct{}{}:
			defer func() { <-seats }()
			next(w, r)
		case <-r.Context().Done():
		}
	})
}
