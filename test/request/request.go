// Package request makes single HTTP requests, which it does not retry.
package request

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Answer is that to one request, read to its end, or why there is none.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
	Err    error
}

func (a Answer) String() string { return fmt.Sprintf("%d %.200s (%v)", a.Code, a.Body, a.Err) }

// Do makes a request, with further headers in pairs. A body is JSON unless they say
// otherwise.
func Do(ctx context.Context, client *http.Client, method, url, body string, header ...string) Answer {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return Answer{Err: err}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return Answer{response.StatusCode, response.Header, string(content), err}
}
