package app

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/eventd/eventd/pkg/intake"
)

// farewell has a client make another connection for its next request once the end
// of the process has begun: a Service keeps established connections where they
// are, and who is still on one when the listener closes may find it reset. HTTP/1.1
// closes the connection after the answer, HTTP/2 says GOAWAY and closes it with the
// last answer that is under way.
type farewell struct {
	http.ResponseWriter
	begun <-chan struct{}
	said  bool
}

// withFarewell stands around everything that sets headers of a connection.
//
// Other replicas keep theirs: the Lease tells them whom to turn to. Were every
// connection to a leader that is ending closed after its first answer, their
// HTTP/2 client would wait for a second before it sends a request for a third time,
// which is longer than a handover may take.
func withFarewell(next http.Handler, begun <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if intake.PassedOn(req) {
			next.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&farewell{ResponseWriter: w, begun: begun}), req)
	})
}

func (f *farewell) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *farewell) WriteHeader(code int) {
	f.say()
	f.ResponseWriter.WriteHeader(code)
}

func (f *farewell) Write(b []byte) (int, error) {
	f.say()
	return f.ResponseWriter.Write(b)
}

// say sets the header, which is without effect once the answer has begun.
func (f *farewell) say() {
	if f.said {
		return
	}
	f.said = true
	select {
	case <-f.begun:
		f.Header().Set("Connection", "close")
	default:
	}
}
