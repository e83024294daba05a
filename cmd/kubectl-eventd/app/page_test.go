package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/await"
)

// The page asks eventd as the commands do, with the caller's credentials, and ends with Ctrl-C.
func TestPageShowsWhatEventdAnswers(t *testing.T) {
	c := newCLI(t, everything())
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut output
	done := make(chan int, 1)
	go func() { done <- c.runIn(ctx, &out, &errOut, "page") }()
	address := ""
	await.Until(t, "an address", func() bool {
		address = regexp.MustCompile(`http://\S+`).FindString(out.String())
		return address != ""
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	answer, err := browser.Get(address) // and follows to the status
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "eventd-0_a") {
		t.Errorf("%s, %v:\n%s", answer.Status, err, text)
	}
	if requests := c.eventd.Requests(); len(requests) == 0 || !strings.HasSuffix(requests[0].URL.Path, "/status") {
		t.Errorf("eventd got %d requests", len(requests))
	}
	cancel()
	if code := <-done; code != 0 || errOut.String() != "" {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}
