package app

import (
	"cmp"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
)

// child is an eventd in its own process, which ends with the test.
type child struct {
	*replica.Replica
	t      *testing.T
	config *rest.Config // of a user
}

// startChild returns when the process serves.
func startChild(t *testing.T, user *rest.Config, o replica.Options) *child {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Binary, o.Env, o.Dir = binary, []string{asEventd + "=1"}, cmp.Or(o.Dir, t.TempDir())
	r := replica.Run(t, nil, o)
	return &child{r, t, r.Config(user)}
}

// startChild starts an eventd that writes to this apiserver.
func (a *apiserver) startChild(t *testing.T, more ...string) *child {
	t.Helper()
	flags := append([]string{"--leader-elect=false", "--authentication-skip-lookup"}, more...)
	return startChild(t, &rest.Config{BearerToken: goodToken, QPS: -1}, replica.Options{Credentials: a.config(), Flags: flags})
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.Send(s); err != nil {
		c.t.Fatal(err)
	}
}

// awaitLog waits until the process has logged a text.
func (c *child) awaitLog(want string) {
	c.t.Helper()
	await.Until(c.t, "the process logs "+want, func() bool { return strings.Contains(c.Stderr(), want) })
}

// requireExit waits for the end of the process, and returns its stderr.
func (c *child) requireExit(code int) (stderr string) {
	c.t.Helper()
	ctx, cancel := await.Context(c.t)
	defer cancel()
	if got, err := c.Wait(ctx); err != nil || got != code {
		c.t.Errorf("exit code %d, want %d (%v)", got, code, err)
	}
	return c.Stderr()
}

func (c *child) terminate(code int) (stderr string) {
	c.t.Helper()
	c.signal(syscall.SIGTERM)
	return c.requireExit(code)
}

func TestTerminatedProcessExitsWith1AndOneLineAboutWhatWasNotWritten(t *testing.T) {
	a := startAPIServer(t)
	c := a.startChild(t, "--shutdown-grace-period=1s", "--logging-format=json")
	answer := a.post(t, c.config)
	var lines []string
	begun := time.Now()
	for line := range strings.Lines(c.terminate(1)) {
		if strings.Contains(line, "1 occurrences of 1 series were not written") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "{") {
		t.Errorf("logged, in the format of --logging-format: %q, want one line", lines)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("a grace period of 1s took %s", took)
	}
	if err := receive(t, "the answer", answer); err == nil {
		t.Error("the request was answered as if its Event had been written")
	}
}

func TestSecondSignalEndsTheProcessAtOnce(t *testing.T) {
	a := startAPIServer(t)
	c := a.startChild(t, "--shutdown-grace-period=10m")
	a.post(t, c.config)
	c.signal(syscall.SIGTERM)
	c.awaitLog("Shutting down")
	if stderr := c.terminate(1); !strings.Contains(stderr, "second signal") {
		t.Errorf("logged:\n%s", stderr)
	}
}

// At the maximum verbosity, in both formats, reviews are logged and tokens are not.
func TestTokensAreNotLogged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		c := startAPIServer(t).startChild(t, mostVerbose, "--logging-format="+format)
		c.config.BearerToken = "unmistakable.token"
		wantAnswer(t, c.config, "/metrics", http.StatusUnauthorized, "")
		log := c.terminate(0)
		if !strings.Contains(log, "tokenreviews") || strings.Contains(log, "unmistakable") {
			t.Errorf("%s: nothing about a review is logged, or the token is:\n%s", format, log)
		}
	}
}

// "kubectl logs" shows the log among the lines of Events, which begin with {"id": (docs/receivers.md).
func TestLinesOfTheLogDoNotBeginAsThoseOfEvents(t *testing.T) {
	for format, wrong := range map[string]func(line string) bool{
		"text": func(line string) bool { return strings.HasPrefix(line, "{") },
		"json": func(line string) bool { return strings.HasPrefix(line, "{") && !strings.HasPrefix(line, `{"ts":`) },
	} {
		log := startAPIServer(t).startChild(t, mostVerbose, "--logging-format="+format).terminate(0)
		for line := range strings.Lines(log) {
			if wrong(line) {
				t.Errorf("a line of the log as %s is %q", format, line)
			}
		}
	}
}
