package hostile

import (
	"context"
	"fmt"
	"net/http"
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
		siege{name: "20 JSON patches a second with 25 copies each", needs: "create and patch in one namespace", allowed: usual, attack: func(ctx context.Context) {
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
		const size = 128 << 10
		event := attacker.event("NAME", "pod", "Normal", 1)
		owners := `"ownerReferences":[` + strings.TrimSuffix(strings.Repeat(`{},`, (size-len(event))/3), ",") + `]`
		var posted atomic.Int64
		siege{name: "100 bodies a second of 128 KiB of ownerReferences, 64 at once", needs: "create in one namespace", allowed: limits{peak: 512, p99: usual.p99}, attack: func(ctx context.Context) {
			crowd(ctx, 64, 100, func() {
				name := fmt.Sprintf("grown-%d", posted.Add(1))
				body := strings.Replace(strings.Replace(event, "NAME", name, 1), `"namespace":`, owners+`,"namespace":`, 1)
				attacker.postEvent(ctx, body)
			})
		}}.run(t, g)
	})
}

func TestFloodWithoutCredentialsIsNoticedByNobody(t *testing.T) {
	both(t, func(t *testing.T, g *target) {
		nobody := g.account(t, "attacker").anonymous(t)
		siege{name: "500 requests a second without credentials", needs: "a connection", allowed: usual, attack: func(ctx context.Context) {
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
		siege{name: "1,000 bogus tokens a second, 1,200 at once", needs: "a connection", allowed: usual, lasts: 12 * time.Second, attack: func(ctx context.Context) {
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
		siege{name: "500 distinct Events a second, 200 at once", needs: "create in one namespace", allowed: limits{peak: 256, p99: usual.p99}, attack: func(ctx context.Context) {
			crowd(ctx, 200, 500, func() { attacker.post(ctx, fmt.Sprintf("flood-%d", posted.Add(1)), "Warning") })
		}}.run(t, g)
	})
}
