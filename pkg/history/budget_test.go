package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/shares"
)

// sealedHistory returns a history with so many versions, nearly all in blocks.
func sealedHistory(t *testing.T, versions int) *History {
	t.Helper()
	h := newForTest(t, 64<<20, defaultSizes(64<<20))
	for rv := range uint64(versions) {
		h.Add(numbered(rv + 1))
		if rv%1024 == 0 {
			waitSealed(h)
		}
	}
	waitSealed(h)
	return h
}

func (h *History) decodedBlocks() int { return int(testutil.ToFloat64(h.metrics.decoded)) }

// readAll reads a follower to the end, few versions at a time.
func readAll(t *testing.T, f *Follower, from, to uint64) {
	t.Helper()
	for next := from; next <= to; {
		versions, _, err := f.Read(t.Context(), 32)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			if v.Event.ResourceVersion != formatRV(next) {
				t.Fatalf("%s comes, want %d", v.Event.ResourceVersion, next)
			}
			next++
		}
	}
}

func TestAFollowerDecodesEachBlockOnce(t *testing.T) {
	const versions = 10_000
	h := sealedHistory(t, versions)
	blocks := len(h.store.blocks)
	f, err := h.Follow("1", "a")
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, f, 2, versions)
	if n := h.decodedBlocks(); n != blocks || blocks < 16 {
		t.Errorf("%d blocks are decoded, of %d", n, blocks)
	}
	f.Close()
	if n := h.budget.ahead.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved at the end", n)
	}
}

// A tenant whose followers stand still keeps no memory that another one needs, and gets all versions
// itself.
func TestWhatFollowersHaveAheadIsBoundedAndFair(t *testing.T) {
	const versions = 10_000
	h := sealedHistory(t, versions)
	h.budget.ahead = shares.New(12 << 20)
	var followers []*Follower
	for range 64 {
		f, err := h.Follow("1", "a")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		readAll(t, f, 2, 2)
		followers = append(followers, f)
	}
	if used := h.budget.ahead.InUse(); used < 3<<20 || used > 6<<20 {
		t.Errorf("one tenant has %d bytes, want at most a half", used)
	}
	blocks, before := len(h.store.blocks), h.decodedBlocks()
	other, err := h.Follow("1", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	readAll(t, other, 2, versions)
	if n := h.decodedBlocks() - before; n != blocks {
		t.Errorf("for another tenant, %d blocks are decoded, of %d", n, blocks)
	}
	versionsOfOne, _, err := followers[63].Read(t.Context(), 32)
	if err != nil || len(versionsOfOne) == 0 {
		t.Fatalf("%d versions, %v", len(versionsOfOne), err)
	}
	readAll(t, followers[63], mustParse(versionsOfOne[len(versionsOfOne)-1])+1, 3000)
	for _, f := range followers {
		f.Close()
	}
	other.Close()
	if n := h.budget.ahead.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved at the end", n)
	}
}

// Of versions of different sizes, a part by number may take more than its part of the memory.
func TestAFollowerWithLittleMemoryMissesNothing(t *testing.T) {
	const versions, memory = 8192, 1 << 20
	h := newForTest(t, 64<<20, defaultSizes(64<<20))
	for rv := range uint64(versions) {
		v := numbered(rv + 1)
		if rv%2048 < 512 {
			v.Event.Message = strings.Repeat("x", 4<<10)
		}
		h.Add(v)
	}
	waitSealed(h)
	h.budget.ahead = shares.New(memory)
	f, err := h.Follow("1", "a")
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, f, 2, versions)
	f.Close()
	if n := h.budget.ahead.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved at the end", n)
	}
}

// scanAll is a query that decodes all blocks of a cluster, and finds nothing.
func scanAll(tenant string) Query {
	return Query{Caller: tenant, Reason: "Scheduled", Type: corev1.EventTypeWarning}
}

// A query waits for a few turns of a tenant that floods, not for all that it has begun.
func TestAFloodOfQueriesDelaysNoOtherTenant(t *testing.T) {
	h := newForTest(t, 64<<20, defaultSizes(64<<20))
	c := newCluster(1)
	for range 20 {
		for range 1000 {
			h.Add(c.next())
		}
		waitSealed(h)
	}
	if _, err := h.List(t.Context(), scanAll("")); err != nil {
		t.Fatal(err)
	}
	blocks := h.decodedBlocks() // that have both
	ctx, end := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	began := make(chan struct{}, 40)
	for range cap(began) {
		flood.Go(func() {
			began <- struct{}{}
			for ctx.Err() == nil {
				r, err := h.List(ctx, scanAll("flood"))
				if err == nil {
					r.Release()
				} else if ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range cap(began) {
		<-began
	}
	before := h.decodedBlocks()
	if _, err := h.List(t.Context(), scanAll("other")); err != nil {
		t.Error(err)
	}
	decoded := h.decodedBlocks() - before
	end()
	flood.Wait()
	// In order of arrival it would be 41 times as many. A tenant has up to 4 queues.
	if decoded > 20*blocks || blocks < 10 {
		t.Errorf("a query of %d blocks has waited for %d", blocks, decoded)
	}
}

// Results that are not released count against their tenant.
func TestResultsOfATenantAreBounded(t *testing.T) {
	a := newAdder(t, 64<<20)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range 4000 {
		e := eventOf("a", "object", i)
		e.Message = noise(rng, maxMessage)
		a.add(e)
	}
	list := func(tenant string) (Result, error) {
		return a.h.List(t.Context(), Query{Limit: 2000, AllVersions: true, Caller: tenant})
	}
	var held []Result
	var err error
	for err == nil {
		var r Result
		if r, err = list("a"); err == nil {
			held = append(held, r)
		}
	}
	if !errors.Is(err, ErrBusy) || len(held) == 0 || len(held) > 3 {
		t.Fatalf("%d results, then: %v", len(held), err)
	}
	r, err := list("b")
	if err != nil {
		t.Fatalf("another tenant: %v", err)
	}
	r.Release()
	for _, r := range held {
		r.Release()
	}
	if n := a.h.budget.results.InUse(); n != 0 {
		t.Errorf("%d bytes are reserved at the end", n)
	}
}

func TestDecodingLeavesHalfOfTheProcessors(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 4: 2, 64: maxDecoding} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			b, err := newBudget()
			if err != nil {
				t.Fatal(err)
			}
			running, end := make(chan struct{}), make(chan struct{})
			var all sync.WaitGroup
			for range want {
				all.Go(func() {
					_ = b.decode(t.Context(), shares.Flow{Tenant: "a"}, func() error {
						running <- struct{}{}
						<-end
						return nil
					})
				})
				<-running
			}
			cause := errors.New("cause")
			ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, cause)
			defer cancel()
			if err := b.decode(ctx, shares.Flow{Tenant: "b"}, func() error { return nil }); !errors.Is(err, cause) {
				t.Errorf("more than %d decode: %v", want, err)
			}
			close(end)
			all.Wait()
			const work = 5 * time.Millisecond
			began := time.Now()
			_ = b.decode(t.Context(), shares.Flow{Tenant: "a"}, func() error {
				for time.Since(began) < work {
				}
				return nil
			})
			if paused := time.Since(began) >= 2*work; processors == 1 && !paused {
				t.Error("there is no pause with a single processor")
			}
		})
	}
}
