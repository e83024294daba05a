package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// maxFrame bounds one frame of a watch.
	maxFrame = 32 << 20
	// maxSilence is how long a watch may have no frame. eventd sends one every 4 s: one that does not hangs, or
	// is cut off.
	maxSilence = 10 * time.Second
)

// errSilent ends a watch that has no frames.
var errSilent = errors.New("eventd is silent: a frame of its watch is overdue")

// Frames are those of a watch, for one goroutine. Close may be called by any.
type Frames = interface {
	// Next waits for the next frame. It returns io.EOF when eventd has ended the watch in order, and the error of a
	// frame of type ERROR.
	Next() (metav1.WatchEvent, error)
	Close() error
}

// stream has the frames of one eventd.
type stream struct {
	body    io.ReadCloser
	lines   *bufio.Scanner
	ctx     context.Context
	end     context.CancelCauseFunc
	limit   time.Duration // maxSilence
	silence *time.Timer   // runs while a frame is waited for
}

// Watch opens the watch of a resource. It ends with ctx, when eventd ends it or is silent, or with Close.
func (c *Client) Watch(ctx context.Context, resource string, query url.Values) (Frames, error) {
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	query.Set(v1alpha1.ParamWatch, "true")
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, end: cancel, limit: c.maxSilence}
	s.silence = time.AfterFunc(s.limit, func() {
		c.wasSilent.Store(true)
		cancel(errSilent)
	})
	s.silence.Stop()
	// To log in and to connect may take longer.
	connected := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { s.silence.Reset(s.limit) }}
	resp, err := c.Do(httptrace.WithClientTrace(ctx, connected), resource, query, http.Header{"Accept": {"application/json"}})
	s.silence.Stop()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = c.answerError(resp, resource)
		_ = resp.Body.Close()
	}
	if err != nil {
		err = timedOut(ctx, err)
		cancel(nil)
		return nil, err
	}
	s.body, s.lines = resp.Body, bufio.NewScanner(resp.Body)
	s.lines.Buffer(nil, maxFrame)
	return s, nil
}

// Next waits at most maxSilence.
func (s *stream) Next() (metav1.WatchEvent, error) {
	s.silence.Reset(s.limit)
	defer s.silence.Stop()
	var frame metav1.WatchEvent
	for s.lines.Scan() {
		line := s.lines.Bytes()
		if len(line) == 0 {
			continue
		}
		if err := json.Unmarshal(line, &frame); err != nil {
			return frame, fmt.Errorf("reading a frame: %w", err)
		}
		if frame.Type != string(watch.Error) {
			return frame, nil
		}
		var status metav1.Status
		if err := json.Unmarshal(frame.Object.Raw, &status); err != nil {
			return frame, fmt.Errorf("reading an error: %w", err)
		}
		return frame, &apierrors.StatusError{ErrStatus: status}
	}
	if err := s.lines.Err(); err != nil {
		return frame, timedOut(s.ctx, err)
	}
	return frame, io.EOF
}

// Close ends the watch.
func (s *stream) Close() error {
	s.end(nil) // the body alone would be read to its end
	return s.body.Close()
}
