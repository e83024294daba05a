package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// maxFrame bounds one frame of a watch.
const maxFrame = 32 << 20

// Stream has the frames of one watch, for one goroutine. Close may be called by any.
type Stream struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	end   context.CancelFunc
}

// Watch opens the watch of a resource. It ends with ctx, when eventd ends it, or with Close.
func (c *Client) Watch(ctx context.Context, resource string, query url.Values) (*Stream, error) {
	query = maps.Clone(query)
	if query == nil {
		query = url.Values{}
	}
	query.Set(v1alpha1.ParamWatch, "true")
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.Do(ctx, resource, query, http.Header{"Accept": {"application/json"}})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = answerError(resp, resource)
		_ = resp.Body.Close()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Stream{body: resp.Body, lines: bufio.NewScanner(resp.Body), end: cancel}
	s.lines.Buffer(nil, maxFrame)
	return s, nil
}

// Next waits for the next frame. It returns io.EOF when eventd has ended the watch in order, and the error of
// a frame of type ERROR.
func (s *Stream) Next() (metav1.WatchEvent, error) {
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
		return frame, err
	}
	return frame, io.EOF
}

// Close ends the watch.
func (s *Stream) Close() error {
	s.end() // the body alone would be read to its end
	return s.body.Close()
}
