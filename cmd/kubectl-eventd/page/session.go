package page

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"sync/atomic"
)

// entrance is the path at which a token is exchanged for the cookie of the session.
const entrance = "/open/"

// session is the one of a page: a token that works once, and the cookie that it is exchanged for. Both are
// as good as the credentials of the backend, and end with the process.
type session struct {
	token, cookie string
	name          string
	used          atomic.Bool
}

// newSession names the cookie after the port, since cookies are shared by all ports of a host: another page
// on this machine does not replace it.
func newSession(port string) *session {
	return &session{token: rand.Text(), cookie: rand.Text() + rand.Text(), name: "eventd-page-" + port}
}

// enter answers the address that was printed.
func (s *session) enter(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // what only looks at a link does not use it up
		w.Header().Set("Allow", http.MethodGet)
		refuse(w, http.StatusMethodNotAllowed, "Use GET.")
		return
	}
	if !equal(r.PathValue("token"), s.token) || !s.used.CompareAndSwap(false, true) {
		refuse(w, http.StatusForbidden, "This address is not valid, or was opened before: it works once.\n"+again)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.name, Value: s.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// again says how to get in.
const again = "Run kubectl eventd page again, and open the address that it prints."

// require refuses requests without the cookie.
func (s *session) require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, c := range r.CookiesNamed(s.name) {
			if equal(c.Value, s.cookie) {
				next.ServeHTTP(w, r)
				return
			}
		}
		refuse(w, http.StatusUnauthorized, "This browser has not opened the address of the page, which works once.\n"+again)
	})
}

// equal takes the same time wherever the strings differ.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func refuse(w http.ResponseWriter, code int, why string) { http.Error(w, why, code) }
