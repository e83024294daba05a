package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/eventd/eventd/internal/sleep"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Pauses between the attempts to open a watch again. After a connection that lasted for steady, they begin
// with the first one.
const (
	firstPause, lastPause = 200 * time.Millisecond, 10 * time.Second
	steady                = 5 * time.Second
)

// leaderPatience is how long a watch waits for a leader before it is open for the first time: more than the
// Lease of one that has crashed lasts.
const leaderPatience = 20 * time.Second

// Follow is a watch that goes on over disconnects, handovers, and the ends of connections that eventd sets.
// Its functions are called one at a time.
type Follow struct {
	Resource string
	Query    url.Values
	// Handle is called for each frame that is no error. An error of it ends the watch.
	Handle func(metav1.WatchEvent) error
	// Waiting is optional. It is called once, with the reason, if the watch cannot be opened at first since there is
	// no leader.
	Waiting func(error)
	// Disconnected is optional. It is called with the error when a connection has failed, and not again before
	// a frame has come. A connection that eventd has ended in order has not failed.
	Disconnected func(error)
	// Lost is optional. It is called when the watch is open again without a cursor: eventd no longer keeps what
	// comes after it, or has sent none yet. What came in between is missing.
	Lost func()
}

// open opens a watch.
type open func(ctx context.Context, resource string, query url.Values) (Frames, error)

func follow(ctx context.Context, watch open, patience time.Duration, f Follow) error {
	run := &following{Follow: f, watch: watch, query: maps.Clone(f.Query)}
	if run.query == nil {
		run.query = url.Values{}
	}
	pauses, start := newPauses(), time.Now()
	for {
		began := time.Now()
		err := run.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case run.handler != nil:
			return run.handler
		case errors.Is(err, io.EOF):
		case isLost(err) && run.expire(): // goes on with what is new
		case run.opened && !run.renewed && apierrors.IsUnauthorized(err):
			run.renewed = true // an exec plugin makes another token after this answer
		case !run.opened && awaitsLeader(err) && time.Since(start) < patience:
			run.waiting(err)
		case !run.opened || !passes(err):
			return err
		default:
			run.disconnected(err)
		}
		if time.Since(began) > steady {
			pauses = newPauses()
		}
		pause := pauses.Step()
		if after, ok := askAgain(err); ok {
			pause = max(pause, after)
		}
		if sleep.For(ctx, pause) != nil {
			return nil
		}
	}
}

func newPauses() wait.Backoff {
	return wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.2, Steps: 20, Cap: lastPause}
}

// following is a watch that runs.
type following struct {
	Follow
	watch   open
	query   url.Values // with the cursor
	opened  bool       // once
	expired bool       // the cursor, since it was open
	away    bool       // since the last frame
	renewed bool       // the credentials, since the last frame
	handler error      // of Handle
}

// once opens the watch, and reads it to its end.
func (f *following) once(ctx context.Context) error {
	stream, err := f.watch(ctx, f.Resource, f.query)
	if err != nil {
		return err
	}
	defer stream.Close()
	lost := (f.opened || f.expired) && !f.query.Has(v1alpha1.ParamResourceVersion) && f.Lost != nil
	f.opened, f.expired = true, false
	for {
		frame, err := stream.Next()
		if err != nil {
			return err
		}
		f.away, f.renewed = false, false
		var item v1alpha1.TailItem
		isItem := json.Unmarshal(frame.Object.Raw, &item) == nil
		if lost && item.Missing == "" { // else that was said
			f.Lost()
		}
		lost = false
		if f.handler = f.Handle(frame); f.handler != nil {
			return f.handler
		}
		if isItem && item.ResourceVersion != "" { // only items of a tail have one
			f.query.Set(v1alpha1.ParamResourceVersion, item.ResourceVersion)
		}
	}
}

// expire removes the cursor, whose place is no longer kept. It returns false if the first request without one
// is refused.
func (f *following) expire() bool {
	f.expired = f.opened || f.query.Has(v1alpha1.ParamResourceVersion)
	f.query.Del(v1alpha1.ParamResourceVersion)
	return f.expired
}

func (f *following) waiting(err error) {
	if !f.away && f.Waiting != nil {
		f.Waiting(err)
	}
	f.away = true
}

func (f *following) disconnected(err error) {
	if !f.away && f.Disconnected != nil {
		f.Disconnected(err)
	}
	f.away = true
}
