package intake

import (
	"errors"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/shares"
)

// errNameKnown is the error of a POST to a name that has a view.
var errNameKnown = errors.New("the name is known")

// errNamePending is the answer to an Event of a batch whose name has another pending report. A POST of it alone
// would wait for that.
var errNamePending = apierrors.NewTooManyRequests("another report of this name is pending", retryAfterSeconds)

// Intake turns requests into occurrences, and their outcomes into responses. It is safe
// for use by many goroutines, starts none and needs no stop. NewHandler serves it.
type Intake struct {
	options  Options
	names    *names
	decoding *decodeBudget
	metrics  *metrics
	// unread are the bytes of responses that clients have not read.
	unread  *shares.Shares
	working atomic.Int64
}

// Working returns the number of requests about Events that are received as a whole and
// have no response yet. It excludes requests that wait for their client: for its body,
// or until it has read the response.
func (i *Intake) Working() int { return int(i.working.Load()) }

// New returns an intake without views. It fails if the options are invalid or a metric
// cannot be registered.
func New(options Options) (*Intake, error) {
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	i := &Intake{
		options:  options,
		names:    newNames(options.MaxNames, options.MaxViewBytes),
		unread:   shares.New(options.MaxUnreadBytes),
		decoding: newDecodeBudget(options.MaxDecodeBytes),
	}
	var err error
	if i.metrics, err = newMetrics(i, options.Registerer); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	return i, nil
}
