package query

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviewPeriod is between two reviews of the rights of an open watch. Decisions are cached for longer, so
// most of them cost nothing.
const reviewPeriod = 2 * time.Second

// rights are what a query needs: in all namespaces if there are none.
type rights struct {
	authorize  Authorize
	namespaces []string
	watch      bool
}

// Authorize returns nil if a caller has a verb on Events in a namespace, or, if that is empty, in all of
// them. Otherwise it returns the Status of the answer, and whether the caller was denied: also if that has
// yet to be confirmed by another review. It is not, if there was no review.
type Authorize func(ctx context.Context, verb, namespace string) (denied bool, err error)

// review returns the first denial, which names a namespace that the caller may not see, or else the first
// error: what cannot be reviewed now hides no denial.
func (r *rights) review(ctx context.Context) (denied bool, err error) {
	namespaces := r.namespaces
	if namespaces == nil {
		namespaces = []string{metav1.NamespaceAll}
	}
	verbs := []string{"list"}
	if r.watch {
		verbs = append(verbs, "watch")
	}
	for _, namespace := range namespaces {
		for _, verb := range verbs {
			denied, failure := r.authorize(ctx, verb, namespace)
			if denied {
				return true, failure
			}
			if err == nil {
				err = failure
			}
		}
	}
	return false, err
}

// follow reviews the rights until ctx ends, and returns the error with which a watch ends. An apiserver
// that cannot answer ends none: the watch ends within minutes anyway. A denial does, also one that has yet
// to be confirmed: then the client gets 503 until it is.
func (r *rights) follow(ctx context.Context) error {
	ticker := time.NewTicker(reviewPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if denied, err := r.review(ctx); denied && ctx.Err() == nil {
			return err
		}
	}
}

// unavailable is 503 with Retry-After.
func unavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// expired is 410: the client's place in the tail was lost.
func expired() error {
	return apierrors.NewResourceExpired("the place in the tail was lost: what came after it is no longer kept. Continue without resourceVersion, and see the timeline for what was missed")
}

// writeError answers with a Status.
func writeError(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, int(status.Code), status)
}

// statusOf returns the Status of an error, with a kind.
func statusOf(err error) metav1.Status {
	status := apierrors.NewInternalError(err).Status()
	if s, ok := err.(apierrors.APIStatus); ok {
		status = s.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}
