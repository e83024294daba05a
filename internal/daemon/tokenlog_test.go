package daemon

import (
	"strings"
	"syscall"
	"testing"
)

// At the highest verbosity that there is, in either format, the log tells of reviews
// and has no token in it.
func TestTokensAreNotLogged(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		c := startChild(t, startAPIServer(t), "--v=7", "--logging-format="+format)
		c.config.BearerToken = "unmistakable.token"
		if code, body, err := get(t, c.config, "/metrics"); err != nil || code != 401 {
			t.Errorf("answered %d %s %v", code, body, err)
		}
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		log, _ := c.end(t)
		if !strings.Contains(log, "tokenreviews") {
			t.Errorf("%s: nothing about a review is logged", format)
		}
		if strings.Contains(log, "unmistakable") {
			t.Errorf("%s: the token is logged:\n%s", format, log)
		}
	}
}
