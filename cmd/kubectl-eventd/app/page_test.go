package app_test

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"testing"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
)

// The page asks eventd as the commands do, with the caller's credentials, and ends with Ctrl-C.
func TestPageShowsWhatEventdAnswers(t *testing.T) {
	c := newCLI(t, everything())
	c.cluster.Aggregate(v1alpha1.GroupName, c.eventd)
	for _, connect := range []string{"auto", "apiserver"} {
		t.Run(connect, func(t *testing.T) { showsThePage(t, c, "--connect="+connect) })
	}
}

func showsThePage(t *testing.T, c *cli, flags ...string) {
	ctx, cancel := context.WithCancel(t.Context())
	var out, errOut output
	done := make(chan int, 1)
	go func() { done <- c.runIn(ctx, &out, &errOut, append([]string{"page"}, flags...)...) }()
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
	for typed, kind := range map[string]string{"po": "Pod", "nodes": "Node", "widget": "Widget"} {
		answer, err := browser.Get(regexp.MustCompile(`http://[^/]+`).FindString(address) + "/object?q=" + typed + "/a")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if query := answer.Request.URL.Query(); query.Get("kind") != kind || query.Get("name") != "a" {
			t.Errorf("a search for %s/a leads to %s", typed, answer.Request.URL)
		}
	}
	if requests := c.eventd.Requests(); len(requests) == 0 || !strings.HasSuffix(requests[0].URL.Path, "/status") {
		t.Errorf("eventd got %d requests", len(requests))
	}
	cancel()
	if code := <-done; code != 0 || errOut.String() != "" {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}
