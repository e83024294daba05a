package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// problem is why there is nothing to show, and what to do about it.
type problem struct {
	Code        int
	Title, Hint string
	Words       string // of eventd, or of the connection
	// Calm: nothing is wrong, eventd was not set up for it. Docs says how it is.
	Calm bool
	Docs string
}

// explain says in words what an error of the backend means for who reads the page.
func explain(err error, resource string, query url.Values) *problem {
	if err == nil {
		return nil
	}
	p := &problem{Code: http.StatusBadGateway, Words: text(err.Error())}
	flag := describe.Flag(resource)
	switch {
	case apierrors.IsForbidden(err):
		p.Code, p.Title = http.StatusForbidden, "You may not see this."
		p.Hint = "A query over all namespaces needs the right to list Events in all of them. Enter a namespace whose Events you may list."
		if named := query[v1alpha1.ParamNamespace]; resource == "status" {
			p.Hint = "The status needs the right to list Events in all namespaces. The other views work in a namespace whose Events you may list."
		} else if len(named) > 0 {
			p.Hint = "You need the right to list Events in " + text(strings.Join(named, ", ")) + "."
		}
	case apierrors.IsUnauthorized(err):
		p.Code, p.Title = http.StatusForbidden, "eventd does not accept your credentials."
		p.Hint = "They may have expired. Log in again, and run kubectl eventd page again."
	case errors.Is(err, describe.ErrNothingObserves):
		p.Code, p.Title, p.Hint, p.Calm, p.Docs = http.StatusNotFound, "Nothing observes here.", "Install deploy/observe.", true, docs+"deployment.md"
	case apierrors.IsNotFound(err) && flag != "":
		p.Code, p.Title, p.Hint, p.Calm = http.StatusNotFound, "eventd keeps no history of Events.", "With --history-bytes, a process that observes keeps what is stored from then on.", true
		if p.Docs = docs + "history.md"; flag == "--trail-bytes" {
			p.Title, p.Hint, p.Docs = "eventd keeps no trail of what it does.", "With --trail-bytes, it remembers what becomes of reports from then on.", docs+"trail.md"
		}
		p.Words = "" // only that there is no such resource
	case apierrors.IsNotFound(err):
		p.Code, p.Title = http.StatusNotFound, "This eventd has no query API."
		p.Hint = "It is older than this page. Update eventd."
	case apierrors.IsServiceUnavailable(err):
		p.Code, p.Title = http.StatusServiceUnavailable, "eventd cannot answer this now."
		p.Hint = "The page asks again."
		if flag != "" {
			p.Hint = "Perhaps no replica leads at the moment. The status shows what is wrong, and the page asks again."
		}
	case apierrors.IsTooManyRequests(err):
		p.Code, p.Title, p.Hint = http.StatusServiceUnavailable, "eventd has too many requests.", "The page asks again."
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		p.Code, p.Title, p.Hint = http.StatusBadRequest, "eventd does not understand this question.", "Correct what is entered above."
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		p.Code, p.Title, p.Hint = http.StatusGatewayTimeout, "eventd has not answered in time.", "The page asks again."
	default:
		p.Title, p.Hint = "eventd cannot be reached.", "The page asks again."
	}
	return p
}
