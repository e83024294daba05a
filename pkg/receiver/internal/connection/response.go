package connection

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/eventd/eventd/pkg/receiver"
	"github.com/eventd/eventd/pkg/receiver/internal/sequence"
)

// maxQuoted is how much of a destination's text is in an error, in bytes.
const maxQuoted = 200

// Response is an answer to a request.
type Response struct {
	Status int
	Header http.Header
	// Body has at most MaxResponseBytes.
	Body []byte
	// BodyErr is why the body is not whole.
	BodyErr error
}

// Err returns nil if the destination has accepted the request, and else a *receiver.Error.
//
// 400, 413 and 422 are about what is in the request, so it would be refused again, unless the server
// says by 400 that it is about the connection. So is what says that the request is too large: a gateway
// may answer 500 with the words of the server behind it. A 413 with Retry-After is temporary (RFC 9110,
// section 15.5.14), if the server means it. All else may be accepted later: the destination is overloaded
// or away (408, 429, 5xx), or this client or the destination is not configured as it should be (3xx,
// 401, 403, 404 and so on), and no Event is to be lost for that.
func (r *Response) Err() error {
	if r.Status/100 == 2 {
		return nil
	}
	err := &receiver.Error{Err: fmt.Errorf("status %d: %s", r.Status, Quote(string(r.Body)))}
	retryAfter := RetryAfter(r.Header.Get("Retry-After"), time.Now())
	switch {
	case r.Status == http.StatusBadRequest && r.isAboutConnection():
	case r.Status == http.StatusRequestEntityTooLarge && retryAfter > 0:
		err.RetryAfter, err.Err = retryAfter, fmt.Errorf("%w: %w", sequence.ErrMaybeTooLarge, err.Err)
	case r.Status == http.StatusBadRequest || r.Status == http.StatusRequestEntityTooLarge || r.Status == http.StatusUnprocessableEntity:
		err.Permanent = true
	case r.Status/100 == 3:
		err.Err = fmt.Errorf("status %d: redirects are not followed", r.Status)
	case retryAfter == 0 && SaysTooLarge(string(r.Body)):
		err.Permanent = true
	default:
		err.RetryAfter = retryAfter
	}
	return err
}

// tooLarge is what servers and proxies say of a request that exceeds a limit of theirs: the
// implementations of gRPC in Go, C and JavaScript, in Java, in .NET and in Rust (twice), then proxies,
// net/http and Kafka.
var tooLarge = regexp.MustCompile(`(?i)larger than (the )?(max|\d)` +
	`|exceeds (the )?maximum (configured message )?size` +
	`|message length too large|size limit, of \d+ bytes, exceeded` +
	`|(payload|entity|content|body|message)( was| is)? too large`)

// SaysTooLarge reports whether the text of a refusal says that the request is too large. The text may
// quote an Event, whose author then has that Event refused, and no other one.
func SaysTooLarge(text string) bool { return tooLarge.MatchString(text) }

// aboutConnection are how the answers of servers begin that expect TLS, the certificate of a client, or
// smaller headers.
var aboutConnection = []string{
	"Client sent an HTTP request to an HTTPS server.",                          // those in Go
	"<html>\r\n<head><title>400 The plain HTTP request was sent to HTTPS port", // nginx
	"<html>\r\n<head><title>400 No required SSL certificate was sent",
	"<html>\r\n<head><title>400 The SSL certificate error",
	"<html>\r\n<head><title>400 Request Header Or Cookie Too Large",
}

// isAboutConnection reports whether a 400 is not about what is in the request. Only how the body begins
// says so: what follows may quote an Event.
func (r *Response) isAboutConnection() bool {
	return slices.ContainsFunc(aboutConnection, func(text string) bool { return strings.HasPrefix(string(r.Body), text) })
}

// Quote returns the beginning of a text from a destination, as it can be logged.
func Quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q...", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}
