package query

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/intake"
)

const (
	// reviewPeriod is between two reviews of the rights of an open watch. Decisions are cached for longer, so
	// most of them cost nothing.
	reviewPeriod = 2 * time.Second
	// reviewTimeout is for all reviews of one watch at a time.
	reviewTimeout = 6 * time.Second
	// maxUnreviewed is for how long a watch lasts when one of its rights cannot be reviewed, though the
	// apiserver answers others. With the age of a cached decision, 10 s, a right that is taken away is gone
	// after 30 s.
	maxUnreviewed = 12 * time.Second
)

// rights are what a query needs: in all namespaces if there are none.
type rights struct {
	authorize  intake.Authorize
	answering  func() bool
	namespaces []string
	watch      bool
	// operator: an open watch shows what belongs to the operator.
	operator bool
}

// right is a verb on the Events of a namespace, or of all.
type right struct{ verb, namespace string }

func (r *rights) all() (all []right) {
	namespaces := r.namespaces
	if namespaces == nil {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		all = append(all, right{"list", namespace})
		if r.watch {
			all = append(all, right{"watch", namespace})
		}
	}
	if r.operator && r.namespaces != nil {
		all = append(all, right{"list", metav1.NamespaceAll})
	}
	return all
}

// reviewOperator reviews, after the rights, whether the caller sees what belongs to the operator: who may list Events in
// all namespaces.
func (r *rights) reviewOperator(ctx context.Context) {
	if r.namespaces == nil {
		r.operator = true
		return
	}
	denied, err := r.authorize(ctx, "list", metav1.NamespaceAll)
	r.operator = !denied && err == nil
}

// review returns the first denial, which names a namespace that the caller may not see, or else the first
// error: what cannot be reviewed now hides no denial. reviewed, if not nil, is called for each right that is
// allowed, or has an error.
func (r *rights) review(ctx context.Context, reviewed func(right, error)) (denied bool, err error) {
	for _, right := range r.all() {
		denied, failure := r.authorize(ctx, right.verb, right.namespace)
		if denied {
			return true, failure
		}
		if reviewed != nil {
			reviewed(right, failure)
		}
		if err == nil {
			err = failure
		}
	}
	return false, err
}

// follow reviews the rights until ctx ends, and returns the error with which a watch ends. A denial ends it,
// also one that has yet to be confirmed: then the client gets 503 until it is. So does a right that is not
// reviewed within maxUnreviewed, as when there are too many reviews. But an apiserver that answers nobody ends
// no watch: that ends within minutes anyway.
func (r *rights) follow(ctx context.Context) error {
	ticker := time.NewTicker(reviewPeriod)
	defer ticker.Stop()
	known := make(map[right]time.Time)
	for _, right := range r.all() {
		known[right] = time.Now()
	}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		if err := r.reviewAgain(ctx, known); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// reviewAgain reviews the rights of a watch. known is when each was known, or could not be, last.
func (r *rights) reviewAgain(ctx context.Context, known map[right]time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	denied, err := r.review(ctx, func(right right, failure error) {
		if failure == nil || !r.answering() {
			known[right] = time.Now()
		}
	})
	if denied {
		return err
	}
	for _, last := range known {
		if time.Since(last) >= maxUnreviewed {
			return intake.Unavailable(1, "the rights of the watch could not be reviewed in time")
		}
	}
	return nil
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
	data, _ := json.Marshal(status) // of strings and numbers
	writeJSON(w, int(status.Code), data)
}

// statusOf returns the Status of an error, with a kind.
func statusOf(err error) metav1.Status {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = apierrors.NewTimeoutError("the query did not complete in time: "+err.Error(), 0)
	}
	status := apierrors.NewInternalError(err).Status()
	if s, ok := err.(apierrors.APIStatus); ok {
		status = s.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}
