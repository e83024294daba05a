package query

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/fairqueue"
	"github.com/eventd/eventd/pkg/rules"
)

// Whoever closes a tail and opens another one does not get the processor sooner.
func TestExpressionsOfAllTailsHaveAShareOfOneProcessor(t *testing.T) {
	costly, err := rules.CompileExpression(`event.message.matches("(a{1,9}){1,9}b")`, "match")
	if err != nil {
		t.Fatal(err)
	}
	events := []*corev1.Event{{Message: strings.Repeat("a", 16<<10)}}
	m, err := newMatches()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	began := time.Now()
	go cancel(errors.New("closed"))
	_, took, _ := m.evaluate(ctx, "a", costly, events)
	if _, _, err := m.evaluate(ctx, "a", costly, events); err == nil {
		t.Error("evaluated after the end of the context")
	}
	cheap, err := m.compile(t.Context(), "a", `event.reason == "a"`)
	if err != nil {
		t.Fatal(err)
	}
	if matched, _, err := m.evaluate(t.Context(), "a", cheap, []*corev1.Event{{Reason: "a"}, {Reason: "b"}}); err != nil || !matched[0] || matched[1] {
		t.Errorf("%v, %v", matched, err)
	}
	if rest := time.Since(began) - took; rest < matchRest*took {
		t.Errorf("the next one has waited for %s after %s", rest, took)
	}
}

// No evaluation waits for a compilation, or the other way round, and nobody for a client that has gone away.
func TestExpressionsAreCompiledInTurnsOfTheirOwn(t *testing.T) {
	const text = `event.reason == "a"`
	compiled, err := rules.CompileExpression(text, "match")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		m, err := newMatches()
		if err != nil {
			t.Fatal(err)
		}
		compile := func(ctx context.Context) error {
			_, err := m.compile(ctx, "b", text)
			return err
		}
		evaluate := func(ctx context.Context) error {
			_, _, err := m.evaluate(ctx, "b", compiled, []*corev1.Event{{}})
			return err
		}
		for _, test := range []struct {
			taken         *fairqueue.Turns
			waits, passes func(context.Context) error
		}{{m.compilations, compile, evaluate}, {m.evaluations, evaluate, compile}} {
			over := make(chan struct{})
			go func() { _ = inTurn(t.Context(), test.taken, "b", func() { <-over }) }()
			synctest.Wait()
			if err := test.passes(t.Context()); err != nil {
				t.Error(err)
			}
			gone, leave := context.WithTimeout(t.Context(), time.Second)
			if err := test.waits(gone); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v during another turn of the tenant", err)
			}
			leave()
			close(over)
			if err := test.waits(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A tenant with many tails whose expressions are costly delays those of another one by a few evaluations.
func TestExpressionsOfATenantDelayThoseOfAnotherByAFew(t *testing.T) {
	costly, err := rules.CompileExpression(`event.message.matches("(a{1,9}){1,9}b")`, "match")
	if err != nil {
		t.Fatal(err)
	}
	events := []*corev1.Event{{Message: strings.Repeat("a", 1<<10)}}
	m, err := newMatches()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var evaluated atomic.Int64
	var flood sync.WaitGroup
	began := make(chan struct{}, 60)
	for range cap(began) {
		flood.Go(func() {
			began <- struct{}{}
			for ctx.Err() == nil {
				_, _, _ = m.evaluate(ctx, "flood", costly, events)
				evaluated.Add(1)
			}
		})
	}
	for range cap(began) {
		<-began
	}
	const own = 10
	before := evaluated.Load()
	for range own {
		if _, _, err := m.evaluate(t.Context(), "other", costly, events); err != nil {
			t.Error(err)
		}
	}
	others := evaluated.Load() - before
	end()
	flood.Wait()
	if others > own*30 { // in order of arrival, own * 60
		t.Errorf("%d evaluations have waited for %d", own, others)
	}
}
