package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
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
	header http.Header
	body   []byte
}

// newOutgoing asserts the authenticated user of a request.
func newOutgoing(r *intake.Received) (*outgoing, error) {
	req := r.Request
	caller, ok := request.UserFrom(req.Context())
	if !ok {
		return nil, apierrors.NewInternalError(errors.New("no user in the context"))
	}
	asserted, err := intake.EncodeUser(caller)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	o := &outgoing{url: *req.URL, method: req.Method, header: endToEnd(req.Header), body: r.Body}
	o.header.Set(intake.AssertedUserHeader, asserted)
	if len(o.header["User-Agent"]) == 0 {
		o.header.Set("User-Agent", "") // or the transport sets its own
	}
	if id, ok := audit.AuditIDFrom(req.Context()); ok {
		o.header.Set("Audit-Id", string(id)) // the same in the logs of both replicas
	}
	return o, nil
}

// request returns a request to the leader. The time until the deadline of ctx is in the
// timeout parameter.
func (o *outgoing) request(ctx context.Context, leader, token string) (*http.Request, error) {
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
	header := w.Header()
	for name, values := range endToEnd(a.header) {
		header[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// hopByHop are the headers of one connection: those of RFC 9110 7.6.1, and others that
// proxies and clients have used.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// endToEnd returns a copy of the headers without those of a connection, and those between
// replicas.
func endToEnd(header http.Header) http.Header {
	out := header.Clone()
	for _, value := range header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	for name := range out {
		if strings.HasPrefix(name, peerHeaders) {
			delete(out, name)
		}
	}
	return out
}
