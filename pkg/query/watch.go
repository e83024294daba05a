package query

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/sleep"
)

const (
	// A watch ends after minWatch to maxWatch, so that a client that was forgotten ends, and replicas share
	// the watches again after one was added.
	minWatch, maxWatch = 5 * time.Minute, 10 * time.Minute
	// objectPeriod is how often an object that is watched is read again.
	objectPeriod = time.Second
	// quietPeriod is the maximum time without a frame: a client can tell a quiet watch from a dead one.
	quietPeriod = 4 * time.Second
)

// Reasons for the end of a watch that its client is not told: it connects again.
var (
	errOver     = errors.New("the watch has lasted for its time")
	errStopping = errors.New("the process shuts down, or the leader has changed")
)

// watching returns what answers a watch until it ends.
func (a *API) watching(q *query, r rights) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		life, end := a.life(req.Context(), q.changed)
		defer end()
		s := newStream(w, q.sse, q.compressed)
		defer context.AfterFunc(life, s.close)()
		ctx, cancel := context.WithCancelCause(life)
		timer := time.AfterFunc(minWatch+rand.N(maxWatch-minWatch), func() { cancel(errOver) })
		defer timer.Stop()
		var reviewing sync.WaitGroup
		reviewing.Go(func() { cancel(r.follow(ctx)) })
		err := s.begin()
		if err == nil {
			err = a.feed(ctx, q, s)
		}
		cancel(err)
		reviewing.Wait()
		if status := apierrors.APIStatus(nil); errors.As(context.Cause(ctx), &status) {
			s.fail(context.Cause(ctx))
		}
		s.end()
	}
}

// life returns a context that ends when the client goes away, the process shuts down, or changed is closed.
func (a *API) life(ctx context.Context, changed <-chan struct{}) (life context.Context, end func()) {
	life, cancel := context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-life.Done():
		case <-a.options.Stopping:
		case <-changed:
		}
		cancel(errStopping)
	})
	return life, func() {
		cancel(nil)
		waiting.Wait()
	}
}

// feed sends frames until ctx ends, the client does not read, or the source fails.
func (a *API) feed(ctx context.Context, q *query, s *stream) error {
	if q.resource != resourceTail {
		return a.sendObjects(ctx, q, s)
	}
	return a.sendTail(ctx, q, s)
}

// sendObjects sends an object when it has changed, and after quietPeriod.
func (a *API) sendObjects(ctx context.Context, q *query, s *stream) error {
	var last [sha256.Size]byte // and not the object: there may be 64 watches
	var sent time.Time
	kind := frameAdded
	for {
		object, err := a.object(ctx, q)
		if err != nil {
			return err
		}
		text, err := json.Marshal(withoutTimes(object))
		now := sha256.Sum256(text)
		switch {
		case err != nil:
			return err
		case now != last, time.Since(sent) >= quietPeriod:
			if err := s.send(kind, object, ""); err != nil {
				return err
			}
			last, kind, sent = now, frameModified, time.Now()
		}
		if err := s.flush(); err != nil {
			return err
		}
		if err := sleep.For(ctx, objectPeriod); err != nil {
			return err
		}
	}
}
