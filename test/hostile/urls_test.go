package hostile

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestURLsOfStrangersCostNeitherMemoryNorLog(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		nobody := g.account(t, "attacker").anonymous(t)
		const most = 900 << 10 // a server of Go's reads 1 MiB of URL and headers
		selector := nobody.config.Host + "/api/v1/events?labelSelector=" + strings.Repeat("a=b,", most/4)
		unreadable := nobody.config.Host + "/api/v1/events?limit=unreadable&x=" + strings.Repeat("%01", most/3)
		timeout := nobody.events() + "?timeout=unreadable&x=" + strings.Repeat("x", 60<<10)
		before := logBytes(t, g)
		siege{name: "20 URLs of 900 KiB a second that take long to parse, or cannot be parsed", needs: "a connection", allowed: usual, attack: func(ctx context.Context) {
			crowd(ctx, 8, 20, func() {
				nobody.do(ctx, http.MethodGet, unreadable, "")
				nobody.do(ctx, http.MethodPost, timeout, "", "Authorization", "Bearer bogus")
				nobody.do(ctx, http.MethodGet, selector, "")
			})
		}}.run(t, g)
		if grown := logBytes(t, g) - before; g.eventd != nil && grown > 64<<10 {
			t.Errorf("%d bytes were logged: any client can fill the disk", grown)
		}
	})
}

// logBytes is the size of the log. That of the kube-apiserver is a pipe without a size.
func logBytes(t *testing.T, g *target) int64 {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/2", g.pid()))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
