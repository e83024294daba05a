package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/intake"
)

const (
	// peerHeaders begin all headers between replicas. They are removed from what clients
	// send and receive.
	peerHeaders = "Eventd-"
	// notLeadingHeader marks the response to a forwarded request that had no effect,
	// because the gate did not admit it.
	notLeadingHeader = "Eventd-Not-Leading"
)

// outgoing is a request to the leader. Its body is kept, so that it can be sent again.
type outgoing struct {
	url    url.URL // without scheme and host
	method string
	header http.Header // nil before it is sent, if it is received
	body   []byte

	// received is what a client has sent, nil for this replica's own requests, and caller
	// who that is.
	received *http.Request
	caller   user.Info
}

// newOutgoing asserts the authenticated user of a request.
func newOutgoing(r *intake.Received) (*outgoing, error) {
	caller, ok := request.UserFrom(r.Request.Context())
	if !ok || caller.GetName() == "" {
		return nil, apierrors.NewInternalError(errors.New("no user in the context"))
	}
	return &outgoing{url: *r.Request.URL, method: r.Request.Method, body: r.Body, received: r.Request, caller: caller}, nil
}

// forwardedHeader returns the headers of a received request for the leader.
func (o *outgoing) forwardedHeader() (http.Header, error) {
	asserted, err := intake.EncodeUser(o.caller)
	if err != nil {
		return nil, err
	}
	keep := endToEnd(o.received.Header)
	header := o.received.Header.Clone()
	maps.DeleteFunc(header, func(name string, _ []string) bool { return !keep(name) })
	header.Set(intake.AssertedUserHeader, asserted)
	if len(header["User-Agent"]) == 0 {
		header.Set("User-Agent", "") // or the transport sets its own
	}
	if id, ok := audit.AuditIDFrom(o.received.Context()); ok {
		header.Set("Audit-Id", string(id)) // the same in the logs of both replicas
	}
	return header, nil
}

// request returns a request to the leader. The time until the deadline of ctx is in the
// timeout parameter.
func (o *outgoing) request(ctx context.Context, leader, token string) (*http.Request, error) {
	if o.header == nil {
		var err error
		if o.header, err = o.forwardedHeader(); err != nil {
			return nil, err
		}
	}
	u := o.url
	u.Scheme, u.Host = "https", leader
	if deadline, ok := ctx.Deadline(); ok {
		query := u.Query()
		query.Set("timeout", time.Until(deadline).String())
		u.RawQuery = query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, o.method, u.String(), bytes.NewReader(o.body))
	if err != nil {
		return nil, err
	}
	req.Header = o.header.Clone()
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

// answer is the leader's. Its body is about as large as that of the request.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// readAnswer reads the whole answer before any of it is written, so that a client never
// gets a part of one.
func readAnswer(response *http.Response) (*answer, error) {
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &answer{response.StatusCode, response.Header, body}, nil
}

// withoutEffect reports whether the replica does not lead.
func (a *answer) withoutEffect() bool {
	return a.code == http.StatusServiceUnavailable && a.header.Get(notLeadingHeader) != ""
}

func (a *answer) write(w http.ResponseWriter) {
	header, keep := w.Header(), endToEnd(a.header)
	for name, values := range a.header {
		if keep(name) {
			header[name] = values
		}
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// hopByHop are the headers of one connection: those of RFC 9110 7.6.1, and others that
// proxies and clients have used. So are cookies, which eventd neither sets nor reads: HTTP/2 splits them into any number
// of fields.
var hopByHop = []string{"Connection", "Cookie", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns a function that reports whether a header is neither of a connection nor
// between replicas. A client may list thousands of names in Connection: they are read once.
func endToEnd(header http.Header) func(name string) bool {
	listed := make(map[string]struct{})
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			listed[http.CanonicalHeaderKey(strings.TrimSpace(name))] = struct{}{}
		}
	}
	return func(name string) bool {
		_, ofConnection := listed[name]
		return !ofConnection && !strings.HasPrefix(name, peerHeaders) && !slices.Contains(hopByHop, name)
	}
}
