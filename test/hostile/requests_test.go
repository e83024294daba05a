package hostile

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCopyBombInAPatchCostsNobodyMemory(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		attacker := g.account(t, "attacker", "create", "patch")
		attacker.mustPost(t, attacker.event("bomb", "bomb", "Normal", 1), http.StatusCreated)
		patch := []string{`{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 40) + `"}}`}
		for i := range 25 {
			patch = append(patch, fmt.Sprintf(`{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/a%d"}`, i))
		}
		bomb := "[" + strings.Join(patch, ",") + "]"
		siege{allowed: usual, attack: func(ctx context.Context) {
			crowd(ctx, 4, 20, func() {
				a := attacker.do(ctx, http.MethodPatch, attacker.events("bomb"), bomb, "Content-Type", "application/json-patch+json")
				if a.Err == nil && a.Code < 400 {
					t.Errorf("a patch of %d bytes that copies 2^25 times is answered %d", len(bomb), a.Code)
				}
			})
		}}.run(t, g)
	})
}

func TestBodiesThatGrowWhenDecodedStayWithinTheMemory(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		attacker := g.account(t, "attacker", "create")
		const size = maxBody - 1<<10
		event := attacker.event("NAME", "pod", "Normal", 1)
		owners := `"ownerReferences":[` + strings.TrimSuffix(strings.Repeat(`{},`, (size-len(event))/3), ",") + `]`
		var posted, read atomic.Int64
		siege{allowed: limits{peak: 512, p99: usual.p99}, attack: func(ctx context.Context) {
			crowd(ctx, 64, 100, func() {
				name := fmt.Sprintf("grown-%d", posted.Add(1))
				body := strings.Replace(strings.Replace(event, "NAME", name, 1), `"namespace":`, owners+`,"namespace":`, 1)
				if a := attacker.postEvent(ctx, body); strings.Contains(a.Body, "values") {
					read.Add(1)
				}
			})
		}}.run(t, g)
		if g.eventd != nil && read.Load() == 0 {
			t.Error("no body was refused for its values: the attack had no effect")
		}
	})
}

func TestFloodWithoutCredentialsIsNoticedByNobody(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		nobody := g.account(t, "attacker").anonymous(t)
		siege{allowed: usual, attack: func(ctx context.Context) {
			crowd(ctx, 32, 500, func() {
				nobody.post(ctx, "x", "Normal")
			})
		}}.run(t, g)
	})
}

func TestFloodWithBogusTokensIsNoticedByNobody(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		nobody := g.account(t, "attacker").anonymous(t)
		var tried atomic.Int64
		// It lasts longer than the review of the victim's token is cached.
		siege{allowed: usual, lasts: 12 * time.Second, attack: func(ctx context.Context) {
			crowd(ctx, 1200, 1000, func() {
				nobody.postAs(ctx, fmt.Sprintf("bogus-%d", tried.Add(1)), nobody.event("x", "x", "Normal", 1))
			})
		}}.run(t, g)
	})
}

func TestFloodOfOneUserIsNoticedByNoOther(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		attacker := g.account(t, "attacker", "create", "patch")
		var posted atomic.Int64
		siege{allowed: limits{peak: 256, p99: usual.p99}, attack: func(ctx context.Context) {
			crowd(ctx, 200, 500, func() { attacker.post(ctx, fmt.Sprintf("flood-%d", posted.Add(1)), "Warning") })
		}}.run(t, g)
	})
}

func TestURLsOfStrangersCostNeitherMemoryNorLog(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		nobody := g.account(t, "attacker").anonymous(t)
		const most = 900 << 10 // a server of Go's reads 1 MiB of URL and headers
		selector := nobody.config.Host + "/api/v1/events?labelSelector=" + strings.Repeat("a=b,", most/4)
		unreadable := nobody.config.Host + "/api/v1/events?limit=unreadable&x=" + strings.Repeat("%01", most/3)
		timeout := nobody.events() + "?timeout=unreadable&x=" + strings.Repeat("x", 60<<10)
		before := logBytes(t, g)
		siege{allowed: usual, attack: func(ctx context.Context) {
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
